"""The k best items of every row of scores, in an order that is the same everywhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnlib.compiled.select import LOOPS
from nnlib.data.rows import Csr
from nnlib.util.arrays import Floats

NO_ITEM = -1
NOBODY = np.empty(0, np.int32)


def top(scores: Floats, k: int, excluded: Csr | None = None) -> tuple[NDArray[np.int64], Floats]:
    """Return items and scores, each (b, min(k, items)), best first, equal scores by item number.

    A row's `excluded` items have no rank; where too few are left, the item is NO_ITEM and its score -inf. `scores`
    (b, items), without NaN, may be overwritten at the excluded places. ValueError where more items could be excluded
    than there are: compiled loops would write beyond the scores.
    """
    examples, items = scores.shape
    if excluded is not None and excluded.width > items:
        raise ValueError(f"{excluded.width} items could be excluded, and scores are of {items}")
    k = min(k, items)
    if LOOPS is not None:
        ranked, values = np.empty((examples, k), np.int64), np.empty((examples, k), scores.dtype)
        starts = np.zeros(examples + 1, np.int64) if excluded is None else excluded.indptr
        LOOPS.top(scores, starts, NOBODY if excluded is None else excluded.indices, k, ranked, values)
        return ranked, values
    if excluded is not None:
        scores[np.repeat(np.arange(examples), np.diff(excluded.indptr)), excluded.indices] = -np.inf
    # The k-th best score is found first; sorting is then for the few that reach it.
    least = np.partition(scores, items - k, axis=1)[:, items - k]
    found = np.empty((examples, k), np.int64)
    for row, (line, bar) in enumerate(zip(scores, least, strict=True)):
        some = np.flatnonzero(line >= bar)
        if len(some) > k:  # of those at the bar, the first ones
            above = some[line[some] > bar]
            some = np.concatenate([above, some[line[some] == bar][: k - len(above)]])
        found[row] = some[np.argsort(-line[some], kind="stable")]
    best = np.take_along_axis(scores, found, axis=1)
    return np.where(best > -np.inf, found, NO_ITEM), best


def best_of(items: NDArray[np.int64], scores: Floats, k: int) -> tuple[NDArray[np.int64], Floats]:
    """Return the k best of ranked items (b, n) by their scores, best first, equal scores in their order here."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(items, order, axis=1), np.take_along_axis(scores, order, axis=1)
