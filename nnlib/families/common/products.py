"""Products of sparse counts: with a dense matrix, and with each other, a block of items at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from nnlib.compiled.select import LOOPS
from nnlib.util.arrays import Floats

ENTRIES = 1 << 22  # of a product that are computed together, at most, but for a single row


def times(x: sparse.csr_array, matrix: Floats) -> Floats:
    """Return x (b, n) times a row-contiguous matrix (n, m), new memory; a row's bits do not depend on the others."""
    if LOOPS is None:
        return np.asarray(x @ matrix)
    out = np.empty((x.shape[0], matrix.shape[1]), matrix.dtype)
    LOOPS.gather(x.indptr, x.indices, x.data, matrix, out)
    return out


def times_sparse(x: sparse.csr_array, y: sparse.csr_array) -> Floats:
    """Return x (b, n) times a sparse y (n, m), dense and new memory; the same bits with and without compiled loops."""
    if LOOPS is None:
        return np.asarray((x @ y).toarray())
    out = np.zeros((x.shape[0], y.shape[1]), np.float32)
    LOOPS.multiply_sparse(x.indptr, x.indices, x.data, y.indptr, y.indices, y.data, out)
    return out


def gram(counts: sparse.csr_array) -> Floats:
    """Return the dense Gram matrix (items, items) of counts (customers, items): counts^T counts."""
    items = counts.shape[1]
    out = np.empty((items, items), np.float32)
    for low, block in product_blocks(counts, counts):
        block.toarray(out=out[low : low + block.shape[0]])
    return out


def add_product(out: Floats, x: sparse.csr_array, y: sparse.csr_array) -> None:
    """Add x^T y, of x (n, a) and y (n, b), to a row-contiguous matrix (a, b)."""
    flat = out.reshape(-1)
    for low, block in product_blocks(x, y):
        starts = np.arange(low, low + block.shape[0]) * out.shape[1]
        flat[np.repeat(starts, np.diff(block.indptr)) + block.indices] += block.data


def product_blocks(x: sparse.csr_array, y: sparse.csr_array) -> Iterator[tuple[int, sparse.csr_array]]:
    """Yield the first row and the rows of sparse blocks of x^T y, which together are all of it."""
    columns, lengths = x.T.tocsr(), np.diff(y.indptr)
    # A row has no more entries than all rows of y that it is made of have together.
    most = np.bincount(x.indices, np.repeat(lengths, np.diff(x.indptr)), x.shape[1])
    number = np.cumsum(np.minimum(most, y.shape[1])) // ENTRIES
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    for low, high in zip(starts, [*starts[1:], x.shape[1]], strict=True):
        yield int(low), columns[low:high] @ y


def weigh_rows(counts: sparse.csr_array, heavy: np.ndarray, weight: float) -> sparse.csr_array:
    """Return counts whose rows where `heavy` is true are counted `weight` times in the Gram matrix."""
    factors = np.where(heavy, np.float32(np.sqrt(weight)), np.float32(1))
    data = counts.data * np.repeat(factors, np.diff(counts.indptr))
    return sparse.csr_array((data, counts.indices, counts.indptr), counts.shape)
