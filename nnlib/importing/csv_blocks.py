"""CSV and TSV read in blocks of whole rows, each cut into fields all at once.

What is read here is what Python's csv module reads in its strict form, byte for byte. Whatever is not plain (a row of
another length, a quote inside a field, bytes that are no UTF-8) raises NotPlainError, and a reader that goes line by
line has to say what is wrong, or to read it after all.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from nnlib.importing.string_ids import WORD, Words
from nnlib.util.arrays import Longs

Bytes = NDArray[np.uint8]
T = TypeVar("T")

BLOCK = 1 << 20  # bytes: what is made of a block stays in the processor's cache
AHEAD = 4  # blocks
LONGEST_BLOCK = 1 << 28
LONGEST_FIELD = 100_000  # bytes; the csv module refuses little more
ROOM = 3 * WORD  # zero bytes behind a block, so that words may be read beyond a field
NEWLINE, RETURN, QUOTE = b'\n\r"'
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class NotPlainError(Exception):
    """The table has to be read line by line."""


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """Some columns of a block: the field of column j in row i is `lengths[j, i]` bytes from `starts[j, i]` on."""

    letters: Bytes
    starts: Longs
    lengths: Longs
    position: int  # bytes of the file that were read so far

    @property
    def words(self) -> Words:
        """The eight bytes from each byte on, the first of them the lowest."""
        return cast(Words, np.ndarray(len(self.letters) - WORD + 1, "<u8", self.letters, strides=(1,)))


def read_fields(path: Path, delimiter: str, places: Callable[[Sequence[str]], Sequence[int]]) -> Iterator[Fields]:
    """Yield the columns that `places` picks from the header, a block of rows at a time."""
    header: list[str] = []
    try:
        with path.open("rb") as file:
            for block in _blocks(gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file):
                first = not header
                header = header or _header(block, delimiter)
                rows = _Block(block, ord(delimiter)).rows(len(header))
                yield rows.pick(list(places(header)), int(first), file.tell())
    except (csv.Error, UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise NotPlainError from error
    if not header:
        raise NotPlainError


def read_ahead(source: Iterator[T]) -> Iterator[T]:
    """Yield the same, made in a thread of its own and some ahead."""
    end = object()
    with ThreadPoolExecutor(1) as thread:
        try:
            waiting = deque(thread.submit(next, source, end) for _ in range(AHEAD))
            while (thing := waiting.popleft().result()) is not end:
                waiting.append(thread.submit(next, source, end))
                yield cast(T, thing)
        finally:
            thread.shutdown(cancel_futures=True)


def _blocks(file: BinaryIO | gzip.GzipFile) -> Iterator[bytes]:
    """Yield whole rows, each row with the newline that ends it."""
    rest, size = file.read(len(BYTE_ORDER_MARK)).removeprefix(BYTE_ORDER_MARK), BLOCK
    while more := file.read(size):
        data = rest + more
        end = _end_of_rows(data)
        if end:
            yield data[:end]
        rest, size = data[end:], BLOCK if end else max(BLOCK, len(data))
        if len(rest) > LONGEST_BLOCK:
            raise NotPlainError
    if rest:
        yield rest + b"\n"


def _end_of_rows(data: bytes) -> int:
    """Return how many bytes the rows take that end in `data`; a newline between quotes ends none."""
    end = data.rfind(b"\n") + 1
    if not data.count(b'"', 0, end) % 2:
        return end
    letters = np.frombuffer(data, dtype=np.uint8)
    newlines = np.flatnonzero(letters == NEWLINE)
    outside = newlines[np.searchsorted(np.flatnonzero(letters == QUOTE), newlines) % 2 == 0]
    return int(outside[-1]) + 1 if len(outside) else 0


def _header(block: bytes, delimiter: str) -> list[str]:
    end = block.find(b"\n")
    while block.count(b'"', 0, end) % 2 and end >= 0:
        end = block.find(b"\n", end + 1)
    header = next(csv.reader([block[:end].decode()], delimiter=delimiter, strict=True), [])
    if end < 0 or not header:
        raise NotPlainError
    return header


class _Block:
    """The bytes of whole rows."""

    def __init__(self, block: bytes, delimiter: int) -> None:
        self.letters: Bytes = np.frombuffer(block + bytes(ROOM), dtype=np.uint8)
        self.body = self.letters[: len(block)]
        self.delimiter = delimiter
        if not self.body.all():
            raise NotPlainError  # a zero byte
        if self.body.max() >= 128:
            block.decode()  # UTF-8 is checked in all columns
        self.quotes = np.flatnonzero(self.body == QUOTE)
        self.returns = np.flatnonzero(self.body == RETURN)
        self._check_quotes()
        lone = self.letters[self.returns + 1] != NEWLINE
        if np.any(lone & ~self._find_quoted(self.returns)):
            raise NotPlainError

    def rows(self, count: int) -> _Rows:
        """Return the fields of all rows; a row of another number of fields than `count` is not plain."""
        ends = np.flatnonzero((self.body == self.delimiter) | (self.body == NEWLINE))
        if len(self.quotes):
            ends = ends[~self._find_quoted(ends)]
        starts = np.concatenate(([0], ends[:-1] + 1))
        last = self.body[ends] == NEWLINE
        if len(self.returns):
            ends = ends - (last & (ends > starts) & (self.body[ends - 1] == RETURN))
        blank = last & (ends == starts)
        blank[1:] &= last[:-1]
        if np.any(blank):
            starts, ends, last = starts[~blank], ends[~blank], last[~blank]
        if len(starts) % count:
            raise NotPlainError
        table = last.reshape(-1, count)
        if not np.all(table[:, -1]) or np.any(table[:, :-1]) or np.any(ends - starts > LONGEST_FIELD):
            raise NotPlainError
        return _Rows(self, starts.reshape(-1, count), ends.reshape(-1, count))

    def _find_quoted(self, places: Longs) -> NDArray[np.bool_]:
        """Whether each place is between quotes."""
        quoted: NDArray[np.bool_] = np.searchsorted(self.quotes, places) % 2 == 1
        return quoted

    def _check_quotes(self) -> None:
        """Quotes are around whole fields, or doubled inside these; in turn they open and close."""
        if len(self.quotes) % 2:
            raise NotPlainError
        opening, closing = self.quotes[::2], self.quotes[1::2]
        before, after = self.letters[opening - 1], self.letters[closing + 1]
        begins = (before == self.delimiter) | (before == NEWLINE) | (before == QUOTE) | (opening == 0)
        ends = (after == self.delimiter) | (after == NEWLINE) | (after == QUOTE) | (after == RETURN)
        if not (np.all(begins) and np.all(ends)):
            raise NotPlainError


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Where the fields of a block's rows start and end, quotes included."""

    block: _Block
    starts: Longs  # (rows, columns)
    ends: Longs

    def pick(self, columns: Sequence[int], first: int, position: int) -> Fields:
        """Return columns without their quotes, from row `first` on."""
        starts, ends = (np.ascontiguousarray(places[first:, columns].T) for places in (self.starts, self.ends))
        letters, quotes = self.block.letters, self.block.quotes
        if len(quotes):
            doubled = np.searchsorted(quotes, ends) - np.searchsorted(quotes, starts) > 2
            quoted = (letters[starts] == QUOTE) & (ends > starts)
            starts, ends = starts + quoted, ends - quoted
            if np.any(doubled):
                letters = _undouble(letters, starts, ends, doubled)
        return Fields(letters, starts, ends - starts, position)


def _undouble(letters: Bytes, starts: Longs, ends: Longs, doubled: NDArray[np.bool_]) -> Bytes:
    """Return the letters with the fields that have doubled quotes once more behind them, single; move these there."""
    texts = [
        letters[start:end].tobytes().replace(b'""', b'"')
        for start, end in zip(starts[doubled].tolist(), ends[doubled].tolist(), strict=True)
    ]
    ends[doubled] = len(letters) + np.cumsum([len(text) for text in texts])
    starts[doubled] = ends[doubled] - [len(text) for text in texts]
    return np.concatenate([letters, np.frombuffer(b"".join([*texts, bytes(ROOM)]), dtype=np.uint8)])
