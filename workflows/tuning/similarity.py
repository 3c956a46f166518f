"""How alike two regions are: what the trials of one say about those of the other.

The similarity s of two regions is that of `gaussian`: how much of the one's objective is the other's. For each value on
a grid the likelihood of both regions' trials together is averaged over a few usual kernels. How common each value
is among the neighbours is learned as well (empirical Bayes: a mixture over the grid, fitted by expectation
maximisation), so that families of regions that have nothing to do with each other are told apart after few trials.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from workflows.tuning.gaussian import SQRT5, Data, cholesky, prior_of

Array = NDArray[np.float64]

GRID = np.array([0.0, 0.3, 0.6, 0.8, 0.9, 0.97])
USUAL = np.array([0.25, 0.10, 0.15, 0.20, 0.20, 0.10])  # before anything was seen, of another region
USUAL_EARLIER = np.array([0.10, 0.05, 0.10, 0.20, 0.30, 0.25])  # and of a run of the same region before this one
STRENGTH = 4.0  # neighbours that this is worth
STEPS = 8
LENGTHS, NOISES = (0.5, 1.0, 2.0), (math.exp(-5.0), math.exp(-2.0))  # times the usual length scale; variances
MOST = 40  # of each region's trials


def similarities(own: Data, others: Sequence[Data], earlier: Sequence[bool]) -> Array:
    """Return each neighbour's similarity, 0 to 1; without trials of one's own what is usual.

    `own` and `others` hold targets of mean 0 and deviation 1. Which of the neighbours are runs of the same region
    says `earlier`.
    """
    usual = np.array([USUAL_EARLIER if same else USUAL for same in earlier]).reshape(len(others), len(GRID))
    if not len(own.targets):
        return np.asarray(np.round(usual @ GRID, 3))
    logs = np.array([_log_likelihoods(own, other) for other in others]).reshape(usual.shape)
    likelihoods = np.exp(logs - logs.max(axis=1, keepdims=True, initial=-np.inf))
    odds = usual
    for _ in range(STEPS):
        shares = odds * likelihoods
        shares /= shares.sum(axis=1, keepdims=True)
        learned = (STRENGTH * usual + shares.sum(axis=0)) / (STRENGTH + len(others))
        odds = learned / learned.sum(axis=1, keepdims=True)
    return np.asarray(np.round(shares @ GRID, 3)) if len(others) else np.zeros(0)


def _log_likelihoods(own: Data, other: Data) -> Array:
    """Return the log likelihood of both regions' targets for each similarity of the grid."""
    features = np.concatenate([own.features[-MOST:], other.features[:MOST]])
    targets = np.concatenate([own.targets[-MOST:], other.targets[:MOST]])
    side = np.arange(len(targets)) < len(own.targets[-MOST:])
    squares = Data(features, targets, own.groups).squares().sum(axis=0)
    usual = math.exp(-2 * prior_of(own.parameters).mean[0])
    shared = np.where(side[:, None] == side, 1.0, GRID[:, None, None])
    logs = []
    for length, noise in itertools.product(LENGTHS, NOISES):
        distance = SQRT5 * np.sqrt(usual / length**2 * squares)
        kernel = ((1 + distance + distance**2 / 3) * np.exp(-distance)).reshape(len(targets), -1)
        lower, _ = cholesky(kernel * shared + noise * np.eye(len(targets)))
        white = np.linalg.solve(lower, np.broadcast_to(targets[:, None], (len(GRID), len(targets), 1)))[..., 0]
        logs.append(-0.5 * (white**2).sum(axis=1) - np.log(np.einsum("kii->ki", lower)).sum(axis=1))
    top = np.max(logs)
    return np.asarray(np.log(np.exp(np.array(logs) - top).mean(axis=0) + 1e-300) + top)
