"""Data sets that stay in their files: examples are read a block at a time, and the blocks used last are kept.

A training that permutes blocks of BLOCK examples, and examples only within a few blocks, reads each block once an
epoch. HDF5 is asked by one thread at a time; what was read may be used by any number of them.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

import numpy as np

from nnlib.data.file import BLOCK, data_sets, estimate_bytes, read_all
from nnlib.data.file_header import Header, read_headers, shape_of_names
from nnlib.data.file_history import read_repeats, region_of
from nnlib.data.file_rows import read_rows
from nnlib.data.rows import Csr, Dense, stack
from nnlib.data.sets import Data, join
from nnlib.util.arrays import Longs
from nnlib.util.memory import available_bytes
from nnlib.util.netcdf import File

KEPT_BLOCKS = 40  # that should fit into the cache, else rows are read in smaller pieces
LEAST_CACHE = 64 << 20  # bytes
PIECE = 1 << 16  # bytes that are worth a read of their own


class Cache:
    """Blocks of rows, the least recently used given up first when all take more than `limit` bytes."""

    def __init__(self, limit: int, count: Callable[[int], object] = bool) -> None:
        """`count` is told how many bytes each block has that was read."""
        self.limit, self.count = limit, count
        self.bytes = 0
        self.lock = threading.Lock()
        self._blocks: OrderedDict[tuple[FileRows, int], Csr | Dense] = OrderedDict()

    def block(self, rows: FileRows, number: int) -> Csr | Dense:
        """Return block `number` of a set's rows, read from its file when it is not here."""
        with self.lock:
            key = (rows, number)
            if key in self._blocks:
                self._blocks.move_to_end(key)
                return self._blocks[key]
            block = rows.read(number)
            self._blocks[key] = block
            self.bytes += _bytes_of(block)
            self.count(_bytes_of(block))
            while self.bytes > self.limit and len(self._blocks) > 1:
                self.bytes -= _bytes_of(self._blocks.popitem(last=False)[1])
            return block


@dataclass(frozen=True, slots=True, eq=False)
class FileRows:
    """The rows of a data set in an open file; values are checked as they are read."""

    file: File
    header: Header
    cache: Cache
    piece: int = field(init=False)  # how many rows a block has

    def __post_init__(self) -> None:
        fits = KEPT_BLOCKS * BLOCK * self.header.row_bytes <= self.cache.limit
        piece = BLOCK if fits else max(1, min(BLOCK, int(PIECE // self.header.row_bytes)))
        object.__setattr__(self, "piece", piece)

    @property
    def examples(self) -> int:
        """How many rows."""
        return self.header.rows

    @property
    def width(self) -> int:
        """How many units a row has."""
        return self.header.width

    @property
    def sparse(self) -> bool:
        """Whether `take` gives Csr; else Dense."""
        return self.header.sparse or self.header.boolean

    @property
    def boolean(self) -> bool:
        """Whether the rows are sparse and all of their values are one."""
        return self.header.boolean

    def read(self, number: int) -> Csr | Dense:
        """Read block `number` from the file; DataError names the file, the variable and the row that is wrong."""
        first = number * self.piece
        return read_rows(self.file, self.header, first, min(first + self.piece, self.header.rows))

    def take(self, rows: Longs) -> Csr | Dense:
        """Return the rows numbered `rows`, in that order, in memory."""
        if not len(rows):
            return read_rows(self.file, self.header, 0, 0)
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        if ordered[0] < 0 or ordered[-1] >= self.examples:
            raise IndexError(f"rows {ordered[0]} to {ordered[-1]} of {self.examples}")
        numbers, first = np.unique(ordered // self.piece, return_index=True)
        parts = np.split(ordered, first[1:])
        taken = [
            self.cache.block(self, int(number)).take(part - number * self.piece)
            for number, part in zip(numbers, parts, strict=True)
        ]
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return stack(taken).take(place)


class Names(Sequence[str]):
    """The names of the examples of open files, read as they are asked for."""

    def __init__(self, files: Sequence[File]) -> None:
        self._files = files
        self._first = [0]
        for file in files:
            self._first.append(self._first[-1] + file.variables["samples"].length)
        self._lock = threading.Lock()
        self._kept: tuple[int, tuple[str, ...]] = (0, ())  # the names read last, and the number of their first

    def __len__(self) -> int:
        return self._first[-1]

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[str, ...]: ...
    def __getitem__(self, number: int | slice) -> str | tuple[str, ...]:
        if isinstance(number, slice):
            return tuple(self._name(n) for n in range(*number.indices(len(self))))
        if not -len(self) <= number < len(self):
            raise IndexError(f"name {number} of {len(self)}")
        return self._name(number % len(self))

    def __iter__(self) -> Iterator[str]:
        return map(self._name, range(len(self)))

    def _name(self, number: int) -> str:
        with self._lock:
            first, names = self._kept
            if not first <= number < first + len(names):
                which = bisect_right(self._first, number) - 1
                begin = (number - self._first[which]) // BLOCK * BLOCK
                first, names = self._first[which] + begin, self._files[which].strings("samples", begin, begin + BLOCK)
                self._kept = (first, names)
            return names[number - first]


def open_data(paths: Sequence[Path], limit_bytes: int | None = None, cache_bytes: int | None = None) -> Data:
    """Return the data of files one after the other: in memory when they take less than `limit_bytes`, else left there.

    The limit is a quarter of the memory that is free, unless told; as much, unless told, is kept of what was read.
    """
    limit = available_bytes() // 4 if limit_bytes is None else limit_bytes
    files = [File(path) for path in paths]
    if sum(estimate_bytes(file) for file in files) < limit:
        for file in files:
            file.close()
        return read_all(paths)
    cache = Cache(max(limit, LEAST_CACHE) if cache_bytes is None else cache_bytes)
    data = join([(str(file.path), _left_in(file, cache)) for file in files])
    named = all(shape_of_names(file, "samples") for file in files)
    return Data(data.sets, Names(files) if named else (), data.region, repeats=data.repeats)


def _left_in(file: File, cache: Cache) -> Data:
    sets = data_sets(file, read_headers(file), lambda header: FileRows(file, header, cache))
    return Data(sets, (), region_of(file), repeats=read_repeats(file))


def _bytes_of(block: Csr | Dense) -> int:
    arrays = [block.values] if isinstance(block, Dense) else [block.indptr, block.indices, block.values]
    return sum(array.nbytes for array in arrays if array is not None)
