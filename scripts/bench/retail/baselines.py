"""What the network is compared with: item-item cosine, and EASE (Steck 2019)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from scripts.bench.retail.data import Scores

Baseline = Callable[[sp.csr_array, sp.csr_array], Scores]  # learns from a history, is asked with what is owned

NEIGHBOURS = 100


def neighbours(history: sp.csr_array, owned: sp.csr_array) -> Scores:
    """Sum up the cosines between an item and those owned; each item has its 100 nearest neighbours."""
    norms = np.sqrt(np.asarray(history.sum(axis=0), dtype=np.float64))
    cosine = (history.T @ history).toarray() / np.maximum(np.outer(norms, norms), 1e-12)
    np.fill_diagonal(cosine, 0)
    bar = np.partition(cosine, -NEIGHBOURS, axis=1)[:, -NEIGHBOURS]
    near = sp.csr_array(np.where(cosine >= bar[:, None], cosine, 0).T.astype(np.float32))
    return lambda rows: (owned[rows] @ near).toarray()


def ease(ridge: float) -> Baseline:
    """Return EASE with a ridge: the linear autoencoder without a diagonal, in closed form."""

    def fitted(history: sp.csr_array, owned: sp.csr_array) -> Scores:
        gram = (history.T @ history).toarray().astype(np.float64)
        gram[np.diag_indices(len(gram))] += ridge
        inverse = np.linalg.inv(gram)
        weights: NDArray[np.float32] = (-inverse / np.diag(inverse)).astype(np.float32)
        np.fill_diagonal(weights, 0)
        return lambda rows: owned[rows] @ weights

    return fitted


BASELINES = {
    "item-item cosine": neighbours,
    "EASE 200": ease(200),
    "EASE 1000": ease(1000),
    "EASE 3000": ease(3000),
}
