"""Gaussian processes with a Matern-5/2 kernel and one length scale a parameter, several sets of them side by side.

A row of `theta` holds log length scales, log amplitude and log noise. Their priors: length scales around half of the
space's diagonal, little noise. Rows are fitted and asked together, as arrays with one more axis.

Observations of other sources, such as other regions, count by their similarity s: source j's objective is taken for
r_j (s_j f + sqrt(1 - s_j^2) g_j) with f the region's own and g_j one of its own, all of one kernel. So the covariance
of points of two sources is r_j s_j r_k s_k times the kernel, of one source r_j^2 times it (the intrinsic
coregionalisation model of Bonilla et al. 2007 with one factor, which is the region that asks). The scales r_j and how
the sources' noise variances relate are given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from regiondag.tuning.gp.bfgs import minimise

Array = NDArray[np.float64]

SQRT5 = math.sqrt(5.0)
JITTER = 1e-8
SMALL = 16  # rows of a matrix that is inverted in one piece
LENGTH_SD, AMPLITUDE_SD, NOISE_SD = 0.9, 1.0, 1.7  # of the logarithms
NOISE_CENTRE = -7.0
LENGTH_BOUNDS, AMPLITUDE_BOUNDS, NOISE_BOUNDS = (0.01, 30.0), (0.02, 50.0), (1e-6, 2.0)


@dataclass(frozen=True, slots=True)
class Observed:
    """What a process is fitted to; `groups` says which parameter a feature belongs to."""

    features: Array  # (points, features), already weighted
    targets: Array
    groups: NDArray[np.intp]
    sources: NDArray[np.intp] | None = None  # of each point; 0: the region itself. None: all are its own
    similarity: Array | None = None  # of each source with the region itself, -1 to 1; that of source 0 is 1
    scales: Array | None = None  # of each source's objective, that of source 0 is 1; None: all are
    noises: Array | None = None  # what the noise's variance is multiplied by, for each source; None: 1

    @property
    def toward(self) -> Array:
        """How much of each point's objective is the region's own."""
        if self.sources is None or self.similarity is None:
            return np.ones(len(self.targets))
        scales = 1.0 if self.scales is None else self.scales
        return np.asarray((scales * self.similarity)[self.sources])

    @property
    def shares(self) -> Array:
        """What the kernel of each pair of points is multiplied by."""
        if self.sources is None:
            return np.ones((1, 1))
        scale = np.ones(len(self.targets)) if self.scales is None else self.scales[self.sources]
        same = self.sources[:, None] == self.sources
        return np.where(same, np.outer(scale, scale), np.outer(self.toward, self.toward))

    @property
    def noisy(self) -> Array:
        """What the noise's variance is multiplied by, for each point."""
        if self.sources is None or self.noises is None:
            return np.ones(len(self.targets))
        return np.asarray(self.noises[self.sources])

    def take(self, chosen: NDArray[np.intp]) -> Observed:
        """Return some of the points."""
        sources = None if self.sources is None else self.sources[chosen]
        return replace(self, features=self.features[chosen], targets=self.targets[chosen], sources=sources)

    @property
    def parameters(self) -> int:
        """Number of length scales."""
        return int(self.groups[-1]) + 1

    def squares(self) -> Array:
        """Return the squared differences of all pairs, a row for each parameter."""
        count = len(self.targets)
        result = np.zeros((self.parameters, count * count))
        for column, group in zip(self.features.T, self.groups, strict=True):
            result[group] += ((column[:, None] - column) ** 2).ravel()
        return result


@dataclass(frozen=True, slots=True)
class Prior:
    """Independent normal priors on the logarithms."""

    mean: Array
    sd: Array
    low: Array
    high: Array


def prior_of(parameters: int) -> Prior:
    """Return the priors for a number of parameters."""
    length = math.log(0.5) + 0.5 * math.log(max(parameters, 1) / 2)
    bounds = np.log(np.array([LENGTH_BOUNDS] * parameters + [AMPLITUDE_BOUNDS, NOISE_BOUNDS]))
    return Prior(
        mean=np.array([length] * parameters + [0.0, NOISE_CENTRE]),
        sd=np.array([LENGTH_SD] * parameters + [AMPLITUDE_SD, NOISE_SD]),
        low=bounds[:, 0],
        high=bounds[:, 1],
    )


