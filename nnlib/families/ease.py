"""EASE: the linear model of items by items that gives histories back best with no item explaining itself.

Steck (2019), "Embarrassingly shallow autoencoders for sparse data": with A the customers' aged counts and
P = (A^T A + l2 I)^-1, the weights are B = I - P / diag(P), column by column, and the scores of a history q are q B.

For a region whose rows A_r count w times (Woodbury): P_r = P - C^T (A_r C^T + I / (w - 1))^-1 C with C = A_r P. With
the Cholesky factor L of the matrix in the middle and K = L^-1 C, q P_r = q P - (q K^T) K, so that no further
matrix of items by items is needed. A region with very many customers is fitted again instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import lapack, solve_triangular

from nnlib.data.events import Events
from nnlib.errors import DivergedError
from nnlib.families.common.products import gram, times, weigh_rows
from nnlib.families.common.regional import DEFAULTS as REGIONAL
from nnlib.families.common.regional import Learned, Likeness, Regional, fit_regional, restore_regional
from nnlib.families.family import Arrays, Size, Value
from nnlib.families.packing import take
from nnlib.util.arrays import Floats

DEFAULTS: Mapping[str, Value] = {"l2": 300.0, **REGIONAL}
BLOCK = 1024  # rows of a matrix that are mirrored together


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """What a region takes off the inverse of all: P_r = P - half^T half."""

    half: Floats  # (rows, items)
    turned: Floats  # (items, rows), the same numbers


@dataclass(frozen=True, slots=True, eq=False)
class Inverse:
    """The inverse P of the Gram matrix, which stands for the weights."""

    matrix: Floats  # (items, items), symmetric
    diagonal: Floats  # (items,) of P, or of P_r
    correction: Correction | None = None

    def scores(self, taken: sparse.csr_array) -> Floats:
        """Return q - q P / diag(P) of histories q, float32 (b, items)."""
        out = times(taken, self.matrix)
        if self.correction is not None:
            out -= times(taken, self.correction.turned) @ self.correction.half
        out /= -self.diagonal
        out[np.repeat(np.arange(taken.shape[0]), np.diff(taken.indptr)), taken.indices] += taken.data
        return out

    def arrays(self) -> Arrays:
        """Return the inverse."""
        return {"inverse": self.matrix}


def fit(history: Events, hyperparameters: Mapping[str, Value], seed: int) -> Regional:  # noqa: ARG001
    """Return the model of `history`; nothing is drawn. DivergedError where l2 is too small for the counts."""
    l2 = float(hyperparameters["l2"])
    return fit_regional(history, hyperparameters, lambda counts: _invert(counts, l2), _refit_with(hyperparameters))


def restore(arrays: Arrays, hyperparameters: Mapping[str, Value], regions: tuple[str, ...]) -> Regional:
    """Return the model that `arrays` was taken from; KeyError or ValueError when they are wrong."""

    def read(found: Arrays, width: int) -> Likeness:
        inverse = take(found, "inverse", np.float32, width, width)
        if not np.all(inverse.diagonal() > 0):
            raise ValueError("inverse: legal: a diagonal above 0")
        return Inverse(inverse, inverse.diagonal().copy())

    return restore_regional(arrays, hyperparameters, regions, read, _refit_with(hyperparameters))


def bytes_needed(size: Size, hyperparameters: Mapping[str, Value]) -> int:
    """Return how much memory `fit` takes at most: a matrix of items by items, and two where regions have their own."""
    matrices = 1 if hyperparameters["own_weight"] == 1 else 2
    return matrices * 4 * size.items**2 + 40 * size.entries + (64 << 20)


def _refit_with(hyperparameters: Mapping[str, Value]) -> Callable[[Likeness, Learned, int], Likeness]:
    """Return what makes a region's likeness, by the cheaper of two ways."""
    weight, l2 = float(hyperparameters["own_weight"]), float(hyperparameters["l2"])

    def refit(common: Likeness, learned: Learned, region: int) -> Likeness:
        assert isinstance(common, Inverse), "what `fit` and `restore` have given"
        rows = learned.of(region)
        if 2 * rows.shape[0] < rows.shape[1]:
            return _correct(common, rows, weight)
        return _invert(weigh_rows(learned.counts, learned.region == region, weight), l2)

    return refit


def _correct(common: Inverse, rows: sparse.csr_array, weight: float) -> Inverse:
    """Return the inverse for a region with `rows` (n, items): n^2 items steps instead of items^3."""
    moved = times(rows, common.matrix)
    middle = rows @ moved.T
    middle[np.diag_indices(len(middle))] += np.float32(1 / (weight - 1))
    factor, failed = lapack.spotrf(middle, lower=1)
    if failed:
        raise DivergedError("EASE: a region's own weight cannot be reckoned in; raise l2, or lower own_weight")
    half = np.ascontiguousarray(solve_triangular(factor, moved, lower=True, check_finite=False))
    diagonal = common.diagonal - np.einsum("ij,ij->j", half, half)
    if not np.all(diagonal > 0):
        raise DivergedError("EASE: a region's own weight leaves nothing of the inverse; raise l2, or lower own_weight")
    return Inverse(common.matrix, diagonal, Correction(half, np.ascontiguousarray(half.T)))


def _invert(counts: sparse.csr_array, l2: float) -> Inverse:
    matrix = gram(counts)
    matrix[np.diag_indices(len(matrix))] += np.float32(l2)
    # LAPACK counts columns first: the transposed view is the same memory and, being symmetric, the same matrix.
    factor, failed = lapack.spotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
    if not failed:
        found, failed = lapack.spotri(factor, lower=1, overwrite_c=1)
    if failed:
        raise DivergedError(f"EASE: the counts cannot be inverted with l2 {l2:g}; raise l2")
    inverse = _mirror(found.T)
    return Inverse(inverse, inverse.diagonal().copy())


def _mirror(matrix: Floats) -> Floats:
    """Return the matrix with what is above its diagonal below it as well."""
    for low in range(0, len(matrix), BLOCK):
        high = low + BLOCK
        square = matrix[low:high, low:high]
        square[...] = np.triu(square) + np.triu(square, 1).T
        matrix[high:, low:high] = matrix[low:high, high:].T
    return matrix
