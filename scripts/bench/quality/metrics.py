"""Recall@20 and NDCG@20 of each user, and how sure a mean is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.data.events import Events

K = 20
DRAWS = 2000
DISCOUNTS = 1 / np.log2(np.arange(2, K + 2))
Figures = NDArray[np.float64]  # (users, 2): Recall@20 and NDCG@20
Scores = NDArray[np.float32]  # (users, items)


def without_known(scores: Scores, known: Events, users: NDArray[np.int64]) -> Scores:
    """Set what the users have to minus infinity, in place."""
    taken = known.bought.take(users)
    scores[np.repeat(np.arange(len(users)), np.diff(taken.indptr)), taken.indices] = -np.inf
    return scores


def measure(scores: Scores, wanted: sparse.csr_array) -> Figures:
    """Return Recall@20 and NDCG@20 of users by their scores; each wants something.

    LightGCN's definitions: hits over all that is wanted; gains over those of min(wanted, 20) hits in front.
    """
    top = np.argpartition(-scores, K, axis=1)[:, :K]
    place = np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1, kind="stable")
    hits = np.take_along_axis(wanted.toarray(), np.take_along_axis(top, place, axis=1), axis=1)
    count = np.diff(wanted.indptr)
    ideal = np.cumsum(DISCOUNTS)[np.minimum(count, K) - 1]
    return np.stack([hits.sum(axis=1) / count, hits @ DISCOUNTS / ideal], axis=1)


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of the mean by bootstrap over users, 4 digits; of differences it is a paired one."""
    random = np.random.default_rng(0)
    means = [values[random.integers(0, len(values), len(values))].mean() for _ in range(DRAWS)]
    low, high = np.quantile(means, (0.025, 0.975))
    return round(float(low), 4), round(float(high), 4)