class Posterior:
    """The (unnormalised) posterior of theta, for minimising."""

    def __init__(self, data: Observed) -> None:
        self.targets = data.targets
        self.squares = data.squares()
        self.shares = np.broadcast_to(data.shares, (len(data.targets),) * 2).ravel()
        self.noisy = data.noisy
        self.prior = prior_of(data.parameters)

    def energy(self, theta: Array) -> Array:
        """Return the negative log posterior of each row."""
        covariance = self._covariance(theta)[0]
        lower, good = cholesky(covariance)
        white = np.linalg.solve(lower, np.broadcast_to(self.targets[:, None], (len(theta), len(self.targets), 1)))
        fit = 0.5 * (white[..., 0] ** 2).sum(axis=1) + np.log(np.einsum("kii->ki", lower)).sum(axis=1)
        return np.where(good, fit + self._prior_energy(theta), np.inf)

    def energy_and_gradient(self, theta: Array) -> tuple[Array, Array]:
        """Return the negative log posterior of each row, and its gradient."""
        covariance, distance, decay = self._covariance(theta)
        lower, good = cholesky(covariance)
        inverse_lower = invert_lower(lower)
        inverse = inverse_lower.transpose(0, 2, 1) @ inverse_lower
        weights = inverse @ self.targets
        fit = 0.5 * weights @ self.targets + np.log(np.einsum("kii->ki", lower)).sum(axis=1)
        pull = inverse - weights[:, :, None] * weights[:, None, :]
        amplitude, noise = np.exp(theta[:, -2]), np.exp(theta[:, -1])
        slope = pull.reshape(len(theta), len(self.shares)) * self.shares
        slope *= amplitude[:, None] * (5 / 3) * (1 + SQRT5 * distance) * decay
        gradient = np.empty_like(theta)
        gradient[:, :-2] = 0.5 * (slope @ self.squares.T) * np.exp(-2 * theta[:, :-2])
        diagonal = np.einsum("kii->ki", pull)
        chance = noise * (diagonal @ self.noisy)
        signal = np.einsum("kij,kij->k", pull, covariance) - chance - JITTER * diagonal.sum(axis=1)
        gradient[:, -2], gradient[:, -1] = 0.5 * signal, 0.5 * chance
        gradient += (theta - self.prior.mean) / self.prior.sd**2
        return np.where(good, fit + self._prior_energy(theta), np.inf), gradient

    def mode(self, random: np.random.Generator, restarts: int = 1, steps: int = 50) -> Array:
        """Return the most probable theta."""
        prior = self.prior
        wild = prior.mean + 0.8 * prior.sd * random.standard_normal((restarts, len(prior.mean)))
        ends, energies = minimise(self.energy_and_gradient, np.vstack([prior.mean, wild]), prior.low, prior.high, steps)
        return np.asarray(ends[int(np.argmin(energies))])

    def _covariance(self, theta: Array) -> tuple[Array, Array, Array]:
        count = len(self.targets)
        distance = np.sqrt(np.exp(-2 * theta[:, :-2]) @ self.squares)
        decay = np.exp(-SQRT5 * distance)
        kernel = np.exp(theta[:, -2:-1]) * (1 + SQRT5 * distance + (5 / 3) * distance**2) * decay
        kernel *= self.shares
        covariance = kernel.reshape(len(theta), count, count)
        covariance[:, np.arange(count), np.arange(count)] += np.exp(theta[:, -1:]) * self.noisy + JITTER
        return covariance, distance, decay

    def _prior_energy(self, theta: Array) -> Array:
        return np.asarray(0.5 * (((theta - self.prior.mean) / self.prior.sd) ** 2).sum(axis=1))


