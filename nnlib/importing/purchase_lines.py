"""The lines of a table of purchases, read one by one with Python's csv module, which tells what is wrong and where."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nnlib.errors import DataError
from nnlib.importing.splits import STAGES
from nnlib.importing.timestamps import DAY, parse_timestamp
from nnlib.spec.json_section import nearest

DELIMITERS = {".csv": ",", ".tsv": "\t"}
GZIPPED = b"\x1f\x8b"
UNREADABLE = (csv.Error, UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error)
LARGEST = float(np.finfo(np.float32).max)
NAMED = ("region", "customer", "item")  # columns of names

Report = Callable[[int, int], None]  # bytes of the file that were read so far, rows so far


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column of the table means what; of those that are empty there is none."""

    region: str = "region"
    customer: str = "customer"
    item: str = "item"
    time: str = "date"
    stage: str = ""  # holds train, valid or test
    quantity: str = ""
    time_needed: bool = True  # else there is no time where the table has no such column

    def find(self, header: Sequence[str], path: Path) -> dict[str, int]:
        """Return where each column is, by what it means; DataError for all that are missing."""
        if not any(header):
            legal = delimiter_of(path).join((self.region, self.customer, self.item, self.time))
            raise DataError(f"{path}:1: no header; legal: a first line such as {legal}")
        wanted = {meaning: getattr(self, meaning) for meaning in OPTIONS if getattr(self, meaning)}
        if not self.time_needed and self.time not in header:
            del wanted["time"]
        problems = [
            f"{path}:1: no column {name!r}, there are: {', '.join(header) or 'none'}; "
            f"name the right one with {OPTIONS[meaning]}{nearest(name, header)}"
            for meaning, name in wanted.items()
            if name not in header
        ]
        if problems:
            raise DataError("\n".join(problems))
        return {meaning: header.index(name) for meaning, name in wanted.items()}


OPTIONS = {
    "region": "--region-column",
    "customer": "--customer-column",
    "item": "--item-column",
    "time": "--time-column, or without times take --split random or --split column=NAME",
    "stage": "--split column=NAME",
    "quantity": "--quantity-column",
}


class Purchase(NamedTuple):
    """One line of a table."""

    region: str
    customer: str
    item: str
    day: int | None = None  # since 1970-01-01, UTC; None where the table has no such column, as below
    stage: int | None = None  # one of STAGES
    quantity: float | None = None


def read_purchases(path: Path, columns: Columns, report: Report = lambda _position, _rows: None) -> Iterator[Purchase]:
    """Yield what every line says; DataError names file and line.

    The table is CSV (.csv) or TSV (.tsv), also gzipped (.gz), UTF-8, with a header. Times are ISO 8601,
    or whole seconds or milliseconds since 1970, up to 2030.
    """
    line = 0
    try:
        with open_table(path) as file:
            rows = csv.reader(file, delimiter=delimiter_of(path), strict=True)
            header = next(rows, [])
            line = rows.line_num
            places = columns.find(header, path)
            parsed: dict[tuple[str, str], float] = {}  # few of the many dates differ
            for row in rows:
                line = rows.line_num
                if not row:
                    continue
                if len(row) != len(header):
                    raise DataError(f"{path}:{line}: {len(row)} fields, the header has {len(header)}")
                region, customer, item = (row[places[name]] for name in NAMED)
                if not (region and customer and item):
                    raise DataError(
                        f"{path}:{line}: empty {columns.region}, {columns.customer}, {columns.item} in {row!r}"
                    )
                values = {}
                for meaning, parse in PARSERS.items():
                    if meaning not in places:
                        continue
                    text = row[places[meaning]]
                    if (meaning, text) not in parsed:
                        parsed[meaning, text] = _parse(text, parse, f"{path}:{line}: {getattr(columns, meaning)}")
                    values[parse.into] = parsed[meaning, text]
                if not line % 100_000:
                    report(0, line)
                yield Purchase(region, customer, item, **values)  # type: ignore[arg-type]
    except UNREADABLE as error:
        raise DataError(
            f"{path}:{line + 1 + count_lines_read(error)}: cannot be read: {explain_unreadable(error)}"
        ) from error


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


def day_of_time(text: str) -> int:
    """Return the day of a date or time, since 1970, UTC; without a zone it is taken for UTC."""
    return parse_timestamp(text) // DAY


def stage_of(text: str) -> int:
    """Return the stage of one of STAGES; ValueError for other words."""
    if text not in STAGES:
        raise ValueError(text)
    return STAGES[text]


def quantity_of(text: str) -> float:
    """Return a number that float32 holds; ValueError for another text."""
    value = float(text)
    if not abs(value) <= LARGEST:
        raise ValueError(text)
    return value


class Parser(NamedTuple):
    """How a column's text is read, into which field of Purchase, and what is legal."""

    of: Callable[[str], float]
    into: str
    legal: str


PARSERS = {
    "time": Parser(day_of_time, "day", "ISO 8601 (2011-12-09), or seconds or milliseconds since 1970"),
    "stage": Parser(stage_of, "stage", ", ".join(STAGES)),
    "quantity": Parser(quantity_of, "quantity", "a number"),
}


def _parse(text: str, parser: Parser, where: str) -> float:
    try:
        return parser.of(text)
    except ValueError:
        raise DataError(f"{where}: {text!r} is not legal, legal: {parser.legal}") from None


def delimiter_of(path: Path) -> str:
    """Return what is between the fields of a table of that name; DataError for another ending."""
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix.lower() not in DELIMITERS:
        raise DataError(f"{path}: the name's ending is not legal, legal: .csv, .tsv, .csv.gz, .tsv.gz")
    return DELIMITERS[suffix.lower()]
