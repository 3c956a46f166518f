"""A table of purchases, read as numbers: customers by region and name, items by name, and when each purchase was.

Plain tables are read in blocks. Any other is read line by line, which tells what is wrong with it and where.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.checker import nearest
from nnlib.data import Ints, Longs
from nnlib.errors import DataError
from nnlib.moments import DAY, SECOND, Moments, microseconds
from nnlib.table import NotPlainError, read_fields
from nnlib.texts import Texts

DELIMITERS = {".csv": ",", ".tsv": "\t"}
UNREADABLE = (csv.Error, UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error)
OPTIONS = ("--region-column", "--customer-column", "--item-column", "--time-column")
TOGETHER = 1 << 20  # purchases that are kept in one piece

Report = Callable[[int, int], None]  # bytes of the file that were read so far, rows so far


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column of the table means what."""

    region: str = "region"
    customer: str = "customer"
    item: str = "item"
    time: str = "date"

    @property
    def names(self) -> tuple[str, str, str, str]:
        """The four names, in the order of OPTIONS."""
        return self.region, self.customer, self.item, self.time


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Some purchases; `unit` is how many microseconds a time counts."""

    customers: Ints
    items: Ints
    times: NDArray[np.int32] | Longs
    unit: int


@dataclass(slots=True, eq=False)
class Pieces:
    """Purchases in the order of the table, in the least room."""

    full: list[Piece] = field(default_factory=list)
    rows: int = 0
    _open: list[tuple[Ints, Ints, Longs]] = field(default_factory=list)
    _size: int = 0

    def add(self, customers: Ints, items: Ints, times: Longs) -> None:
        """Add purchases; times in microseconds."""
        self._open.append((customers, items, times))
        self._size += len(customers)
        self.rows += len(customers)
        if self._size >= TOGETHER:
            self.close()

    def close(self) -> None:
        """Put what was added last into a piece of its own."""
        if self._size:
            customers, items, times = (np.concatenate(column) for column in zip(*self._open, strict=True))
            self.full.append(Piece(customers, items, *_shortened(times)))
        self._open, self._size = [], 0


@dataclass(frozen=True, slots=True, eq=False)
class Purchases:
    """All purchases. Ranks are by number in the pieces: of customers by region and name, of items by name."""

    regions: tuple[str, ...]  # in the order of their texts, as are customers of a region, and items
    customers: Sequence[str]
    first: Longs  # (regions + 1,): the first customer of each region
    items: Sequence[str]
    customer_rank: Ints
    item_rank: Ints
    pieces: list[Piece]


def load(path: Path, columns: Columns, report: Report = lambda _position, _rows: None) -> Purchases:
    """Read a table; DataError names file and line of the first thing that is wrong."""
    try:
        return _load_blocks(path, columns, report)
    except NotPlainError:
        return gathered(read_purchases(path, columns, report))


def read_purchases(
    path: Path, columns: Columns, report: Report = lambda _position, _rows: None
) -> Iterator[tuple[str, str, str, int]]:
    """Yield (region, customer, item, microseconds since 1970) of every line; DataError names file and line.

    The table is CSV (.csv) or TSV (.tsv), also gzipped (.gz), UTF-8, with a header. Times are ISO 8601.
    """
    line = 1
    try:
        with opened(path) as file:
            rows = csv.reader(file, delimiter=_delimiter(path), strict=True)
            header = next(rows, [])
            places = _places(columns.names, header, path)
            moments: dict[str, int] = {}  # few of the many dates differ
            for row in rows:
                line = rows.line_num
                if not row:
                    continue
                if len(row) != len(header):
                    raise DataError(f"{path.name}:{line}: {len(row)} fields, the header has {len(header)}")
                region, customer, item, time = (row[place] for place in places)
                if not (region and customer and item):
                    raise DataError(f"{path.name}:{line}: empty {', '.join(columns.names[:3])} in {row!r}")
                if time not in moments:
                    moments[time] = _moment(time, path, line, columns.time)
                if not line % 100_000:
                    report(0, line)
                yield region, customer, item, moments[time]
    except UNREADABLE as error:
        raise DataError(f"{path.name}:{line + 1}: cannot be read: {error}") from error


def gathered(rows: Iterable[tuple[str, str, str, int]]) -> Purchases:
    """Return the purchases of lines as `read_purchases` gives them."""
    customers: dict[tuple[str, str], int] = {}
    items: dict[str, int] = {}
    pieces, rest = Pieces(), iter(rows)
    while some := list(islice(rest, TOGETHER // 8)):
        numbers = array("i", (customers.setdefault((row[0], row[1]), len(customers)) for row in some))
        wanted = array("i", (items.setdefault(row[2], len(items)) for row in some))
        times = np.array([row[3] for row in some], dtype=np.int64)
        pieces.add(np.array(numbers, dtype=np.int32), np.array(wanted, dtype=np.int32), times)
    return _ranked(pieces, np.arange(len(customers)), list(customers), np.arange(len(items)), list(items))


def opened(path: Path) -> io.TextIOBase:
    """Open a UTF-8 table, gzipped or not; reading it may raise any of UNREADABLE."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _load_blocks(path: Path, columns: Columns, report: Report) -> Purchases:
    regions, customers, items, moments, pieces = Texts(), Texts(), Texts(), Moments(), Pieces()
    for fields in read_fields(path, _delimiter(path), lambda header: _places(columns.names, header, path)):
        if not np.all(fields.lengths[:3]):
            raise NotPlainError  # an empty region, customer or item
        words, starts, lengths = fields.words, fields.starts, fields.lengths
        region = regions.numbers(words, starts[0], lengths[0])
        customer = customers.numbers(words, starts[1], lengths[1], region)
        pieces.add(customer, items.numbers(words, starts[2], lengths[2]), moments.of(fields, 3))
        report(fields.position, pieces.rows)
    pieces.close()
    used_customers = _used(customers.count, (piece.customers for piece in pieces.full))
    used_items = _used(items.count, (piece.items for piece in pieces.full))
    names, groups = customers.texts(used_customers)
    known = np.unique(groups)
    of_group = dict(zip(known.tolist(), regions.texts(known)[0], strict=True))
    owners = list(zip([of_group[group] for group in groups.tolist()], names, strict=True))
    return _ranked(pieces, used_customers, owners, used_items, items.texts(used_items)[0])


