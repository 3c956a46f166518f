"""Products of sparse inputs with weights, and the gradients of the weight rows that they touch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from nnlib.compiled.select import LOOPS
from nnlib.ops.touched import touched_columns
from nnlib.shards.tree import Tree
from nnlib.util.arrays import Floats, Longs

EXAMPLES = 64  # of a batch that one thread works on
SHARE = 256  # touched rows that one thread works on


def product(x: sparse.csr_array, w: Floats, out: Floats | None = None, low: int = 0) -> Floats:
    """Return x w for the rows of x from `low` that `out` has room for (all, without `out`)."""
    if LOOPS is None or not w.flags.c_contiguous:
        result = np.asarray((x if out is None else x[low : low + len(out)]) @ w)
        if out is None:
            return result
        out[...] = result
        return out
    if out is None:
        out = np.empty((x.shape[0], w.shape[1]), w.dtype)
    values = None if np.all(x.data == 1) else x.data
    LOOPS.gather(x.indptr[low : low + len(out) + 1], x.indices, values, w, out)
    return out


def add_shards(x: sparse.csr_array, w: Floats, shards: int, out: Floats, low: int = 0) -> None:
    """Write x w to `out` as `product` does, summed by shard: column i is of shard i % `shards`, a power of two.

    The sums of the shards are added in the tree's order, and each has the same bits whatever others there are.
    """
    if LOOPS is not None and w.flags.c_contiguous:
        values = None if np.all(x.data == 1) else x.data
        LOOPS.gather_shards(x.indptr[low : low + len(out) + 1], x.indices, values, w, shards, out)
        return
    some = x[low : low + len(out)]
    rows = np.repeat(np.arange(len(out)), np.diff(some.indptr))
    tree = Tree[Floats]()
    for shard in range(shards):
        mine = some.indices % shards == shard
        starts = np.searchsorted(rows[mine], np.arange(len(out) + 1)).astype(some.indptr.dtype)
        part = sparse.csr_array((some.data[mine], some.indices[mine], starts), shape=some.shape)
        tree.add(np.asarray(part @ w))
    out[...] = tree.total()


@dataclass(frozen=True, slots=True, eq=False)
class Touched:
    """A batch of sparse inputs by the units that occur in it, ascending: the rows of the weights that it reads."""

    rows: Longs
    columns: sparse.csr_array  # (touched, b): row i has the values of unit rows[i]
    ones: bool  # all values are one

    @property
    def shares(self) -> range:
        """Where the shares of the rows start."""
        return range(0, len(self.rows), SHARE)

    def gradient(self, delta: Floats, low: int) -> tuple[Longs, Floats]:
        """Return a share of the rows and the gradient of their weights, from dLoss/dz (b, k) of the next layer."""
        rows = self.rows[low : low + SHARE]
        if LOOPS is None:
            return rows, np.asarray(self.columns[low : low + SHARE] @ delta)
        gradient = np.empty((len(rows), delta.shape[1]), delta.dtype)
        starts = self.columns.indptr[low : low + len(rows) + 1]
        values = None if self.ones else self.columns.data
        LOOPS.input_gradient(starts, self.columns.indices, values, delta, gradient)
        return rows, gradient


def touched_by(x: sparse.csr_array) -> Touched:
    """Return the units that occur in a batch of sparse inputs, with their values."""
    rows, columns = touched_columns(x)
    return Touched(rows, columns, bool(np.all(x.data == 1)))
