"""Some of a table: of a text file its begin and pieces from all over it, of others their first rows."""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nnlib.errors import DataError
from nnlib.importing.purchase_lines import UNREADABLE, explain_unreadable
from nnlib.importing.sniffing.text_form import Guess, check_header, guess_encoding, guess_separator, split_rows
from nnlib.importing.table_source import GZIP, ZSTD, Reading, Source
from nnlib.util.tables import Tables, quote, quote_name

BEGIN = 4 << 20  # bytes
PIECE, PIECES = 256 << 10, 24
ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of a table as texts."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    kinds: tuple[str, ...]  # types in SQL, by column
    whole: bool  # whether these are all rows
    encoding: Guess
    separator: Guess


@contextmanager
def telling(file: Path) -> Iterator[None]:
    """Let what is wrong with a file name it."""
    try:
        yield
    except UNREADABLE as error:
        raise DataError(f"{file}: cannot be read: {explain_unreadable(error)}") from error
    except DataError as error:
        text = str(error)
        if not text.startswith(str(file)):
            place = re.match(r"line (\d+): ", text)
            text = f"{file}:{place[1]}: {text[place.end() :]}" if place else f"{file}: {text}"
        error.args = (text,)
        raise


def check_regular(files: Sequence[Path]) -> None:
    """Raise DataError for a pipe or a device, as a table is read more than once."""
    for file in files:
        if not stat.S_ISREG(file.stat().st_mode):
            raise DataError(f"{file}: is no regular file, and a table is read more than once; first: cat ... > FILE")


def sample_text(file: Path, source: Source, tables: Tables, encoding: str) -> Sample:
    """Return a sample of a text file; the encoding is guessed where it is empty, the separator likewise."""
    with telling(file):
        begin, pieces, whole = _read(file, tables)
        found = Guess(encoding, "named by you") if encoding else guess_encoding(begin, whole)
        for piece in pieces if found.value == "utf-8" else ():
            some = Guess(encoding, "") if encoding else guess_encoding(_cut(piece), True)
            found = found if some.value == "utf-8" else some
        text = _decode(begin, found.value, whole).replace("\r\n", "\n").replace("\r", "\n")
        named = source.format.separator
        separator = Guess(named, "named by you") if named else guess_separator(text, whole)
        rows = split_rows(text, separator.value, whole)
        if not rows:
            raise DataError("it is empty; legal: a header and a purchase a line")
        header, *rest = rows
        check_header(header, rest, separator.value)
        wide = len(header)
        torn = next((n for n, row in enumerate(rest) if len(row) != wide), None)
        if torn is not None:
            line = _line_of(text, separator.value, torn + 2)
            raise DataError(f"line {line}: {len(rest[torn])} fields, the header has {wide}; mend or remove that line")
        if found.value in ("utf-8", "cp1252", "latin-1"):
            for piece in pieces:
                rest += _rows_within(_decode(_cut(piece), found.value, True), separator.value, wide)
    kinds = ("VARCHAR",) * wide
    return Sample(tuple(header), tuple(map(tuple, rest)), kinds, whole and len(rest) < ROWS, found, separator)


def sample_parquet(reading: Reading) -> Sample:
    """Return the first rows of a Parquet file."""
    names = [name for name, kind in reading.kinds.items() if not kind.endswith("]") and "(" not in kind.split("L(")[0]]
    texts = ", ".join(f"coalesce({quote_name(name)}::VARCHAR, '')" for name in names)
    rows = reading.tables.run(f"SELECT {texts} FROM {reading.whole} LIMIT {ROWS}")
    kinds = tuple(reading.kinds[name] for name in names)
    return Sample(tuple(names), tuple(rows), kinds, len(rows) < ROWS, Guess("", "Parquet"), Guess("", "Parquet"))


def _read(file: Path, tables: Tables) -> tuple[bytes, list[bytes], bool]:
    """Return the begin of a file, pieces of the rest, and whether the begin is all of it."""
    if file.suffix == ZSTD:
        rows = tables.run(
            f"SELECT line FROM read_csv({quote(str(file.resolve()))}, auto_detect = false, header = false, "
            f"delim = '\x01', quote = '', escape = '', columns = {{'line': 'VARCHAR'}}) LIMIT {ROWS}"
        )
        return "".join(f"{line or ''}\n" for (line,) in rows).encode(), [], len(rows) < ROWS
    if file.suffix == GZIP:
        with gzip.open(file, "rb") as packed:
            try:
                data = packed.read(BEGIN + 1)
            except zlib.error as error:
                raise EOFError(str(error)) from error
        return data[:BEGIN], [], len(data) <= BEGIN
    size = file.stat().st_size
    with file.open("rb") as plain:
        data, pieces = plain.read(BEGIN), []
        for n in range(PIECES if size > BEGIN else 0):
            plain.seek(BEGIN + (size - BEGIN) * n // PIECES)
            pieces.append(plain.read(min(PIECE, (size - BEGIN) // PIECES)))
    return data, pieces, size <= BEGIN


def _cut(piece: bytes) -> bytes:
    """Return the whole lines of a piece."""
    begin, end = piece.find(b"\n") + 1, piece.rfind(b"\n") + 1
    return piece[begin:end]


def _decode(data: bytes, encoding: str, whole: bool) -> str:
    name = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
    return codecs.getincrementaldecoder(name)().decode(data, final=whole)


def _rows_within(text: str, separator: str, wide: int) -> list[list[str]]:
    """Return the rows of a piece that may begin within a quoted field."""
    rows: list[list[str]] = []
    try:
        rows.extend(row for row in csv.reader(text.splitlines(), delimiter=separator) if len(row) == wide)
    except csv.Error:
        pass
    return rows[: ROWS // PIECES]


def _line_of(text: str, separator: str, row: int) -> int:
    """Return the line on which a row ends; the header is row 1."""
    reader = csv.reader(text.splitlines(keepends=True), delimiter=separator)
    seen = 0
    for fields in reader:
        seen += bool(fields)
        if seen == row:
            break
    return reader.line_num
