"""The units that occur in a batch of sparse rows, at a cost that grows with the entries and not with the width."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from nnlib.util.arrays import Longs

SPREAD = 6  # units an entry beyond which the entries are sorted, where counting them all would cost more


def touched_columns(x: sparse.csr_array) -> tuple[Longs, sparse.csr_array]:
    """Return the units that occur in rows (b, units), ascending, and their values (touched, b), examples ascending."""
    if x.shape[1] > SPREAD * x.nnz:
        touched, places = np.unique(x.indices, return_inverse=True)
        places = places.astype(x.indptr.dtype, copy=False)
        columns = sparse.csr_array((x.data, places, x.indptr), shape=(x.shape[0], len(touched))).tocsc()
        starts = columns.indptr
    else:
        columns = x.tocsc()
        touched = np.flatnonzero(np.diff(columns.indptr))
        starts = np.append(columns.indptr[touched], columns.indptr[-1])
    shape = (len(touched), x.shape[0])
    return touched.astype(np.int64, copy=False), sparse.csr_array((columns.data, columns.indices, starts), shape=shape)
