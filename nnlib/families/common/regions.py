"""Regions of who is asked about, and how popular each item is in each region."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.data.events import Events
from nnlib.families.family import Arrays
from nnlib.families.packing import pack, take, unpack
from nnlib.util.arrays import Floats, Longs

ALL = -1  # the number of a region that a model does not know: what holds for all is for it


def split_by_region(asked: Events, rows: Longs, regions: tuple[str, ...]) -> Iterator[tuple[int, Longs]]:
    """Yield the number among `regions` of each region that customers `rows` are of, and their places in `rows`."""
    known = {name: n for n, name in enumerate(regions)}
    numbers = np.array([known.get(name, ALL) for name in asked.regions], np.int64)[asked.region[rows]]
    for number in np.unique(numbers):
        yield int(number), np.flatnonzero(numbers == number)


@dataclass(frozen=True, slots=True, eq=False)
class RegionCounts:
    """How often each item was taken in each region, aged."""

    counts: sparse.csr_array  # (regions, items)
    customers: Longs  # (regions,): those with any item

    def count(self, region: int) -> Floats:
        """Return the counts (items,) of a region, of all together where it is ALL or has no customers."""
        if region == ALL or not self.customers[region]:
            return np.asarray(self.counts.sum(axis=0), np.float32)
        return np.asarray(self.counts[[region]].toarray()[0])

    def share(self, region: int) -> Floats:
        """Return the counts over the number of customers."""
        own = region != ALL and self.customers[region]
        return self.count(region) / np.float32(max(1, self.customers[region] if own else self.customers.sum()))

    def arrays(self) -> Arrays:
        """Return what `restore_counts` makes the same of."""
        return {**pack("counts", self.counts), "customers": self.customers}


def count_by_region(history: Events, half_life: float) -> RegionCounts:
    """Return how popular the items are that customers took, each purchase 2 ** (-age / half_life)."""
    aged = history.aged(half_life)
    belongs = (np.ones(history.customers), history.region.astype(np.int32), np.arange(history.customers + 1))
    # Sums in double precision: counts of different sizes meet here.
    sums = sparse.csr_array(belongs, (history.customers, len(history.regions))).T.tocsr() @ aged.astype(np.float64)
    sums.sort_indices()
    some = np.diff(history.bought.indptr) > 0
    customers = np.bincount(history.region[some], minlength=len(history.regions)).astype(np.int64)
    return RegionCounts(sums.astype(np.float32), customers)


def restore_counts(arrays: Mapping[str, NDArray[Any]], regions: int, width: int) -> RegionCounts:
    """Return the counts that `arrays` was taken from; KeyError or ValueError when they are wrong."""
    customers = take(arrays, "customers", np.int64, regions)
    counts = unpack(arrays, "counts", width)
    if counts.shape[0] != regions or customers.min() < 0:
        raise ValueError(f"counts: {counts.shape[0]} rows, legal: {regions}, as there are regions")
    if counts.data.min(initial=0) < 0:
        raise ValueError("counts_values: legal: numbers from 0")
    return RegionCounts(counts, customers)
