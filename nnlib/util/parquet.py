"""Parquet files of plain columns, written as rows come and there as a whole or not at all. NumPy alone.

Workers have no library for it. Columns are texts, or numbers of 32 bits, without missing values and not compressed.
Texts and whole numbers are kept as places in a dictionary of those that there are, in as many bits as these take
(RLE_DICTIONARY), which is about what a compression would make of recommendations. Of the format, which
https://parquet.apache.org/docs/file-format has, this writes data pages of version 1, one a column of each row group,
and no index.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from nnlib.util.files import replacing

MAGIC = b"PAR1"
MOST_ROWS = 1 << 20  # of a row group
# Numbers of the format's enumerations.
INT32, FLOAT, BYTE_ARRAY = 1, 4, 6
PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8
DATA_PAGE, DICTIONARY_PAGE = 0, 2
REQUIRED, UTF8, UNCOMPRESSED = 0, 0, 0
KINDS = {"i4": INT32, "f4": FLOAT}


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """A column of texts: for each row the number of one of them."""

    texts: Sequence[str]
    numbers: NDArray[np.integer]


Column = Chosen | NDArray[Any]  # an array of int32 or float32
# Of a column in a row group: name, type, encodings, where its data and its dictionary begin, bytes.
Chunk = tuple[str, int, list[int], int, int | None, int]


@dataclass(slots=True)
class ParquetWriter:
    """Writes row groups; `close` writes what makes a file of them."""

    file: IO[bytes]
    rows: int = 0
    _schema: dict[str, int] = field(default_factory=dict)  # name -> type
    _groups: list[tuple[int, list[Chunk]]] = field(default_factory=list)
    _at: int = 0

    def add(self, columns: Mapping[str, Column]) -> None:
        """Write some rows; each time the same columns, all of one length."""
        count = _length(next(iter(columns.values())))
        for low in range(0, count, MOST_ROWS):
            self._add_group({name: _slice(column, low, low + MOST_ROWS) for name, column in columns.items()})

    def close(self) -> None:
        """Write the end of the file."""
        footer = _footer(self._schema, self._groups, self.rows)
        self._put(footer + struct.pack("<I", len(footer)) + MAGIC)

    def _add_group(self, columns: Mapping[str, Column]) -> None:
        if not self._at:
            self._put(MAGIC)
        chunks = []
        for name, column in columns.items():
            kind = BYTE_ARRAY if isinstance(column, Chosen) else KINDS[column.dtype.str[1:]]
            if self._schema.setdefault(name, kind) != kind:
                raise ValueError(f"column {name} was of another type before")
            chunks.append(self._add_column(name, kind, column))
        rows = _length(next(iter(columns.values())))
        self._groups.append((rows, chunks))
        self.rows += rows

    def _add_column(self, name: str, kind: int, column: Column) -> Chunk:
        """Write the pages of a column; return what the footer has to say of them."""
        begin, rows = self._at, _length(column)
        if kind == FLOAT:
            assert isinstance(column, np.ndarray), "numbers"
            body = np.ascontiguousarray(column, "<f4").tobytes()
            self._put(_page_header(DATA_PAGE, len(body), rows) + body)
            return name, kind, [PLAIN, RLE], begin, None, self._at - begin
        used, numbers = np.unique(column.numbers if isinstance(column, Chosen) else column, return_inverse=True)
        texts = column.texts if isinstance(column, Chosen) else None
        entries = used.astype("<i4").tobytes() if texts is None else b"".join(_byte_array(texts[n]) for n in used)
        self._put(_page_header(DICTIONARY_PAGE, len(entries), len(used)) + entries)
        first, width = self._at, max(1, int(len(used) - 1).bit_length())
        body = bytes([width]) + _pack_bits(numbers, width)
        self._put(_page_header(DATA_PAGE, len(body), rows, RLE_DICTIONARY) + body)
        return name, kind, [PLAIN, RLE, RLE_DICTIONARY], first, begin, self._at - begin

    def _put(self, content: bytes) -> None:
        self.file.write(content)
        self._at += len(content)


@contextmanager
def write_parquet(path: Path) -> Iterator[ParquetWriter]:
    """Give what rows are added to; `path` is the whole of them at the end, or what it was before."""
    with replacing(path) as part, part.open("wb") as file:
        writer = ParquetWriter(file)
        yield writer
        if not writer.rows:
            raise ValueError("a Parquet file without rows has no columns")
        writer.close()


def _length(column: Column) -> int:
    return len(column.numbers if isinstance(column, Chosen) else column)


def _slice(column: Column, low: int, high: int) -> Column:
    if isinstance(column, Chosen):
        return Chosen(column.texts, column.numbers[low:high])
    return column[low:high]


def _byte_array(text: str) -> bytes:
    content = text.encode("utf-8", "replace")
    return struct.pack("<I", len(content)) + content


def _pack_bits(numbers: NDArray[np.integer], width: int) -> bytes:
    """Return numbers as one bit-packed run, the lowest bit first, eight of them at a time."""
    groups = -(-len(numbers) // 8)
    padded = np.zeros(groups * 8, np.uint32)
    padded[: len(numbers)] = numbers
    bits = np.empty((len(padded), width), np.uint8)
    for place in range(width):
        bits[:, place] = (padded >> np.uint32(place)) & 1
    return _varint(groups << 1 | 1) + np.packbits(bits.reshape(-1), bitorder="little").tobytes()


# Thrift's compact protocol, as far as Parquet's headers need it: a field is its number's distance from the one before
# and its type in a byte, then its value.
I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _integer(number: int) -> bytes:
    return _varint(number << 1)  # zigzag of what is not negative


def _text(text: str) -> bytes:
    content = text.encode()
    return _varint(len(content)) + content


def _list(kind: int, items: Sequence[bytes]) -> bytes:
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + _varint(len(items))
    return head + b"".join(items)


def _struct(*fields: tuple[int, int, bytes]) -> bytes:
    """Return a struct of (number, type, value), numbers ascending."""
    found, before = b"", 0
    for number, kind, value in fields:
        found += bytes([(number - before) << 4 | kind]) + value
        before = number
    return found + b"\0"


def _page_header(kind: int, size: int, values: int, encoding: int = PLAIN) -> bytes:
    about = [(1, I32, _integer(values)), (2, I32, _integer(encoding))]
    if kind == DATA_PAGE:
        about += [(3, I32, _integer(RLE)), (4, I32, _integer(RLE))]
    number = 5 if kind == DATA_PAGE else 7
    sizes = ((1, I32, _integer(kind)), (2, I32, _integer(size)), (3, I32, _integer(size)))
    return _struct(*sizes, (number, STRUCT, _struct(*about)))


def _footer(schema: Mapping[str, int], groups: Sequence[tuple[int, list[Chunk]]], rows: int) -> bytes:
    root = _struct((4, BINARY, _text("schema")), (5, I32, _integer(len(schema))))
    leaves = [_leaf(name, kind) for name, kind in schema.items()]
    listed = [
        _struct(
            (1, LIST, _list(STRUCT, [_column(count, *chunk) for chunk in chunks])),
            (2, I64, _integer(sum(chunk[-1] for chunk in chunks))),
            (3, I64, _integer(count)),
        )
        for count, chunks in groups
    ]
    return _struct(
        (1, I32, _integer(1)),
        (2, LIST, _list(STRUCT, [root, *leaves])),
        (3, I64, _integer(rows)),
        (4, LIST, _list(STRUCT, listed)),
        (6, BINARY, _text("nnlib")),
    )


def _leaf(name: str, kind: int) -> bytes:
    fields = [(1, I32, _integer(kind)), (3, I32, _integer(REQUIRED)), (4, BINARY, _text(name))]
    if kind == BYTE_ARRAY:
        fields.append((6, I32, _integer(UTF8)))
    return _struct(*fields)


def _column(
    rows: int, name: str, kind: int, encodings: list[int], data: int, dictionary: int | None, size: int
) -> bytes:
    about = [
        (1, I32, _integer(kind)),
        (2, LIST, _list(I32, [_integer(one) for one in encodings])),
        (3, LIST, _list(BINARY, [_text(name)])),
        (4, I32, _integer(UNCOMPRESSED)),
        (5, I64, _integer(rows)),
        (6, I64, _integer(size)),
        (7, I64, _integer(size)),
        (9, I64, _integer(data)),
    ]
    if dictionary is not None:
        about.append((11, I64, _integer(dictionary)))
    first = data if dictionary is None else dictionary
    return _struct((2, I64, _integer(first)), (3, STRUCT, _struct(*about)))
