"""Rows of examples: sparse ones compressed and never made dense, dense ones in the type they are stored in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nnlib.util.arrays import Longs

Ints = NDArray[np.int32]
Offsets = NDArray[np.int64]
Floats = NDArray[np.float32]


class Rows(Protocol):
    """What a data set's rows can do, wherever they lie: in memory (Csr, Dense) or in a file."""

    @property
    def examples(self) -> int:
        """How many rows."""

    @property
    def width(self) -> int:
        """How many units a row has."""

    @property
    def sparse(self) -> bool:
        """Whether `take` gives Csr; else Dense."""

    @property
    def boolean(self) -> bool:
        """Whether the rows are sparse and all of their values are one."""

    def take(self, rows: Longs) -> Csr | Dense:
        """Return the rows numbered `rows`, in that order, in memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Csr:
    """Sparse rows. The units of example i are `indices[indptr[i]:indptr[i + 1]]`, each below `width`.

    `values` belong to `indices` one by one; None means ones. A unit may come twice in a row: its values add up.
    """

    indptr: Offsets  # (examples + 1,)
    indices: Ints  # (nonzeros,)
    width: int
    values: Floats | None = None  # (nonzeros,)

    @property
    def examples(self) -> int:
        """How many rows."""
        return len(self.indptr) - 1

    @property
    def nonzeros(self) -> int:
        """How many entries."""
        return len(self.indices)

    @property
    def sparse(self) -> bool:
        """Always true."""
        return True

    @property
    def boolean(self) -> bool:
        """Whether all values are one."""
        return self.values is None

    def take(self, rows: Longs) -> Csr:
        """Return the rows numbered `rows`, in that order."""
        return self._with(*entries_of(self.indptr, rows))

    def keep(self, mask: NDArray[np.bool_]) -> Csr:
        """Return the same rows with only the entries whose `mask` (nonzeros,) is true."""
        return self._with(offsets_of(mask)[self.indptr], mask)

    def units(self, low: int, high: int) -> Csr:
        """Return the same rows with only the units from `low` up to `high`, numbered from there."""
        if (low, high) == (0, self.width):
            return self
        kept = self.keep((self.indices >= low) & (self.indices < high))
        return Csr(kept.indptr, kept.indices - np.int32(low), high - low, kept.values)

    def sets(self) -> Csr:
        """Return the rows with sorted units and no unit twice; the values of doubles add up."""
        keys = np.repeat(np.arange(self.examples) * self.width, np.diff(self.indptr)) + self.indices
        if not np.any(keys[1:] <= keys[:-1]):
            return self
        if self.values is None:
            keys, values = np.unique(keys), None
        else:
            keys, place = np.unique(keys, return_inverse=True)
            values = np.bincount(place, self.values, len(keys)).astype(np.float32)
        counts = np.bincount(keys // self.width, minlength=self.examples)
        return Csr(offsets_of(counts), (keys % self.width).astype(np.int32), self.width, values)

    def _with(self, indptr: Offsets, entries: NDArray[Any]) -> Csr:
        values = None if self.values is None else self.values[entries]
        return Csr(indptr, self.indices[entries], self.width, values)


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """Dense rows in the type they are stored in: a set of images in bytes must not grow fourfold."""

    values: NDArray[Any]  # (examples, width), of one of STORED_TYPES

    @property
    def examples(self) -> int:
        """How many rows."""
        return len(self.values)

    @property
    def width(self) -> int:
        """How many units a row has."""
        return int(self.values.shape[1])

    @property
    def sparse(self) -> bool:
        """Always false."""
        return False

    @property
    def boolean(self) -> bool:
        """Always false: dense Boolean files become sparse on reading."""
        return False

    def take(self, rows: Longs) -> Dense:
        """Return the rows numbered `rows`, in that order."""
        return Dense(self.values[rows])

    def floats(self, as_input: bool, dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """Return the values as DSSTNE loads them: unsigned bytes over 256, for inputs less 0.5; bytes over 128.

        Floats of the type are not copied: whoever has them does not change them.
        """
        values = self.values.astype(dtype, copy=False)
        if self.values.dtype == np.uint8:
            values /= 256
            if as_input:
                values -= 0.5
        elif self.values.dtype == np.int8:
            values /= 128
        return values


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Rows of several sources, one after the other, left where they are."""

    parts: tuple[Rows, ...]

    @property
    def examples(self) -> int:
        """How many rows."""
        return sum(part.examples for part in self.parts)

    @property
    def width(self) -> int:
        """How many units a row has."""
        return self.parts[0].width

    @property
    def sparse(self) -> bool:
        """Whether `take` gives Csr; else Dense."""
        return self.parts[0].sparse

    @property
    def boolean(self) -> bool:
        """Whether the rows are sparse and all of their values are one."""
        return self.parts[0].boolean

    def take(self, rows: Longs) -> Csr | Dense:
        """Return the rows numbered `rows`, in that order, in memory."""
        first = offsets_of(np.array([part.examples for part in self.parts]))
        source = np.searchsorted(first, rows, side="right") - 1
        order = np.argsort(source, kind="stable")
        taken = [
            part.take(rows[source == n] - first[n]) for n, part in enumerate(self.parts) if not n or np.any(source == n)
        ]
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return stack(taken).take(place)


def offsets_of(counts: NDArray[np.integer] | NDArray[np.bool_]) -> Offsets:
    """Return row pointers for rows of `counts` entries: 0, counts[0], counts[0] + counts[1], ..."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def entries_of(indptr: Offsets, rows: Longs) -> tuple[Offsets, Longs]:
    """Return row pointers for the rows numbered `rows`, and the numbers of their entries, row after row."""
    start = indptr[rows]
    counts = indptr[rows + 1] - start
    taken = offsets_of(counts)
    return taken, np.arange(taken[-1]) + np.repeat(start - taken[:-1], counts)


def from_rows(rows: Sequence[Sequence[int]], width: int) -> Csr:
    """Return the Csr of lists of unit numbers."""
    indptr = offsets_of(np.array([len(row) for row in rows], dtype=np.int64))
    flat = np.array([unit for row in rows for unit in row], dtype=np.int32)
    return Csr(indptr, flat, width)


def one_hot(classes: NDArray[np.integer], width: int) -> Csr:
    """Return rows with the one unit `classes[i]` each."""
    return Csr(np.arange(len(classes) + 1, dtype=np.int64), classes.astype(np.int32), width)


def find_not_finite(rows: Csr | Dense) -> int | None:
    """Return the first row with a value that is no finite float32 (NaN, infinite, too large), None without one."""
    values = rows.values
    if values is None or values.dtype.kind != "f" or not values.size:
        return None
    most = np.finfo(np.float32).max
    if -most <= values.min() and values.max() <= most:  # NaN fails both
        return None
    place = int(np.argmin(np.abs(values.reshape(-1)) <= most))
    if isinstance(rows, Dense):
        return place // rows.width
    return int(np.searchsorted(rows.indptr, place, side="right")) - 1


def stack(parts: Sequence[Csr | Dense]) -> Csr | Dense:
    """Return rows of one kind and width one after the other, in memory."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, Dense):
        return Dense(np.concatenate([part.values for part in parts]))
    sparse = [part for part in parts if isinstance(part, Csr)]
    values = None if first.values is None else np.concatenate([part.values for part in sparse if part.boolean is False])
    counts = np.concatenate([np.diff(part.indptr) for part in sparse])
    return Csr(offsets_of(counts), np.concatenate([part.indices for part in sparse]), first.width, values)