class GaussianProcess:
    """Predictions after `data`, by every row of `theta` on its own."""

    def __init__(self, data: Observed, theta: Array) -> None:
        self.scale = np.exp(-theta[:, :-2])[:, data.groups]  # (rows, features)
        self.amplitude, noise = np.exp(theta[:, -2]), np.exp(theta[:, -1])
        self.noise = noise if data.noises is None else noise * data.noises[0]  # of the region's own points
        self.inputs = data.features * self.scale[:, None, :]
        self.toward = np.ones(1)  # of all points
        covariance = self._kernel(self.inputs) * data.shares
        count = len(data.targets)
        covariance[:, np.arange(count), np.arange(count)] += noise[:, None] * data.noisy + JITTER
        lower, _ = cholesky(covariance)
        self.whiten = invert_lower(lower)
        self.toward = data.toward
        self.weights = self.whiten.transpose(0, 2, 1) @ (self.whiten @ data.targets)[..., None]

    def believe(self, features: Array) -> None:
        """Take in points as if they had come out as predicted: means stay, deviations shrink."""
        for row in features:
            there = (row * self.scale)[:, None, :]
            cross = self._kernel(there)[:, 0, :]
            white = np.einsum("kij,kj->ki", self.whiten, cross)
            rest = np.sqrt(np.maximum(self.amplitude + self.noise + JITTER - (white**2).sum(axis=1), JITTER))
            last = -np.einsum("ki,kij->kj", white, self.whiten) / rest[:, None]
            rows, count = white.shape
            grown = np.zeros((rows, count + 1, count + 1))
            grown[:, :count, :count] = self.whiten
            grown[:, count, :count], grown[:, count, count] = last, 1 / rest
            self.whiten = grown
            self.inputs = np.concatenate([self.inputs, there], axis=1)
            self.toward = np.append(self.toward, 1.0)
            self.weights = np.concatenate([self.weights, np.zeros((rows, 1, 1))], axis=1)

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Return means and deviations: a row for each theta, a column for each point."""
        cross = self._kernel(features * self.scale[:, None, :])
        white = cross @ self.whiten.transpose(0, 2, 1)
        variance = self.amplitude[:, None] - np.einsum("kmn,kmn->km", white, white)
        return (cross @ self.weights)[..., 0], np.sqrt(np.maximum(variance, 1e-10))

    def predict_average(self, features: Array) -> tuple[float, float]:
        """Return mean and deviation of the objective's average over some points, by the first theta."""
        there = (features * self.scale[:, None, :])[:1]
        squares = ((there[0][:, None] - there[0]) ** 2).sum(axis=2)
        distance = np.sqrt(5 * squares)
        prior = self.amplitude[0] * ((1 + distance + distance**2 / 3) * np.exp(-distance)).mean()
        cross = self._kernel(features * self.scale[:, None, :])[0].mean(axis=0)
        white = self.whiten[0] @ cross
        return float(cross @ self.weights[0, :, 0]), math.sqrt(max(float(prior - white @ white), 1e-10))

    def predict_with_gradients(self, features: Array) -> tuple[Array, Array, Array, Array]:
        """Return means, deviations and their gradients by the features (rows, points, features)."""
        there = features * self.scale[:, None, :]
        distance, decay = self._distance(there)
        cross = (1 + distance + distance**2 / 3) * decay
        slope = (5 / 3) * (1 + distance) * decay  # of the gradient by the point: times (input - point)
        white = cross @ self.whiten.transpose(0, 2, 1)
        variance = self.amplitude[:, None] - np.einsum("kmn,kmn->km", white, white)
        deviation = np.sqrt(np.maximum(variance, 1e-10))
        by_mean = self._contract(slope * self.weights[:, None, :, 0], there)
        by_variance = -2 * self._contract(slope * (white @ self.whiten), there)
        by_deviation = np.where((variance > 1e-10)[..., None], by_variance / (2 * deviation[..., None]), 0.0)
        return (cross @ self.weights)[..., 0], deviation, by_mean, by_deviation

    def _contract(self, weighted: Array, there: Array) -> Array:
        sums = weighted.sum(axis=2)
        return np.asarray((weighted @ self.inputs - sums[..., None] * there) * self.scale[:, None, :])

    def _kernel(self, there: Array) -> Array:
        """Return the covariance of the region's own values at points with the inputs'."""
        distance, decay = self._distance(there)
        kernel = distance / 3  # (1 + d + d^2 / 3) exp(-d), in place: these arrays are most of the work
        kernel += 1
        kernel *= distance
        kernel += 1
        kernel *= decay
        return kernel

    def _distance(self, there: Array) -> tuple[Array, Array]:
        """Return the distances of points from the inputs, times the root of 5, and amplitude times exp(-distance)."""
        squares = (-10 * there) @ self.inputs.transpose(0, 2, 1)
        squares += 5 * (there**2).sum(axis=2)[:, :, None]
        squares += 5 * (self.inputs**2).sum(axis=2)[:, None, :]
        np.maximum(squares, 0.0, out=squares)
        distance = np.sqrt(squares, out=squares)
        decay = np.exp(-distance)
        decay *= self.amplitude[:, None, None]
        decay *= self.toward
        return distance, decay


def invert_lower(lower: Array) -> Array:
    """Return the inverses of lower triangular matrices, by halves: NumPy alone knows that of any matrix."""
    count = lower.shape[-1]
    if count <= SMALL:
        return np.asarray(np.linalg.inv(lower))
    half = count // 2
    inverse = np.zeros_like(lower)
    first = inverse[:, :half, :half] = invert_lower(lower[:, :half, :half])
    second = inverse[:, half:, half:] = invert_lower(lower[:, half:, half:])
    inverse[:, half:, :half] = -second @ lower[:, half:, :half] @ first
    return inverse


def cholesky(covariance: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Return lower factors, with more jitter where one is needed; and which rows had one at all."""
    count = covariance.shape[1]
    good = np.ones(len(covariance), dtype=bool)
    try:
        return np.asarray(np.linalg.cholesky(covariance)), good
    except np.linalg.LinAlgError:
        pass
    lower = np.empty_like(covariance)
    for row, matrix in enumerate(covariance):
        for extra in (0.0, 1e-6, 1e-4, 1e-2):
            try:
                lower[row] = np.linalg.cholesky(matrix + extra * np.eye(count) * matrix[0, 0])
                break
            except np.linalg.LinAlgError:
                continue
        else:
            lower[row], good[row] = np.eye(count), False
    return lower, good
