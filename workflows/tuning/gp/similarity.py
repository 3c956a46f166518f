"""How alike two regions are: what the trials of one say about those of the other.

The similarity s of two regions is that of `process`: how much of the one's objective is the other's. For each value on
a grid the likelihood of both regions' trials together is averaged over a few usual kernels. How common each value
is among the neighbours is learned as well (empirical Bayes: a mixture over the grid, fitted by expectation
maximisation), so that families of regions that have nothing to do with each other are told apart after few trials.

How much of a region's targets is chance comes first, from its own trials: of a region with a handful of customers it
may be nearly all, of another nearly nothing. What is chance cannot agree, and says nothing against a similarity. Nor do
targets that are all equal: where the few customers buy nothing of what is recommended, every point is worth 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regiondag.tuning.gp.process import SQRT5, Observed, cholesky, prior_of

Array = NDArray[np.float64]

GRID = np.array([0.0, 0.3, 0.6, 0.8, 0.9, 0.97])
USUAL = np.array([0.25, 0.10, 0.15, 0.20, 0.20, 0.10])  # before anything was seen, of another region
USUAL_EARLIER = np.array([0.10, 0.05, 0.10, 0.20, 0.30, 0.25])  # and of a run of the same region before this one
STRENGTH = 4.0  # neighbours that this is worth
STEPS = 8
LENGTHS = (0.5, 1.0, 2.0)  # times the usual length scale
NOISES = np.array([0.005, 0.05, 0.2, 0.5, 0.8])  # parts of the targets' variance
MOST = 40  # of each region's trials


def estimate_noises(regions: Sequence[Observed]) -> Array:
    """Return which part of the variance of each region's targets is chance, 0 to 1.

    Targets have mean 0 and deviation 1, or are all 0. How common each value of a grid is, is learned from all regions.
    """
    logs = np.array([_by_noise(region.take(np.arange(len(region.targets))[-MOST:])) for region in regions])
    usual = np.full(logs.shape, 1 / len(NOISES))
    return np.asarray(np.round(_mix(usual, logs) @ NOISES, 3))


def estimate_similarities(own: Observed, others: Sequence[Observed], earlier: Sequence[bool], chance: Array) -> Array:
    """Return each neighbour's similarity, 0 to 1; without trials of one's own what is usual.

    `own` and `others` hold targets of mean 0 and deviation 1, or that are all 0. Which of the neighbours are runs of
    the same region says `earlier`; `chance` is what `estimate_noises` says of the region itself and then of the others.
    """
    if not others:
        return np.zeros(0)
    usual = np.array([USUAL_EARLIER if same else USUAL for same in earlier])
    pairs = zip(others, chance[1:], strict=True)
    logs = np.array([_by_similarity(own, other, chance[0], theirs) for other, theirs in pairs])
    return np.asarray(np.round(_mix(usual, logs) @ GRID, 3))


def _mix(usual: Array, logs: Array) -> Array:
    """Return the probability of each value of a grid (columns) for each region (rows), given its log likelihoods.

    Expectation maximisation: how common the values are moves from what is usual to what the regions say.
    """
    likelihoods = np.exp(logs - logs.max(axis=1, keepdims=True))
    odds = usual
    for _ in range(STEPS):
        shares = odds * likelihoods
        shares /= shares.sum(axis=1, keepdims=True)
        learned = (STRENGTH * usual + shares.sum(axis=0)) / (STRENGTH + len(logs))
        odds = learned / learned.sum(axis=1, keepdims=True)
    return np.asarray(shares)


def _by_noise(data: Observed) -> Array:
    """Return the log likelihood of a region's targets for each noise of the grid."""
    if not data.targets.any():
        return np.zeros(len(NOISES))
    part = NOISES[:, None, None]
    return _log_likelihoods((1 - part) * _kernels(data)[:, None] + part * np.eye(len(data.targets)), data.targets)


def _by_similarity(own: Observed, other: Observed, mine: float, theirs: float) -> Array:
    """Return the log likelihood of both regions' targets for each similarity of the grid."""
    if not own.targets.any() or not other.targets.any():
        return np.zeros(len(GRID))
    features = np.concatenate([own.features[-MOST:], other.features[:MOST]])
    targets = np.concatenate([own.targets[-MOST:], other.targets[:MOST]])
    side = np.arange(len(targets)) < len(own.targets[-MOST:])
    chance = np.where(side, mine, theirs)
    signal = np.sqrt(1 - chance)
    shared = np.where(side[:, None] == side, 1.0, GRID[:, None, None]) * np.outer(signal, signal)
    kernels = _kernels(Observed(features, targets, own.groups))
    return _log_likelihoods(kernels[:, None] * shared + np.diag(chance), targets)


def _kernels(data: Observed) -> Array:
    """Return the correlations of all pairs of points, for each of the lengths."""
    squares = data.squares().sum(axis=0)
    usual = math.exp(-2 * prior_of(data.parameters).mean[0])
    distance = SQRT5 * np.sqrt(usual / np.array(LENGTHS)[:, None] ** 2 * squares)
    kernels = (1 + distance + distance**2 / 3) * np.exp(-distance)
    count = len(data.targets)
    return np.asarray(kernels.reshape(len(LENGTHS), count, count))


def _log_likelihoods(covariances: Array, targets: Array) -> Array:
    """Return the log of the mean likelihood over lengths (the first axis), for each value of a grid (the second)."""
    count = len(targets)
    lower, _ = cholesky(covariances.reshape(math.prod(covariances.shape[:2]), count, count))
    white = np.linalg.solve(lower, np.broadcast_to(targets[:, None], (len(lower), count, 1)))[..., 0]
    logs = -0.5 * (white**2).sum(axis=1) - np.log(np.einsum("kii->ki", lower)).sum(axis=1)
    logs = logs.reshape(covariances.shape[:2])
    top = np.max(logs)
    return np.asarray(np.log(np.exp(logs - top).mean(axis=0) + 1e-300) + top)
