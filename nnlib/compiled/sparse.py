"""Compiled loops over sparse matrices: sums of rows, and the columns of a batch.

A sparse matrix is given by `starts` (CSR: of its rows), the numbers `indices` of its columns and `values`, None for
ones: row i has the entries starts[i] to starts[i + 1]. All dense matrices are row-contiguous.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnlib.compiled.compiler import compile_loop
from nnlib.util.arrays import Floats

Ints = NDArray[np.integer]
Places = NDArray[np.int64]


def gather(starts: Ints, indices: Ints, values: Floats | None, matrix: Floats, out: Floats) -> None:
    """Write the sparse matrix times `matrix` to `out`. Twin: csr_array @ matrix."""
    _sum_rows(starts, indices, values, matrix, out, True)


@compile_loop
def gather_shards(starts: Ints, indices: Ints, values: Floats | None, matrix: Floats, shards: int, out: Floats) -> None:
    """As `gather`, summed by shard: column i is of shard i % `shards`, and the sums of these are added in a tree.

    `shards` is a power of two. A shard's sum is the same whatever others there are. An empty one is left out: as sums
    begin with 0 none is -0, and 0 would change none. Twin: `sparse_products.add_shards`.
    """
    zero, one = out.dtype.type(0), out.dtype.type(1)
    sums, there = np.empty((shards, out.shape[1]), out.dtype), np.empty(shards, np.bool_)
    for row in range(out.shape[0]):
        there[:] = False
        for i in range(starts[row], starts[row + 1]):
            unit, p = indices[i], one if values is None else values[i]
            shard = unit % shards
            if there[shard]:
                for k in range(out.shape[1]):
                    sums[shard, k] += p * matrix[unit, k]
            else:
                for k in range(out.shape[1]):
                    sums[shard, k] = zero + p * matrix[unit, k]
            there[shard] = True
        _add_in_tree(sums, there)
        if there[0]:
            out[row] = sums[0]
        else:
            out[row] = zero


@compile_loop
def _add_in_tree(sums: Floats, there: NDArray[np.bool_]) -> None:
    """Add neighbours, then neighbours of these, ..., of the rows of `sums` that are `there`, into the first one."""
    step = 1
    while step < there.size:
        for left in range(0, there.size, 2 * step):
            right = left + step
            if there[left] and there[right]:
                for k in range(sums.shape[1]):
                    sums[left, k] += sums[right, k]
            elif there[right]:
                sums[left] = sums[right]
                there[left] = True
        step *= 2


@compile_loop
def multiply_sparse(
    starts: Ints, indices: Ints, values: Floats, y_starts: Ints, y_indices: Ints, y_values: Floats, out: Floats
) -> None:
    """Add the product of two sparse matrices, (b, n) and (n, m), to `out` (b, m). Twin: (x @ y).toarray().

    Each sum is in the order of the entries, as SciPy has it, so that its bits are SciPy's.
    """
    for row in range(len(starts) - 1):
        line = out[row]
        for i in range(starts[row], starts[row + 1]):
            value, unit = values[i], indices[i]
            for j in range(y_starts[unit], y_starts[unit + 1]):
                line[y_indices[j]] += value * y_values[j]


def input_gradient(starts: Ints, examples: Ints, values: Floats | None, delta: Floats, out: Floats) -> None:
    """Write the gradient (touched rows, k) of a sparse input's weights; `transpose` gives the first two arguments.

    Twin: csr_array.T @ delta.
    """
    _sum_rows(starts, examples, values, delta, out, True)


def gated_below(starts: Ints, columns: Ints, values: Floats, weights: Floats, out: Floats) -> None:
    """Add the sparse delta (b, n) times `weights` (n, k) to `out` (b, k). Twin: out += csr_array @ weights."""
    _sum_rows(starts, columns, values, weights, out, False)


def gated_gradient(starts: Ints, columns: Ints, values: Floats, h: Floats, out: Floats) -> None:
    """Write the transpose of the sparse delta (b, n) times h (b, k) to `out` (n, k). Twin: csr_array.T @ h."""
    first, examples, order = to_columns(starts, columns, len(out))
    _sum_rows(first, examples, values[order], h, out, True)


def transpose(starts: Ints, indices: Ints, width: int) -> tuple[Places, Places, Places, Places]:
    """Return the columns that have entries, ascending, and starts, rows and order of these columns only.

    See `to_columns` for the last three.
    """
    first, rows, order = to_columns(starts, indices, width)
    touched = np.flatnonzero(first[1:] > first[:-1])
    return touched, np.append(first[touched], first[-1:]), rows, order


@compile_loop
def to_columns(starts: Ints, indices: Ints, width: int) -> tuple[Places, Places, Places]:
    """Return the sparse matrix by columns (CSC): starts (width + 1), rows, and the places that they had (the order).

    Rows ascend within a column. Twin: csr_array.tocsc().
    """
    size = starts[-1] - starts[0]
    first = np.zeros(width + 2, np.int64)
    for i in range(starts[0], starts[-1]):
        first[indices[i] + 2] += 1
    for column in range(width):
        first[column + 2] += first[column + 1]
    rows, order = np.empty(size, np.int64), np.empty(size, np.int64)
    for row in range(starts.size - 1):
        for i in range(starts[row], starts[row + 1]):
            place = first[indices[i] + 1]
            rows[place], order[place] = row, i
            first[indices[i] + 1] += 1
    return first[:-1], rows, order


@compile_loop
def _sum_rows(starts: Ints, indices: Ints, values: Floats | None, matrix: Floats, out: Floats, fresh: bool) -> None:
    """Add the sparse matrix times `matrix` to `out`, or to zeros if `fresh`.

    Four rows at a time, so that `out` is read and written once for them.
    """
    one = out.dtype.type(1)
    for row in range(out.shape[0]):
        target, begin, end = out[row], starts[row], starts[row + 1]
        if fresh:
            target[:] = 0
        for i in range(begin, end - 3, 4):
            a, b, c, d = matrix[indices[i]], matrix[indices[i + 1]], matrix[indices[i + 2]], matrix[indices[i + 3]]
            if values is None:
                for k in range(target.size):
                    target[k] += (a[k] + b[k]) + (c[k] + d[k])
            else:
                p, q, r, s = values[i], values[i + 1], values[i + 2], values[i + 3]
                for k in range(target.size):
                    target[k] += (p * a[k] + q * b[k]) + (r * c[k] + s * d[k])
        for i in range(end - (end - begin) % 4, end):
            a, p = matrix[indices[i]], one if values is None else values[i]
            for k in range(target.size):
                target[k] += p * a[k]
