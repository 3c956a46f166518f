"""Item cosine: the items that go with those in a history, each with its nearest neighbours alone.

With G the Gram matrix of the aged counts and d its diagonal, the likeness of two items is G_ij / (d_i d_j) ** q: the
cosine for q = 1/2 (Sarwar et al. 2001), and popular items keep an edge below. Of each item j the k items i most like
it count, equal ones by number. The matrix is never dense, and is made a block of items at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.data.events import Events
from nnlib.data.rows import Ints, offsets_of
from nnlib.families.common.products import ENTRIES, product_blocks, times_sparse, weigh_rows
from nnlib.families.common.regional import DEFAULTS as REGIONAL
from nnlib.families.common.regional import Learned, Likeness, Regional, fit_regional, restore_regional
from nnlib.families.family import Arrays, Size, Value
from nnlib.families.packing import pack, unpack
from nnlib.util.arrays import Floats

DEFAULTS: Mapping[str, Value] = {"k": 100, "q": 0.35, **REGIONAL, "ask_half_life": 170.0}


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """The likeness (items, items) of each column's nearest items."""

    matrix: sparse.csr_array

    def scores(self, taken: sparse.csr_array) -> Floats:
        """Return how like an item is to those of histories, summed, float32 (b, items)."""
        return times_sparse(taken, self.matrix)

    def arrays(self) -> Arrays:
        """Return the matrix."""
        return pack("neighbours", self.matrix)


def fit(history: Events, hyperparameters: Mapping[str, Value], seed: int) -> Regional:  # noqa: ARG001
    """Return the model of `history`; nothing is drawn."""
    find = _finder(hyperparameters)
    return fit_regional(history, hyperparameters, find, _refit_with(hyperparameters))


def restore(arrays: Arrays, hyperparameters: Mapping[str, Value], regions: tuple[str, ...]) -> Regional:
    """Return the model that `arrays` was taken from; KeyError or ValueError when they are wrong."""

    def read(found: Arrays, width: int) -> Likeness:
        matrix = unpack(found, "neighbours", width)
        if matrix.shape[0] != width:
            raise ValueError(f"neighbours: {matrix.shape[0]} rows, legal: {width}")
        return Neighbours(matrix)

    return restore_regional(arrays, hyperparameters, regions, read, _refit_with(hyperparameters))


def bytes_needed(size: Size, hyperparameters: Mapping[str, Value]) -> int:
    """Return how much memory `fit` takes at most: its neighbours three times, and a block of the Gram matrix."""
    kept = min(int(hyperparameters["k"]), size.items) * size.items
    return 36 * kept + 60 * size.entries + 40 * max(min(ENTRIES, size.items**2), size.items)


def _refit_with(hyperparameters: Mapping[str, Value]) -> Callable[[Likeness, Learned, int], Likeness]:
    weight, find = float(hyperparameters["own_weight"]), _finder(hyperparameters)

    def refit(_: Likeness, learned: Learned, region: int) -> Likeness:
        return find(weigh_rows(learned.counts, learned.region == region, weight))

    return refit


def _finder(hyperparameters: Mapping[str, Value]) -> Callable[[sparse.csr_array], Neighbours]:
    k, q = int(hyperparameters["k"]), float(hyperparameters["q"])
    return lambda counts: find_neighbours(counts, k, q)


def find_neighbours(counts: sparse.csr_array, k: int, q: float) -> Neighbours:
    """Return the `k` nearest items of each, by counts (customers, items)."""
    items = counts.shape[1]
    squares = np.bincount(counts.indices, counts.data.astype(np.float64) ** 2, items)
    norms = (np.maximum(squares, np.finfo(np.float32).tiny) ** -q).astype(np.float32)  # an item nobody has has none
    lengths, nearest, likeness = np.zeros(items, np.int64), [np.empty(0, np.int32)], [np.empty(0, np.float32)]
    for low, block in product_blocks(counts, counts):
        row = np.repeat(np.arange(low, low + block.shape[0]), np.diff(block.indptr))
        values = np.where(block.indices == row, 0, block.data * norms[block.indices])
        some = values > 0
        for long in np.flatnonzero(np.bincount(row[some] - low, minlength=block.shape[0]) > k):
            part = slice(block.indptr[long], block.indptr[long + 1])
            some[part] = _are_largest(block.indices[part], values[part], k)
        lengths += np.bincount(row[some], minlength=items)
        nearest.append(block.indices[some])
        likeness.append(values[some] * norms[row[some]])
    parts = (np.concatenate(likeness), np.concatenate(nearest), offsets_of(lengths))
    by_column = sparse.csr_array(parts, (items, items))  # its row j is column j of what is wanted
    return Neighbours(by_column.T.tocsr())


def _are_largest(items: Ints, values: Floats, k: int) -> NDArray[np.bool_]:
    """Return whether each value is among the `k` largest ones; of equal ones those of the first items are."""
    bar = np.partition(values, len(values) - k)[len(values) - k]
    found: NDArray[np.bool_] = values > bar
    at = np.flatnonzero(values == bar)
    found[at[np.argsort(items[at])][: k - found.sum()]] = True
    return found
