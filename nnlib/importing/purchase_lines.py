"""The lines of a table of purchases, read one by one with Python's csv module, which tells what is wrong and where."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nnlib.errors import DataError
from nnlib.importing.splits import STAGES
from nnlib.importing.table_source import TableFormat, open_text, separator_of
from nnlib.importing.timestamps import DAY, parse_timestamp
from nnlib.spec.json_section import nearest

GZIPPED = b"\x1f\x8b"
UNREADABLE = (csv.Error, UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error)
LARGEST = float(np.finfo(np.float32).max)
NEEDED = ("region", "customer", "item", "time")  # a purchase without one of them is left out
ISO = "ISO 8601 (2011-12-09), or seconds or milliseconds since 1970; for others say how they are written: --dates"
# What is legal in a column that is not text alone, and into which field of Purchase it goes.
LEGAL = {
    "time": (ISO, "day"),
    "stage": (", ".join(STAGES), "stage"),
    "quantity": ("a number", "quantity"),
    "amount": ("a number", "amount"),
}

Report = Callable[[int, int], None]  # bytes of the file that were read so far, rows so far


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column of the table means what; of those that are empty there is none. And how its texts are read."""

    region: str = "region"
    customer: str = "customer"
    item: str = "item"
    time: str = "date"
    stage: str = ""  # holds train, valid or test
    quantity: str = ""
    time_needed: bool = True  # else there is no time where the table has no such column
    description: str = ""  # of the item
    one_region: str = ""  # name of the one that all are of, if `region` is empty
    format: TableFormat = field(default_factory=TableFormat)
    amount: str = ""  # a number: where it is 0 or below, the row is a return or was cancelled

    def find(self, header: Sequence[str], path: Path) -> dict[str, int]:
        """Return where each column is, by what it means; DataError for all that are missing."""
        if not any(header):
            legal = ",".join(name for name in (self.region, self.customer, self.item, self.time) if name)
            raise DataError(f"{path}:1: no header; legal: a first line such as {legal}")
        wanted = {meaning: getattr(self, meaning) for meaning in OPTIONS if getattr(self, meaning)}
        if not self.time_needed and self.time not in header:
            wanted.pop("time", None)
        problems = [
            f"{path}:1: no column {name!r}, there are: {', '.join(header) or 'none'}; "
            f"name the right one with {OPTIONS[meaning]}{nearest(name, header)}"
            for meaning, name in wanted.items()
            if name not in header
        ]
        problems += [
            f"{path}:1: {header.count(name)} columns are called {name!r}; give each a name of its own"
            for name in wanted.values()
            if header.count(name) > 1
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
    "description": "--description-column",
    "amount": "--amount-column",
}


class Purchase(NamedTuple):
    """One line of a table."""

    region: str
    customer: str
    item: str
    day: int | None = None  # since 1970-01-01, UTC; None where the table has no such column, as below
    stage: int | None = None  # one of STAGES
    quantity: float | None = None
    description: str = ""


def read_purchases(
    path: Path, columns: Columns, left_out: Counter[str] | None = None, report: Report = lambda _position, _rows: None
) -> Iterator[Purchase]:
    """Yield what every line says of a CSV or TSV file; DataError names file, line and column.

    Lines without a region, customer, item or time are counted in `left_out`, each by the first that it lacks.
    """
    line = 0
    left_out = Counter() if left_out is None else left_out
    try:
        with open_text(path, columns.format) as file:
            rows = csv.reader(file, delimiter=separator_of(path, columns.format), strict=True)
            header = next(rows, [])
            line = rows.line_num
            places = columns.find(header, path)
            needed = [name for name in NEEDED if name in places]
            parsed: dict[tuple[str, str], float] = {}  # few of the many dates differ
            for row in rows:
                line = rows.line_num
                if not row:
                    continue
                if len(row) != len(header):
                    raise DataError(f"{path}:{line}: {len(row)} fields, the header has {len(header)}")
                if missing := next((name for name in needed if not row[places[name]]), None):
                    left_out[missing] += 1
                    continue
                values = {}
                for meaning, (_, into) in LEGAL.items():
                    text = row[places[meaning]] if meaning in places else ""
                    if meaning not in places or (meaning == "amount" and not text):
                        continue
                    if (meaning, text) not in parsed:
                        parsed[meaning, text] = _parse(columns, meaning, text, f"{path}:{line}")
                    values[into] = parsed[meaning, text]
                if not line % 100_000:
                    report(0, line)
                if values.pop("amount", 1) <= 0:
                    left_out["amount"] += 1
                    continue
                region = row[places["region"]] if "region" in places else columns.one_region
                told = row[places["description"]] if "description" in places else ""
                customer, item = row[places["customer"]], row[places["item"]]
                yield Purchase(region, customer, item, **values, description=told)  # type: ignore[arg-type]
    except UNREADABLE as error:
        raise DataError(
            f"{path}:{line + 1 + count_lines_read(error)}: cannot be read: {explain_unreadable(error)}"
        ) from error


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


def stage_of(text: str) -> int:
    """Return the stage of one of STAGES; ValueError for other words."""
    if text not in STAGES:
        raise ValueError(text)
    return STAGES[text]


def quantity_of(text: str, decimal: str = ".") -> float:
    """Return a number that float32 holds; ValueError for another text."""
    value = float(text if decimal == "." else text.replace(".", "").replace(decimal, "."))
    if not abs(value) <= LARGEST:
        raise ValueError(text)
    return value


def describe_left_out(left_out: Mapping[str, int], columns: Columns) -> list[str]:
    """Say of how many purchases what is missing, and that they are left out."""
    return [f"left out: {line}" for line in explain_left_out(left_out, columns)]


def explain_left_out(left_out: Mapping[str, int], columns: Columns) -> list[str]:
    """Say how many rows lack what, or are returns, and why that leaves them out."""
    why = {"customer": "nobody to recommend to", "item": "nothing was bought", "time": "nobody knows when"}
    return [
        f"{count:,} rows whose {columns.amount} is 0 or below: returned or cancelled"
        if name == "amount"
        else f"{count:,} rows without a {getattr(columns, name)}: {why.get(name, 'no region to belong to')}"
        for name, count in left_out.items()
    ]


def explain_value(columns: Columns, meaning: str, text: str) -> str:
    """Say that a value of a column is not legal, and what is."""
    legal = f"{columns.format.dates} (data.format.dates)" if meaning == "time" and columns.format.dates else ""
    return f"{getattr(columns, meaning)}: {text!r} is not legal, legal: {legal or LEGAL[meaning][0]}"


def _parse(columns: Columns, meaning: str, text: str, where: str) -> float:
    try:
        if meaning == "time":
            return parse_timestamp(text, columns.format.dates) // DAY
        return stage_of(text) if meaning == "stage" else quantity_of(text, columns.format.decimal)
    except ValueError:
        raise DataError(f"{where}: {explain_value(columns, meaning, text)}") from None
