"""NDCG@10 and recall@10 of each customer, and intervals over customers; NumPy alone, as the peers have it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scripts.bench.sequences.windows import Histories

K = 10
DRAWS, LEVEL = 2000, 0.9
METRICS = ("ndcg@10", "recall@10")
GAINS = 1 / np.log2(np.arange(2, K + 2))


def measure(items: NDArray[np.integer], wanted: Histories) -> NDArray[np.float64]:
    """Return METRICS (customers, 2) of lists (customers, K or more): hits' gains over the most possible, and hits
    over what is wanted."""
    counts, hits = np.diff(wanted.indptr), np.zeros((len(items), K))
    owner = wanted.owner()
    np.add.at(hits, owner, items[owner, :K] == wanted.items[:, None])
    return np.stack([hits @ GAINS / np.cumsum(GAINS)[np.minimum(counts, K) - 1], hits.sum(axis=1) / counts], axis=1)


def interval(values: NDArray[np.float64]) -> list[float]:
    """Return mean, low and high end of the bootstrap's interval over customers; of differences it is a paired one."""
    random = np.random.default_rng(0)
    means = [values[random.integers(0, len(values), len(values))].mean() for _ in range(DRAWS)]
    low, high = np.quantile(means, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return [round(float(value), 4) for value in (values.mean(), low, high)]
