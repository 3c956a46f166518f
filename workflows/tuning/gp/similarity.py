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
from dataclasses import dataclass

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
LARGEST = 1e15  # more than any square of targets that are whitened; what takes its place has no say


def estimate_noises(regions: Sequence[Observed]) -> Array:
    """Return which part of the variance of each region's targets is chance, 0 to 1.

    Targets have mean 0 and deviation 1, or are all 0. How common each value of a grid is, is learned from all regions.
    """
    logs = np.zeros((len(regions), len(NOISES)))
    for same in _alike_in_size(regions, slice(-MOST, None)):
        logs[same.numbers] = _by_noise(same)
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
    logs = np.zeros((len(others), len(GRID)))
    for mine in _alike_in_size([own], slice(-MOST, None)):  # none where its targets are all equal
        for theirs in _alike_in_size(others, slice(MOST)):
            logs[theirs.numbers] = _by_similarity(mine, theirs, float(chance[0]), chance[1:][theirs.numbers])
    return np.asarray(np.round(_mix(usual, logs) @ GRID, 3))


@dataclass(frozen=True, slots=True)
class SameSize:
    """Some regions with equally many trials, as arrays with one more axis: a few large steps take less than many."""

    numbers: list[int]  # which regions these are
    features: Array  # (regions, trials, features)
    targets: Array  # (regions, trials)
    usual: float  # the inverse square of the length scale that is usual for so many parameters


def _alike_in_size(regions: Sequence[Observed], trials: slice) -> list[SameSize]:
    """Return some trials of the regions whose targets are not all 0."""
    sizes: dict[int, list[int]] = {}
    for number, region in enumerate(regions):
        if region.targets[trials].any():
            sizes.setdefault(len(region.targets[trials]), []).append(number)
    return [
        SameSize(
            numbers=numbers,
            features=np.stack([regions[number].features[trials] for number in numbers]),
            targets=np.stack([regions[number].targets[trials] for number in numbers]),
            usual=math.exp(-2 * prior_of(regions[numbers[0]].parameters).mean[0]),
        )
        for numbers in sizes.values()
    ]


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


def _by_noise(regions: SameSize) -> Array:
    """Return the log likelihood of each region's targets for each noise of the grid."""
    kernels = _correlations(regions.features, regions.features, regions.usual)[:, None]
    part = NOISES[:, None, None, None]
    covariances = (1 - part) * kernels + part * np.eye(regions.targets.shape[1])
    return _mean_over_lengths(_log_densities(covariances, regions.targets))


def _by_similarity(mine: SameSize, theirs: SameSize, chance: float, others: Array) -> Array:
    """Return the log likelihood of both regions' targets for each similarity of the grid, for each of `theirs`.

    Of a similarity s the covariance is [A, sC; sC', B]. What its factor has of A is the same for all of them; what is
    left of B is B - s^2 W'W with W = L^-1 C, where A = LL'.
    """
    signal, noise = 1 - others[:, None, None], others[:, None, None]
    count = theirs.targets.shape[1]
    own = (1 - chance) * _correlations(mine.features, mine.features, mine.usual)
    lower, _ = cholesky(own[:, 0] + chance * np.eye(mine.targets.shape[1]))
    whiten = np.linalg.inv(lower)[:, None]
    cross = np.sqrt((1 - chance) * signal) * _correlations(mine.features, theirs.features, mine.usual)
    known = whiten @ cross
    white = whiten @ mine.targets[0][:, None]
    rest = signal * _correlations(theirs.features, theirs.features, mine.usual) + noise * np.eye(count)
    alike = GRID[:, None, None, None]
    covariances = rest[:, None] - alike**2 * (known.swapaxes(-1, -2) @ known)[:, None]
    expected = GRID[:, None, None] * (known.swapaxes(-1, -2) @ white)[:, None, :, :, 0]
    logs = _log_densities(covariances, theirs.targets - expected)
    before = -0.5 * (white**2).sum(axis=(-2, -1)) - np.log(np.einsum("kii->ki", lower)).sum(axis=1)[:, None]
    return _mean_over_lengths(logs + before[:, None])


def _correlations(first: Array, second: Array, usual: float) -> Array:
    """Return the correlations of the points of two stacks for each of the lengths, which are the first axis."""
    squares = ((first[:, :, None] - second[:, None]) ** 2).sum(axis=-1)
    distance = SQRT5 * np.sqrt(usual / np.array(LENGTHS)[:, None, None, None] ** 2 * squares)
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance))


def _log_densities(covariances: Array, targets: Array) -> Array:
    """Return the log of the normal density of targets, less what is the same for all of so many."""
    count = targets.shape[-1]
    whole = np.empty((*covariances.shape[:-2], count + 1, count + 1))
    whole[..., :count, :count] = covariances
    whole[..., count, :count] = targets  # this row of the factor is then L^-1 targets
    whole[..., count, count] = LARGEST
    lower, _ = cholesky(whole.reshape(-1, count + 1, count + 1))
    logs = -0.5 * (lower[:, count, :count] ** 2).sum(axis=1) - np.log(np.einsum("kii->ki", lower)[:, :count]).sum(
        axis=1
    )
    return np.asarray(logs.reshape(covariances.shape[:-2]))


def _mean_over_lengths(logs: Array) -> Array:
    """Return the log of the mean likelihood over lengths (the first axis) for each region (the last), a row each."""
    top = logs.max(axis=(0, 1))
    return np.asarray((np.log(np.exp(logs - top).mean(axis=0) + 1e-300) + top).T)
