"""Rows of a database become a file of text, which is then read as any table is; and what tells them from others."""

from __future__ import annotations

import csv
import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from nnlib.errors import DataError
from nnlib.util.terminal import show_reading
from regiondag.study.database import Database
from regiondag.util.databases import open_rows
from regiondag.util.secrets import NoSecretError, read_secret

ROWS_FILE = "rows-of-the-database.csv"
DIGEST = 32  # bytes
Choose = Callable[[tuple[str, ...]], Sequence[str]]  # the columns to read, of those that there are


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came of a database."""

    file: Path  # .csv in UTF-8; gone after the block
    rows: int
    digest: str  # equal for the same rows and columns in any order


@contextmanager
def fetch(database: Database, beside: Path, choose: Choose = tuple) -> Iterator[Fetched]:
    """Read a database into a file that is there while the block runs, in a folder beside the path `beside`.

    DataError for all that goes wrong, also in the block, speaks of the database and not of the file.
    """
    folder = beside.absolute().with_name(f".{beside.absolute().name}.rows")
    shutil.rmtree(folder, ignore_errors=True)  # what a killed process left
    try:
        folder.mkdir(parents=True)
        file = folder / ROWS_FILE
        with _speaking_of(database, file):
            yield _fetch(database, file, choose)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fetch(database: Database, file: Path, choose: Choose) -> Fetched:
    try:
        password = read_secret(database.password) if database.password else ""
    except NoSecretError as error:
        raise DataError(f"{file}: the password: {error}") from error
    try:
        with (
            open_rows(database.url, table=database.table, query=database.query, password=password) as rows,
            show_reading(0, "rows") as report,
        ):
            wanted = choose(rows.header)
            return write_rows(file, wanted, rows.read(wanted), report)
    except DataError as error:
        if str(file) in str(error):
            raise
        raise DataError(f"{file}: {error}") from None


def write_rows(
    file: Path,
    header: Sequence[str],
    blocks: Iterator[Sequence[Sequence[Any]]],
    report: Callable[[int, int], None] = lambda _position, _rows: None,
) -> Fetched:
    """Write rows as CSV. Their digest is the sum of the rows' own, so that it knows no order."""
    rows, total = 0, _number_of(repr(list(header)))
    with file.open("w", encoding="utf-8", errors="replace", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(header)
        lines: list[str] = []
        writer = csv.writer(_Lines(lines), lineterminator="\n")
        for block in blocks:
            for row in block:
                writer.writerow([show_value(value) for value in row])
            out.writelines(lines)
            total += sum(map(_number_of, lines))
            rows += len(lines)
            lines.clear()
            report(0, rows)
    return Fetched(file, rows, f"{total % (1 << 8 * DIGEST):0{2 * DIGEST}x}")


class _Lines:
    """What a writer of CSV takes for a file: each row is one item of a list."""

    def __init__(self, lines: list[str]) -> None:
        self.write = lines.append


def _number_of(line: str) -> int:
    return int.from_bytes(hashlib.blake2b(line.encode("utf-8", "replace"), digest_size=DIGEST).digest())


def show_value(value: Any) -> str:
    """Return a value as a table of text has it: times in UTC, whole numbers without a point, nothing as no text.

    >>> show_value(17850.0), show_value(None), show_value(date(2026, 1, 31))
    ('17850', '', '2026-01-31')
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, datetime):
        return (value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value).isoformat(" ", "seconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() else repr(value)
    if isinstance(value, Decimal):
        return f"{value:.0f}" if value == value.to_integral_value() else f"{value:f}"
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    return str(value)


@contextmanager
def _speaking_of(database: Database, file: Path) -> Iterator[None]:
    """Let what is wrong name the database in the place of a file that nobody knows."""

    def rename(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return value.replace(str(file), database.name).replace(file.name, database.name)

    try:
        yield
    except DataError as error:
        error.args = tuple(map(rename, error.args))
        if hasattr(error, "question"):  # what is asked on a terminal
            error.question = rename(error.question)
        raise
