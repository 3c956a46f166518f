"""iALS: factors of customers and items by alternating least squares over everything, taken and not taken.

Hu et al. 2008, with the regularisation and the settings of Rendle et al. 2021, "Revisiting the performance of iALS on
item recommendation benchmarks".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from nnlib.data.events import Events
from nnlib.families.family import Arrays, Size, Value
from nnlib.families.packing import take
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import workers

DEFAULTS: Mapping[str, Value] = {
    "dims": 64,
    "sweeps": 6,
    "alpha": 0.3,  # weight of every pair, taken or not; what was taken counts 1 more, aged
    "l2": 0.003,
    "nu": 1.0,  # 1: who took more is held back more; 0: everyone alike
    "fit_half_life": 40.0,  # days, of the counts that the items are fitted on
    "ask_half_life": 80.0,  # days, of the history that is asked with
}
START = 0.1  # standard deviation of a factor's length at the start
ROOM = 1 << 22  # floats of the largest array of a block


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Factors f in the basis of the eigenvectors of alpha f^T f, in which what all rows have in common is diagonal."""

    common: Floats  # (dims,), the eigenvalues
    basis: Floats  # (dims, dims)
    turned: Floats  # (n, dims)


@dataclass(frozen=True, slots=True, eq=False)
class Ials:
    """Fitted factors of the items; those of a customer are solved for when he is asked about."""

    items: Floats  # (items, dims), float32
    hyperparameters: Mapping[str, Value]
    side: Side  # of the items: what one customer's question costs is mostly this

    def scores(self, asked: Events, rows: Longs) -> Floats:
        """Return float32 (len(rows), items)."""
        history = asked.take(rows).aged_from_last(float(self.hyperparameters["ask_half_life"]))
        with workers(1):
            return solve(history, self.side, self.hyperparameters) @ self.items.T

    def arrays(self) -> Arrays:
        """Return the factors."""
        return {"items": self.items}


def fit(history: Events, hyperparameters: Mapping[str, Value], seed: int) -> Ials:
    """Return the items' factors after `sweeps` solutions for customers and items in turn."""
    counts = history.aged(float(hyperparameters["fit_half_life"]))
    by_item = counts.T.tocsr()
    dims = int(hyperparameters["dims"])
    items = np.random.default_rng(seed).standard_normal((counts.shape[1], dims), np.float32)
    items *= np.float32(START / np.sqrt(dims))
    with workers(1):
        for _ in range(int(hyperparameters["sweeps"])):
            customers = half_step(counts, items, hyperparameters)
            items = half_step(by_item, customers, hyperparameters)
    return _with_side(items, hyperparameters)


def restore(arrays: Arrays, hyperparameters: Mapping[str, Value], regions: tuple[str, ...]) -> Ials:  # noqa: ARG001
    """Return the model that `arrays` was taken from; KeyError or ValueError when they are wrong."""
    return _with_side(take(arrays, "items", np.float32, None, int(hyperparameters["dims"])), hyperparameters)


def _with_side(items: Floats, hyperparameters: Mapping[str, Value]) -> Ials:
    with workers(1), np.errstate(over="ignore", invalid="ignore"):  # a score that is not finite is seen when asked
        return Ials(items, hyperparameters, turn(items, hyperparameters))


def bytes_needed(size: Size, hyperparameters: Mapping[str, Value]) -> int:
    """Return how much memory `fit` takes at most beside its data."""
    dims = int(hyperparameters["dims"])
    longest = max(size.items, size.customers)  # a row that a block cannot be smaller than
    return 40 * size.entries + 16 * dims * (size.items + size.customers) + 16 * max(ROOM, longest * dims)


def half_step(counts: sparse.csr_array, factors: Floats, hyperparameters: Mapping[str, Value]) -> Floats:
    """Return what `solve` does by the other side's factors."""
    return solve(counts, turn(factors, hyperparameters), hyperparameters)


def turn(factors: Floats, hyperparameters: Mapping[str, Value]) -> Side:
    """Return factors in the basis in which what all rows have in common is diagonal."""
    common, basis = np.linalg.eigh(np.float32(hyperparameters["alpha"]) * (factors.T @ factors))
    return Side(common, basis, factors @ basis)


def solve(counts: sparse.csr_array, side: Side, hyperparameters: Mapping[str, Value]) -> Floats:
    """Return (rows, dims): for each row c of `counts` the x that is best against the other side's `factors` f, n rows.

    x minimises sum c_i (1 - x.f_i)^2 + alpha sum (x.f_i)^2 + l2 (sum c_i + alpha n)^nu |x|^2 (Rendle et al. 2021,
    equations 3 and 7). In the basis of the eigenvectors of alpha f^T f all but the first sum is diagonal.
    """
    alpha, l2, nu = (np.float32(hyperparameters[name]) for name in ("alpha", "l2", "nu"))
    n, dims = side.turned.shape
    ridge = l2 * (counts.sum(axis=1) + alpha * np.float32(n)) ** nu
    solved = np.zeros((counts.shape[0], dims), np.float32)
    for rows in _blocks(np.diff(counts.indptr), dims):
        diagonal = np.maximum(side.common, 0) + ridge[rows, None]
        solved[rows] = _solve(*_padded(counts, side.turned, rows), diagonal)
    return np.asarray(solved @ side.basis.T)


def _blocks(lengths: Longs, dims: int) -> Iterator[Longs]:
    """Yield the rows that have entries, those of like length together, so that little is padded."""
    order = np.argsort(lengths, kind="stable")
    end = len(order)
    empty = int(np.count_nonzero(lengths == 0))
    while end > empty:
        longest = int(lengths[order[end - 1]])
        low = max(empty, end - max(1, ROOM // (max(longest, dims) * dims)))
        if longest >= dims:  # short rows are solved in another way
            low = max(low, int(np.searchsorted(lengths[order], dims)))
        yield order[low:end]
        end = low


def _padded(counts: sparse.csr_array, turned: Floats, rows: Longs) -> tuple[Floats, Floats]:
    """Return roots of a block's counts (b, longest), 0 after a row's end, and S (b, longest, dims), roots times f."""
    starts, lengths = counts.indptr[rows], np.diff(counts.indptr)[rows]
    column = np.arange(lengths.max())
    inside = column < lengths[:, None]
    place = np.where(inside, starts[:, None] + column, 0)
    roots = np.sqrt(np.where(inside, counts.data[place], np.float32(0)))
    factors = turned[counts.indices[place]]
    factors *= roots[:, :, None]
    return roots, factors


def _solve(roots: Floats, scaled: Floats, diagonal: Floats) -> Floats:
    """Return (b, dims): (S^T S + D)^-1 S^T roots of each row.

    Rows shorter than dims by Woodbury: D^-1 S^T (S D^-1 S^T + 1)^-1 roots, a smaller system.
    """
    dims, longest = scaled.shape[2], scaled.shape[1]
    across = scaled.swapaxes(1, 2)
    if longest < dims:
        small = (scaled / diagonal[:, None]) @ across
        small += np.eye(longest, dtype=np.float32)
        return np.asarray((across @ np.linalg.solve(small, roots[:, :, None]))[:, :, 0] / diagonal)
    normal = across @ scaled
    normal[:, np.arange(dims), np.arange(dims)] += diagonal
    return np.linalg.solve(normal, across @ roots[:, :, None])[:, :, 0]
