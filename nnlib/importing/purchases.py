"""A table of purchases, read as numbers: customers by region and name, items by name, and the day of each purchase.

Plain tables are read in blocks. Any other is read line by line, which tells what is wrong with it and where.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnlib.data.rows import Floats, Ints
from nnlib.importing.csv_blocks import NotPlainError, read_ahead, read_fields
from nnlib.importing.purchase_lines import (
    NAMED,
    Columns,
    Purchase,
    Report,
    delimiter_of,
    quantity_of,
    read_purchases,
    stage_of,
)
from nnlib.importing.splits import Stages
from nnlib.importing.string_ids import StringIds, TextValues
from nnlib.importing.timestamps import DAY, Moments
from nnlib.util.arrays import Longs

TOGETHER = 1 << 17  # purchases that are looked at together


class PurchaseBlock(NamedTuple):
    """Purchases as numbers, column by column."""

    customers: Ints
    items: Ints
    days: Ints
    stages: Stages
    quantities: Floats


class PurchaseRows:
    """Purchases in the order of the table. Of stages and quantities there are none unless the table has them."""

    def __init__(self, stages: bool = False, quantities: bool = False) -> None:
        self.count = 0
        self.has_quantities = quantities
        kinds = (np.int32, np.int32, np.int32, np.uint8 if stages else None, np.float32 if quantities else None)
        self._columns: list[Any] = [None if kind is None else np.empty(0, dtype=kind) for kind in kinds]

    def add(self, *columns: NDArray[Any]) -> None:
        """Add purchases, as the columns of a PurchaseBlock; those that are not kept are passed over."""
        start, self.count = self.count, self.count + len(columns[0])
        if self._columns[0] is not None and self.count > len(self._columns[0]):
            self._resize(self.count + self.count // 8 + TOGETHER)
        for own, column in zip(self._columns, columns, strict=False):
            if own is not None:
                own[start : self.count] = column

    def parts(self, use_up: bool = False) -> Iterator[PurchaseBlock]:
        """Yield some purchases after others; those that are used up take no memory."""
        for start in reversed(range(0, self.count, TOGETHER)):
            count = min(TOGETHER, self.count - start)
            some = slice(start, start + count)
            part: list[Any] = [np.zeros(count, np.uint8) if own is None else own[some].copy() for own in self._columns]
            if use_up:
                self._resize(start)
            yield PurchaseBlock(*part)

    def _resize(self, size: int) -> None:
        for column in self._columns:
            if column is not None:
                column.resize(size, refcheck=False)  # in place where the system can: never two of them


@dataclass(frozen=True, slots=True, eq=False)
class Purchases:
    """All purchases. Ranks are by number in the rows: of customers by region and name, of items by name."""

    regions: tuple[str, ...]  # in the order of their texts, as are customers of a region, and items
    customers: Sequence[str]
    first: Longs  # (regions + 1,): the first customer of each region
    items: Sequence[str]
    customer_rank: Ints
    item_rank: Ints
    rows: PurchaseRows
    timed: bool  # else all days are 0


def load(path: Path, columns: Columns, report: Report = lambda _position, _rows: None) -> Purchases:
    """Read a table; DataError names file and line of the first thing that is wrong."""
    try:
        return _load_blocks(path, columns, report)
    except NotPlainError:
        return gather_purchases(read_purchases(path, columns, report))


def gather_purchases(lines: Iterable[Purchase]) -> Purchases:
    """Return the purchases of lines as `read_purchases` gives them."""
    customers: dict[tuple[str, str], int] = {}
    items: dict[str, int] = {}
    rest = iter(lines)
    some = list(islice(rest, TOGETHER))
    first = some[0] if some else Purchase("", "", "")
    rows = PurchaseRows(first.stage is not None, first.quantity is not None)
    while some:
        numbers = [customers.setdefault((line.region, line.customer), len(customers)) for line in some]
        wanted = [items.setdefault(line.item, len(items)) for line in some]
        days, stages, quantities = ([line[n] or 0 for line in some] for n in (3, 4, 5))
        rows.add(*(np.array(column) for column in (numbers, wanted, days, stages, quantities)))
        some = list(islice(rest, TOGETHER))
    return _rank(
        rows,
        first.day is not None,
        np.arange(len(customers)),
        list(customers),
        np.arange(len(items)),
        list(items),
    )


def _load_blocks(path: Path, columns: Columns, report: Report) -> Purchases:
    regions, customers, items = StringIds(), StringIds(), StringIds()
    moments, stages = Moments(), TextValues(stage_of, np.uint8)
    quantities = TextValues(quantity_of, np.float32)
    rows = PurchaseRows(bool(columns.stage), bool(columns.quantity))
    found: dict[str, int] = {}

    def places(header: Sequence[str]) -> Sequence[int]:
        found.update(columns.find(header, path))
        return list(found.values())

    for fields in read_ahead(read_fields(path, delimiter_of(path), places)):
        if not np.all(fields.lengths[: len(NAMED)]):
            raise NotPlainError  # an empty region, customer or item
        at = {meaning: n for n, meaning in enumerate(found)}
        texts = {meaning: (fields.words, fields.starts[n], fields.lengths[n]) for meaning, n in at.items()}
        region = regions.numbers(*texts["region"])
        customer = customers.numbers(*texts["customer"], region)
        nothing = np.zeros(len(customer), np.uint8)
        try:
            rows.add(
                customer,
                items.numbers(*texts["item"]),
                moments.of(fields, at["time"]) // DAY if "time" in at else nothing,
                stages.of(*texts["stage"]) if "stage" in at else nothing,
                quantities.of(*texts["quantity"]) if "quantity" in at else nothing,
            )
        except ValueError as error:
            raise NotPlainError from error
        report(fields.position, rows.count)
    used = [np.zeros(texts.count, dtype=np.bool_) for texts in (customers, items)]
    for part in rows.parts():
        for column, numbers in zip(used, (part.customers, part.items), strict=True):
            column[numbers] = True
    used_customers, used_items = (np.flatnonzero(column).astype(np.int32) for column in used)
    names, groups = customers.texts(used_customers)
    known = np.unique(groups)
    of_group = dict(zip(known.tolist(), regions.texts(known)[0], strict=True))
    owners = list(zip([of_group[group] for group in groups.tolist()], names, strict=True))
    return _rank(rows, "time" in found, used_customers, owners, used_items, items.texts(used_items)[0])


def _rank(
    rows: PurchaseRows,
    timed: bool,
    customer_numbers: NDArray[Any],
    customers: Sequence[tuple[str, str]],
    item_numbers: NDArray[Any],
    items: Sequence[str],
) -> Purchases:
    """Return purchases with customers, as (region, name), and items in order."""
    order = sorted(range(len(customers)), key=customers.__getitem__)
    regions = [customers[n][0] for n in order]
    names = tuple(dict.fromkeys(regions))
    counts = dict.fromkeys(names, 0)
    for region in regions:
        counts[region] += 1
    item_order = sorted(range(len(items)), key=items.__getitem__)
    return Purchases(
        names,
        [customers[n][1] for n in order],
        np.concatenate(([0], np.cumsum(list(counts.values()), dtype=np.int64))),
        [items[n] for n in item_order],
        _ranks(customer_numbers[order]),
        _ranks(item_numbers[item_order]),
        rows,
        timed,
    )


def _ranks(numbers: NDArray[Any]) -> Ints:
    """Return at each of `numbers` its place among them."""
    ranks = np.zeros(int(numbers.max(initial=0)) + 1, dtype=np.int32)
    ranks[numbers] = np.arange(len(numbers), dtype=np.int32)
    return ranks
