"""A table of purchases, read as numbers: customers by region and name, items by name, and the day of each purchase.

DuckDB reads it, and finds the numbers. A text file that it cannot read is read line by line, which tells what is wrong
with it and where, or reads it after all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnlib.data.rows import Floats, Ints
from nnlib.errors import DataError
from nnlib.importing.purchase_lines import UNREADABLE, Columns, Purchase, Report, read_purchases
from nnlib.importing.purchase_query import PurchaseQuery, WrongValueError
from nnlib.importing.splits import Stages
from nnlib.importing.table_source import Reading, find_source
from nnlib.util.arrays import Longs
from nnlib.util.tables import TableError, Tables

TOGETHER = 1 << 17  # purchases that are looked at together
FETCHED = 1 << 21  # and that are taken from DuckDB at a time


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

    @property
    def has_stages(self) -> bool:
        """Whether the table says the stages."""
        return self._columns[3] is not None

    def renumber(self, customers: Ints, items: Ints) -> None:
        """Give customers and items other numbers: that of n is `customers[n]`, or `items[n]`."""
        for column, numbers in zip(self._columns, (customers, items), strict=False):
            for start in range(0, self.count, TOGETHER):
                some = slice(start, min(start + TOGETHER, self.count))
                column[some] = numbers[column[some]]

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
    """All purchases. Their customers and items are numbers: of customers by region and name, of items by name."""

    regions: tuple[str, ...]  # in the order of their texts, as are customers of a region, and items
    customers: Sequence[str]
    first: Longs  # (regions + 1,): the first customer of each region
    items: Sequence[str]
    rows: PurchaseRows
    timed: bool  # else all days are 0
    descriptions: Sequence[str] = ()  # of the items, the one that most of their purchases have; empty: none is known
    left_out: Mapping[str, int] = field(default_factory=dict)  # purchases without a region, customer, item or time


def load(path: Path, columns: Columns, scratch: Path, report: Report = lambda _position, _rows: None) -> Purchases:
    """Read a table; DataError names the first thing that is wrong, of a text file with its line.

    `scratch` is an empty folder, for what does not fit into memory.
    """
    source = find_source(path, columns.format)
    with closing(Tables(scratch)) as tables:
        try:
            reading = Reading(source, tables, scratch)
            try:
                return _load(reading, columns, report)
            except TableError as error:
                raise WrongValueError(f"{path}: {reading.explain(error)}") from error
        except (WrongValueError, *UNREADABLE) as error:
            if not source.has_lines:
                raise DataError(str(error)) from error
    left_out: Counter[str] = Counter()
    lines = chain.from_iterable(read_purchases(file, columns, left_out, report) for file in source.files)
    return gather_purchases(lines, left_out)


def gather_purchases(lines: Iterable[Purchase], left_out: Mapping[str, int] | None = None) -> Purchases:
    """Return the purchases of lines as `read_purchases` gives them."""
    customers: dict[tuple[str, str], int] = {}
    items: dict[str, int] = {}
    told: dict[str, Counter[str]] = {}
    rest = iter(lines)
    some = list(islice(rest, TOGETHER))
    first = some[0] if some else Purchase("", "", "")
    rows = PurchaseRows(first.stage is not None, first.quantity is not None)
    while some:
        numbers = [customers.setdefault((line.region, line.customer), len(customers)) for line in some]
        wanted = [items.setdefault(line.item, len(items)) for line in some]
        days, stages, quantities = ([line[n] or 0 for line in some] for n in (3, 4, 5))
        rows.add(*(np.array(column) for column in (numbers, wanted, days, stages, quantities)))
        for line in some:
            if line.description:
                told.setdefault(line.item, Counter())[line.description] += 1
        some = list(islice(rest, TOGETHER))
    rows.renumber(_ranks(list(customers)), _ranks(list(items)))
    names = sorted(items)
    most = {item: min(counts, key=lambda text: (-counts[text], text)) for item, counts in told.items()}
    descriptions = [most.get(name, "") for name in names] if told else ()
    return _name(sorted(customers), names, rows, first.day is not None, descriptions, dict(left_out or {}))


def _ranks(texts: Sequence[Any]) -> Ints:
    """Return the place of each text among all in order."""
    ranks = np.zeros(len(texts), dtype=np.int32)
    ranks[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts), dtype=np.int32)
    return ranks


def _name(
    customers: Sequence[tuple[str, str]],
    items: Sequence[str],
    rows: PurchaseRows,
    timed: bool,
    descriptions: Sequence[str],
    left_out: Mapping[str, int],
) -> Purchases:
    """Return purchases whose customers, as (region, name), and items are in order."""
    counts = Counter(region for region, _ in customers)
    first = np.concatenate(([0], np.cumsum(list(counts.values()), dtype=np.int64)))
    names = [name for _, name in customers]
    return Purchases(tuple(counts), names, first, items, rows, timed, descriptions, left_out)


# --- by DuckDB ---------------------------------------------------------------------------------------------


def _load(reading: Reading, columns: Columns, report: Report) -> Purchases:
    tables, half = reading.tables, reading.source.size / 2
    query = PurchaseQuery(reading, columns)
    with tables.watched(lambda share: report(int(share * half), 0)):
        query.count()
    counted = query.counted()
    if counted.wrong:
        raise WrongValueError(query.find_wrong() if not reading.source.has_lines else "")
    with tables.watched(lambda share: report(int((1 + share) * half), counted.rows)):
        query.number()
    rows = PurchaseRows("stage" in query.wanted, "quantity" in query.wanted)
    [(count,)] = tables.run("SELECT count(*) FROM numbered")
    for start in range(0, count, FETCHED):
        block = tables.columns(f"SELECT * FROM numbered WHERE rowid BETWEEN {start} AND {start + FETCHED - 1}")
        stages = block[3] if rows.has_stages else np.zeros(len(block[0]), np.uint8)
        rows.add(*block[:3], stages, *block[-1:] * rows.has_quantities)
    people = tables.run("SELECT region, customer FROM customers ORDER BY number")
    items = [item for (item,) in tables.run("SELECT item FROM items ORDER BY number")]
    told = query.describe_items() if "description" in query.wanted else ()
    return _name([(region, name) for region, name in people], items, rows, query.timed, told, counted.left_out)
