"""A table of purchases, read as numbers: customers by region and name, items by name, and when each purchase was.

Plain tables are read in blocks. Any other is read line by line, which tells what is wrong with it and where.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.data.rows import Ints
from nnlib.errors import DataError
from nnlib.importing.csv_blocks import NotPlainError, read_ahead, read_fields
from nnlib.importing.string_ids import StringIds
from nnlib.importing.timestamps import DAY, SECOND, Moments, parse_timestamp
from nnlib.spec.json_section import nearest
from nnlib.util.arrays import Longs

DELIMITERS = {".csv": ",", ".tsv": "\t"}
GZIPPED = b"\x1f\x8b"
UNREADABLE = (csv.Error, UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error)
OPTIONS = ("--region-column", "--customer-column", "--item-column", "--time-column")
TOGETHER = 1 << 17  # purchases that are looked at together
FINER = {DAY: SECOND, SECOND: 1}  # units of time, in microseconds

Times = NDArray[np.int32] | Longs
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


class PurchaseRows:
    """Purchases in the order of the table, as numbers; their times count `unit` microseconds."""

    def __init__(self) -> None:
        self.count = 0
        self.unit = DAY  # until a time needs a smaller one
        self._customers: Ints = np.empty(0, dtype=np.int32)
        self._items: Ints = np.empty(0, dtype=np.int32)
        self._times: Times = np.empty(0, dtype=np.int32)

    def add(self, customers: Ints, items: Ints, moments: Longs) -> None:
        """Add purchases; moments are in microseconds."""
        start, self.count = self.count, self.count + len(customers)
        self._refine(moments)
        if self.count > len(self._customers):
            self._resize(self.count + self.count // 8 + TOGETHER)
        self._customers[start : self.count] = customers
        self._items[start : self.count] = items
        self._times[start : self.count] = moments // self.unit

    def parts(self, use_up: bool = False) -> Iterator[tuple[Ints, Ints, Times]]:
        """Yield customers, items and times of some purchases after others; those that are used up take no memory."""
        for start in reversed(range(0, self.count, TOGETHER)):
            some = slice(start, min(start + TOGETHER, self.count))
            part = self._customers[some].copy(), self._items[some].copy(), self._times[some].copy()
            if use_up:
                self._resize(start)
            yield part

    def _resize(self, size: int) -> None:
        for column in (self._customers, self._items, self._times):
            column.resize(size, refcheck=False)  # in place where the system can: never two of them

    def _refine(self, moments: Longs) -> None:
        """Take a smaller unit when these times need it."""
        unit = self.unit
        while unit > 1 and not (_is_short(moments // unit) and not np.any(moments % unit)):
            unit = FINER[unit]
        if unit == self.unit:
            return
        times = self._times.astype(np.int64) * (self.unit // unit)
        if unit > 1 and not _is_short(times):
            times, unit = times * unit, 1
        self.unit, self._times = unit, times if unit == 1 else times.astype(np.int32)


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


def load(path: Path, columns: Columns, report: Report = lambda _position, _rows: None) -> Purchases:
    """Read a table; DataError names file and line of the first thing that is wrong."""
    try:
        return _load_blocks(path, columns, report)
    except NotPlainError:
        return gather_purchases(read_purchases(path, columns, report))


def read_purchases(
    path: Path, columns: Columns, report: Report = lambda _position, _rows: None
) -> Iterator[tuple[str, str, str, int]]:
    """Yield (region, customer, item, microseconds since 1970) of every line; DataError names file and line.

    The table is CSV (.csv) or TSV (.tsv), also gzipped (.gz), UTF-8, with a header. Times are ISO 8601.
    """
    line = 0
    try:
        with open_table(path) as file:
            rows = csv.reader(file, delimiter=_delimiter(path), strict=True)
            header = next(rows, [])
            line = rows.line_num
            places = _places(columns.names, header, path)
            moments: dict[str, int] = {}  # few of the many dates differ
            for row in rows:
                line = rows.line_num
                if not row:
                    continue
                if len(row) != len(header):
                    raise DataError(f"{path}:{line}: {len(row)} fields, the header has {len(header)}")
                region, customer, item, time = (row[place] for place in places)
                if not (region and customer and item):
                    raise DataError(f"{path}:{line}: empty {', '.join(columns.names[:3])} in {row!r}")
                if time not in moments:
                    moments[time] = _moment(time, path, line, columns.time)
                if not line % 100_000:
                    report(0, line)
                yield region, customer, item, moments[time]
    except UNREADABLE as error:
        raise DataError(
            f"{path}:{line + 1 + count_lines_read(error)}: cannot be read: {explain_unreadable(error)}"
        ) from error


def gather_purchases(rows: Iterable[tuple[str, str, str, int]]) -> Purchases:
    """Return the purchases of lines as `read_purchases` gives them."""
    customers: dict[tuple[str, str], int] = {}
    items: dict[str, int] = {}
    found, rest = PurchaseRows(), iter(rows)
    while some := list(islice(rest, TOGETHER)):
        numbers = [customers.setdefault((row[0], row[1]), len(customers)) for row in some]
        wanted = [items.setdefault(row[2], len(items)) for row in some]
        moments = np.array([row[3] for row in some], dtype=np.int64)
        found.add(np.array(numbers, dtype=np.int32), np.array(wanted, dtype=np.int32), moments)
    return _rank(found, np.arange(len(customers)), list(customers), np.arange(len(items)), list(items))


def open_table(path: Path) -> io.TextIOBase:
    """Open a UTF-8 table, gzipped or not; reading it may raise any of UNREADABLE."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def explain_unreadable(error: Exception) -> str:
    """Say what is wrong with a table of which reading raised one of UNREADABLE, and what to do."""
    if isinstance(error, UnicodeDecodeError):
        if error.object[:2] == GZIPPED:
            return "it is gzipped; give it a name that ends in .gz"
        if 0 in error.object[: error.start + 1024]:
            return "it is no text; export it as CSV"
        byte = error.object[error.start]
        return f"byte {byte:#04x} is not UTF-8; save it as UTF-8, or: iconv -f ISO-8859-1 -t UTF-8 FILE > NEW"
    if isinstance(error, gzip.BadGzipFile) and "Not a gzipped file" in str(error):
        return "it is not gzipped; give it a name without .gz"
    if isinstance(error, EOFError | gzip.BadGzipFile | zlib.error):
        return "it is gzipped and ends too early, or is damaged; copy or make it again"
    return f"{error}; legal: CSV with quotes as in RFC 4180"


