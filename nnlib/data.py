"""Examples in memory: compressed sparse rows of ones, never dense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nnlib.errors import DataError

Ints = NDArray[np.int32]
Offsets = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Csr:
    """Boolean rows. The units of example i are `indices[indptr[i]:indptr[i + 1]]`, each below `width`."""

    indptr: Offsets  # (examples + 1,)
    indices: Ints  # (nonzeros,)
    width: int

    @property
    def examples(self) -> int:
        """How many rows."""
        return len(self.indptr) - 1

    @property
    def nonzeros(self) -> int:
        """How many ones."""
        return len(self.indices)

    def take(self, rows: NDArray[np.int64]) -> Csr:
        """Return the rows numbered `rows`, in that order."""
        counts = np.diff(self.indptr)[rows]
        indptr = offsets(counts)
        source = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], counts)
        return Csr(indptr, self.indices[source], self.width)

    def keep(self, mask: NDArray[np.bool_]) -> Csr:
        """Return the same rows with only the ones whose `mask` (nonzeros,) is true."""
        kept = offsets(mask)
        return Csr(kept[self.indptr], self.indices[mask], self.width)

    def sets(self) -> Csr:
        """Return the rows with sorted units and no unit twice (a file may hold duplicates)."""
        rows = np.repeat(np.arange(self.examples), np.diff(self.indptr))
        keys = np.unique(rows * self.width + self.indices)
        counts = np.bincount(keys // self.width, minlength=self.examples)
        return Csr(offsets(counts), (keys % self.width).astype(np.int32), self.width)


@dataclass(frozen=True, slots=True, eq=False)
class DataSet:
    """One named data set; `features` are the names of its units, empty when the file has none."""

    name: str
    rows: Csr
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """The data sets of one file, or of several whose examples follow one another."""

    sets: tuple[DataSet, ...]
    samples: tuple[str, ...] = field(default=())  # names of the examples
    region: str = ""

    def named(self, name: str, file: str) -> DataSet:
        """Return the data set `name`; DataError when there is none."""
        for data_set in self.sets:
            if data_set.name == name:
                return data_set
        legal = ", ".join(data_set.name for data_set in self.sets)
        raise DataError(f"{file}: no data set {name!r}, legal: {legal}; correct DataSet in the network")


def offsets(counts: NDArray[np.integer] | NDArray[np.bool_]) -> Offsets:
    """Return row pointers for rows of `counts` entries: 0, counts[0], counts[0] + counts[1], ..."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def from_rows(rows: Sequence[Sequence[int]], width: int) -> Csr:
    """Return the Csr of lists of unit numbers."""
    indptr = offsets(np.array([len(row) for row in rows], dtype=np.int64))
    flat = np.array([unit for row in rows for unit in row], dtype=np.int32)
    return Csr(indptr, flat, width)


def join(parts: Sequence[tuple[str, Data]]) -> Data:
    """Return the examples of several (file name, data) one after the other; DataError when they do not fit."""
    (first_file, first), *others = parts
    if not others:
        return first
    for file, data in others:
        for wanted, seen in zip(first.sets, data.sets, strict=False):
            if (wanted.name, wanted.rows.width, wanted.features) != (seen.name, seen.rows.width, seen.features):
                raise DataError(
                    f"{file}: data set {seen.name!r} of width {seen.rows.width} does not continue {wanted.name!r} "
                    f"of width {wanted.rows.width} in {first_file}; import both with one list of items"
                )
        if len(data.sets) != len(first.sets):
            raise DataError(f"{file}: {len(data.sets)} data sets, {first_file} has {len(first.sets)}")
    datas = [data for _, data in parts]
    sets = tuple(
        DataSet(s.name, _stacked([data.sets[n].rows for data in datas]), s.features) for n, s in enumerate(first.sets)
    )
    named = all(data.samples for data in datas)
    return Data(sets, tuple(s for data in datas for s in data.samples) if named else (), first.region)


def _stacked(parts: Sequence[Csr]) -> Csr:
    counts = np.concatenate([np.diff(part.indptr) for part in parts])
    return Csr(offsets(counts), np.concatenate([part.indices for part in parts]), parts[0].width)
