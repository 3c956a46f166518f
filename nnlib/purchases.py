"""From a table of purchases to the parts of every region, as the next-items protocol has it.

Of each customer of a region the first date of each distinct item counts; customers with fewer than `min_items` are
dropped. Items are sorted by that date, ties by item code; the first floor(0.8 n) are the history, the rest the test
items; the last floor(0.1 h) of h history items are for validation.
"""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnlib.checker import nearest
from nnlib.contract import slug_of
from nnlib.data import Csr, Data, DataSet, from_rows
from nnlib.errors import DataError

History = Mapping[str, Mapping[str, list[str]]]  # region -> customer -> items, oldest first

DELIMITERS = {".csv": ",", ".tsv": "\t"}
MIN_ITEMS = 10
LEAST_VALIDATED = 13  # of these ten are history, and the last of the ten is for validation
UNREADABLE = (csv.Error, UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error)
OPTIONS = ("--region-column", "--customer-column", "--item-column", "--time-column")
PARTS = ("train", "valid", "final", "test")


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column of the table means what."""

    region: str = "region"
    customer: str = "customer"
    item: str = "item"
    time: str = "date"


@dataclass(frozen=True, slots=True, eq=False)
class RegionParts:
    """The four data files of a region, by the names in PARTS."""

    region: str
    slug: str
    parts: Mapping[str, Data]

    def pairs(self, part: str) -> int:
        """How many (customer, target item) pairs a part has."""
        rows = self.parts[part].sets[1].rows
        assert isinstance(rows, Csr)
        return rows.nonzeros


def read_purchases(path: Path, columns: Columns) -> Iterator[tuple[str, str, str, str]]:
    """Yield (region, customer, item, time) of every line; DataError names file and line of the first bad one.

    The table is CSV (.csv) or TSV (.tsv), also gzipped (.gz), UTF-8, with a header. Times are ISO 8601; they come
    back in one form that sorts as text.
    """
    names = (columns.region, columns.customer, columns.item, columns.time)
    line = 1
    try:
        with opened(path) as file:
            rows = csv.reader(file, delimiter=_delimiter(path), strict=True)
            header = next(rows, [])
            places = _places(names, header, path)
            moments: dict[str, str] = {}  # few of the many dates differ
            for row in rows:
                line = rows.line_num
                if not row:
                    continue
                if len(row) != len(header):
                    raise DataError(f"{path.name}:{line}: {len(row)} fields, the header has {len(header)}")
                region, customer, item, time = (row[place] for place in places)
                if not (region and customer and item):
                    raise DataError(f"{path.name}:{line}: empty {', '.join(names[:3])} in {row!r}")
                if time not in moments:
                    moments[time] = _moment(time, path, line, columns.time)
                yield region, customer, item, moments[time]
    except UNREADABLE as error:
        raise DataError(f"{path.name}:{line + 1}: cannot be read: {error}") from error


def histories(purchases: Iterator[tuple[str, str, str, str]], min_items: int = MIN_ITEMS) -> History:
    """Return each customer's distinct items, oldest first, of customers with at least `min_items`."""
    first: dict[str, dict[str, dict[str, str]]] = {}
    for region, customer, item, time in purchases:
        items = first.setdefault(region, {}).setdefault(customer, {})
        if item not in items or time < items[item]:
            items[item] = time
    return {
        region: {
            customer: sorted(items, key=lambda item: (items[item], item))
            for customer, items in sorted(customers.items())
            if len(items) >= min_items
        }
        for region, customers in sorted(first.items())
    }


def catalogue(history: History) -> tuple[str, ...]:
    """Return all items of all regions, sorted: the units of every region's model."""
    return tuple(sorted({item for region in history.values() for items in region.values() for item in items}))


def split(region: str, customers: Mapping[str, Sequence[str]], items: Sequence[str]) -> RegionParts | None:
    """Return the parts of a region, None when a part would be empty."""
    number = {item: n for n, item in enumerate(items)}
    rows: dict[str, list[tuple[str, list[int], list[int]]]] = {part: [] for part in PARTS}
    for customer, bought in customers.items():
        units = [number[item] for item in bought]
        cut = len(units) * 8 // 10
        past, test = units[:cut], units[cut:]
        kept = len(past) - len(past) // 10
        rows["train"].append((customer, past[:kept], past[:kept]))
        rows["valid"].append((customer, past[:kept], past[kept:]))
        rows["final"].append((customer, past, past))
        rows["test"].append((customer, past, test))
    rows["valid"] = [row for row in rows["valid"] if row[2]]
    if not all(rows.values()):
        return None
    parts = {part: _data(region, rows[part], items) for part in PARTS}
    return RegionParts(region, slug_of(region), parts)


def check_slugs(regions: Sequence[str]) -> None:
    """Raise DataError when two regions would share their files."""
    taken: dict[str, str] = {}
    for region in regions:
        other = taken.setdefault(slug_of(region), region)
        if other != region:
            raise DataError(f"regions {other!r} and {region!r} are both {slug_of(region)!r} as a file name; rename one")


def opened(path: Path) -> io.TextIOBase:
    """Open a UTF-8 table, gzipped or not; reading it may raise any of UNREADABLE."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


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


def _data(region: str, rows: Sequence[tuple[str, list[int], list[int]]], items: Sequence[str]) -> Data:
    sets = (
        DataSet("input", from_rows([sorted(row[1]) for row in rows], len(items)), tuple(items)),
        DataSet("output", from_rows([sorted(row[2]) for row in rows], len(items)), tuple(items)),
    )
    return Data(sets, tuple(row[0] for row in rows), region)


def _moment(time: str, path: Path, line: int, column: str) -> str:
    """Return an ISO 8601 date or time in the one form that sorts as text; without a zone it is taken for UTC."""
    try:
        moment = datetime.datetime.fromisoformat(time)
        moment = moment.replace(tzinfo=moment.tzinfo or datetime.UTC)
        return moment.astimezone(datetime.UTC).isoformat()
    except (ValueError, OverflowError):
        raise DataError(f"{path.name}:{line}: {column}: {time!r} is not legal, legal: ISO 8601 (2011-12-09)") from None


def _delimiter(path: Path) -> str:
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix.lower() not in DELIMITERS:
        raise DataError(f"{path.name}: the name's ending is not legal, legal: .csv, .tsv, .csv.gz, .tsv.gz")
    return DELIMITERS[suffix.lower()]
