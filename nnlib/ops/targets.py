"""What an output layer should give for a batch, sparse or dense, a block of units at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from nnlib.ops import losses
from nnlib.util.arrays import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """What an output layer should give for a batch.

    Sparse: `columns` is a CSC matrix (b, units) without duplicates, `boolean` says that all its data are one. Dense:
    `dense` (b, units). `weights` (b, 1) are the weights of the examples.
    """

    columns: sparse.csc_array | None = None
    boolean: bool = True
    dense: Floats | None = None
    weights: Floats | None = None
    alone: bool = False  # SparseIgnoreZero
    shares: Floats | None = None  # (b, 1), see losses.softmax_error
    per_entry: Floats | None = None  # 1 / number of entries of the example, for Boolean targets of a SoftMax

    def block(self, low: int, high: int, by_share: bool) -> losses.Target:
        """Return the targets of the units from `low` up to `high`; `by_share` for a cross entropy over SoftMax."""
        if self.columns is None:
            assert self.dense is not None
            return self.dense[:, low:high]
        starts = self.columns.indptr[low : high + 1]
        place = slice(starts[0], starts[-1])
        rows = self.columns.indices[place]
        columns = np.repeat(np.arange(high - low), np.diff(starts))
        values = None if self.boolean else self.columns.data[place]
        if by_share and self.boolean:
            assert self.per_entry is not None
            values = self.per_entry[rows, 0]
        return losses.Entries(rows, columns, values, self.alone)


def targets_of(rows: Any, boolean: bool, weights: Floats | None = None, alone: bool = False) -> Targets:
    """Return the targets of a batch from its rows: a csr_array without duplicates, or dense (b, units)."""
    if not sparse.issparse(rows):
        return Targets(dense=rows, weights=weights, shares=rows.sum(axis=1, keepdims=True))
    counts = np.diff(rows.indptr).astype(rows.dtype)[:, None]
    shares = (counts > 0).astype(rows.dtype) if boolean else rows.sum(axis=1)[:, None].astype(rows.dtype)
    return Targets(rows.tocsc(), boolean, None, weights, alone, shares, 1 / np.maximum(counts, 1))