def count_lines_read(error: Exception) -> int:
    """Return how many whole lines stand before a byte that is not UTF-8, in what was read with it at once."""
    return error.object[: error.start].count(b"\n") if isinstance(error, UnicodeDecodeError) else 0


def _load_blocks(path: Path, columns: Columns, report: Report) -> Purchases:
    regions, customers, items, moments, rows = StringIds(), StringIds(), StringIds(), Moments(), PurchaseRows()
    read = read_fields(path, _delimiter(path), lambda header: _places(columns.names, header, path))
    for fields in read_ahead(read):
        if not np.all(fields.lengths[:3]):
            raise NotPlainError  # an empty region, customer or item
        words, starts, lengths = fields.words, fields.starts, fields.lengths
        region = regions.numbers(words, starts[0], lengths[0])
        customer = customers.numbers(words, starts[1], lengths[1], region)
        rows.add(customer, items.numbers(words, starts[2], lengths[2]), moments.of(fields, 3))
        report(fields.position, rows.count)
    used = [np.zeros(texts.count, dtype=np.bool_) for texts in (customers, items)]
    for part in rows.parts():
        for column, numbers in zip(used, part, strict=False):
            column[numbers] = True
    used_customers, used_items = (np.flatnonzero(column).astype(np.int32) for column in used)
    names, groups = customers.texts(used_customers)
    known = np.unique(groups)
    of_group = dict(zip(known.tolist(), regions.texts(known)[0], strict=True))
    owners = list(zip([of_group[group] for group in groups.tolist()], names, strict=True))
    return _rank(rows, used_customers, owners, used_items, items.texts(used_items)[0])


def _rank(
    rows: PurchaseRows,
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
    )


def _ranks(numbers: NDArray[Any]) -> Ints:
    """Return at each of `numbers` its place among them."""
    ranks = np.zeros(int(numbers.max(initial=0)) + 1, dtype=np.int32)
    ranks[numbers] = np.arange(len(numbers), dtype=np.int32)
    return ranks


def _is_short(values: Longs) -> bool:
    """Whether 32 bits hold them all."""
    return bool(np.all((values >= -(2**31)) & (values < 2**31)))


def _places(names: Sequence[str], header: Sequence[str], path: Path) -> list[int]:
    """Return where each of the columns is; DataError for all that are missing."""
    if not any(header):
        raise DataError(f"{path}:1: no header; legal: a first line such as {_delimiter(path).join(names)}")
    problems = [
        f"{path}:1: no column {name!r}, there are: {', '.join(header) or 'none'}; "
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
        return parse_timestamp(time)
    except ValueError:
        raise DataError(f"{path}:{line}: {column}: {time!r} is not legal, legal: ISO 8601 (2011-12-09)") from None


def _delimiter(path: Path) -> str:
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix.lower() not in DELIMITERS:
        raise DataError(f"{path}: the name's ending is not legal, legal: .csv, .tsv, .csv.gz, .tsv.gz")
    return DELIMITERS[suffix.lower()]