def _used(count: int, columns: Iterable[Ints]) -> Ints:
    """Return which of the numbers below `count` there are."""
    used = np.zeros(count, dtype=np.bool_)
    for numbers in columns:
        used[numbers] = True
    return np.flatnonzero(used).astype(np.int32)


def _ranked(
    pieces: Pieces,
    customer_numbers: NDArray[Any],
    customers: Sequence[tuple[str, str]],
    item_numbers: NDArray[Any],
    items: Sequence[str],
) -> Purchases:
    """Return purchases with customers, as (region, name), and items in order."""
    pieces.close()
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
        pieces.full,
    )


def _ranks(numbers: NDArray[Any]) -> Ints:
    """Return at each of `numbers` its place among them."""
    ranks = np.zeros(int(numbers.max(initial=0)) + 1, dtype=np.int32)
    ranks[numbers] = np.arange(len(numbers), dtype=np.int32)
    return ranks


def _shortened(times: Longs) -> tuple[NDArray[np.int32] | Longs, int]:
    """Return times in the largest unit that divides all, and that unit in microseconds."""
    for unit in (DAY, SECOND):
        whole = times // unit
        if np.array_equal(whole * unit, times) and whole.min() >= -(2**31) and whole.max() < 2**31:
            return whole.astype(np.int32), unit
    return times, 1


def _places(names: Sequence[str], header: Sequence[str], path: Path) -> list[int]:
    """Return where each of the columns is; DataError for all that are missing."""
    problems = [
        f"{path.name}:1: no column {name!r}, there are: {', '.join(header) or 'none'}; "
        f"name the right one with {option}{nearest(name, header)}"
        for name, option in zip(names, OPTIONS, strict=True)
        if name not in header
    ]
    if problems:
        raise DataError("\n".join(problems))
    return [header.index(name) for name in names]


def _moment(time: str, path: Path, line: int, column: str) -> int:
    """Return an ISO 8601 date or time in microseconds since 1970; without a zone it is taken for UTC."""
    try:
        return microseconds(time)
    except ValueError:
        raise DataError(f"{path.name}:{line}: {column}: {time!r} is not legal, legal: ISO 8601 (2011-12-09)") from None


def _delimiter(path: Path) -> str:
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix.lower() not in DELIMITERS:
        raise DataError(f"{path.name}: the name's ending is not legal, legal: .csv, .tsv, .csv.gz, .tsv.gz")
    return DELIMITERS[suffix.lower()]
