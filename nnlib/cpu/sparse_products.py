"""Products of sparse inputs with weights, and the gradients of the weight rows that they touch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from nnlib.compiled.select import LOOPS
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
    columns = x.tocsc()
    rows = np.flatnonzero(np.diff(columns.indptr))
    starts = np.append(columns.indptr[rows], columns.indptr[-1])
    shape = (len(rows), x.shape[0])
    return Touched(
        rows, sparse.csr_array((columns.data, columns.indices, starts), shape=shape), bool(np.all(x.data == 1))
    )
