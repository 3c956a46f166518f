"""What a point is worth: log expected improvement and confidence bounds, averaged over several processes.

Everything is written for minimising the objective and returns larger values for better points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from regiondag.tuning.gp.process import GaussianProcess

Array = NDArray[np.float64]

TAIL = -8.0  # below, the expected improvement is taken from its asymptotic series
LOG_ROOT = 0.5 * math.log(2 * math.pi)


def normal_cdf(z: Array) -> Array:
    """Return the standard normal distribution function with a relative error below 2e-7, also far in the tail.

    NumPy has none, and importing SciPy's costs a third of a second of every PRE script.
    """
    x = np.abs(z) / math.sqrt(2)
    t = 1 / (1 + 0.5 * x)
    coefficients = (
        0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807,
        -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223,
    )  # fmt: skip
    series = np.zeros_like(t)
    for coefficient in coefficients:
        series = series * t + coefficient
    upper = 0.5 * t * np.exp(-x * x + series)
    return np.where(z < 0, upper, 1 - upper)


def log_improvement(mean: Array, deviation: Array, best: Array) -> tuple[Array, Array, Array]:
    """Return the log of the expected improvement on `best`, and its derivatives by mean and deviation."""
    z = (best - mean) / deviation
    density = np.exp(-0.5 * np.minimum(z * z, 1400.0) - LOG_ROOT)
    cdf = normal_cdf(z)
    body = np.maximum(density + z * cdf, 1e-300)
    far = np.minimum(z, TAIL)
    inverse = 1 / (far * far)
    series = 1 - inverse * (3 - inverse * (15 - 105 * inverse))  # density + z cdf is density / z^2 times this
    mills = 1 - inverse * (1 - inverse * (3 - 15 * inverse))  # and cdf is density / -z times this
    tail = -0.5 * far * far - LOG_ROOT - 2 * np.log(-far) + np.log(series)
    usual = z > TAIL
    log_body = np.where(usual, np.log(body), tail)
    ratio = np.where(usual, cdf / body, -far * mills / series)
    by_mean = -ratio / deviation
    by_deviation = np.where(usual, density / body, far * far / series) / deviation
    return log_body + np.log(deviation), by_mean, by_deviation


class Criterion(Protocol):
    """What a point is worth by some processes."""

    def value(self, features: Array) -> Array:
        """Return one number for each row of features, larger for better points."""

    def value_and_gradient(self, features: Array) -> tuple[Array, Array]:
        """Return the same, and its gradients by the features."""


@dataclass(frozen=True, slots=True)
class Improvement:
    """The log of the expected improvement, averaged over the samples; per second where `cost` is given."""

    process: GaussianProcess
    best: Array  # by each sample
    cost: GaussianProcess | None = None

    def value(self, features: Array) -> Array:
        """Return one number for each row of features."""
        mean, deviation = self.process.predict(features)
        logs, _, _ = log_improvement(mean, deviation, self.best[:, None])
        value = _log_mean(logs)
        return value if self.cost is None else value - self.cost.predict(features)[0][0]

    def value_and_gradient(self, features: Array) -> tuple[Array, Array]:
        """Return the same, and its gradients by the features."""
        mean, deviation, by_mean, by_deviation = self.process.predict_with_gradients(features)
        logs, mean_slope, deviation_slope = log_improvement(mean, deviation, self.best[:, None])
        value = _log_mean(logs)
        share = np.exp(logs - value) / len(logs)
        gradient = (share * mean_slope)[..., None] * by_mean + (share * deviation_slope)[..., None] * by_deviation
        total = gradient.sum(axis=0)
        if self.cost is not None:
            spent, _, by_spent, _ = self.cost.predict_with_gradients(features)
            value, total = value - spent[0], total - by_spent[0]
        return value, total


@dataclass(frozen=True, slots=True)
class Bound:
    """The lower confidence bound, turned round: how good a point may well be."""

    process: GaussianProcess
    beta: float

    def value(self, features: Array) -> Array:
        """Return one number for each row of features."""
        mean, deviation = self.process.predict(features)
        return np.asarray((self.beta * deviation - mean).mean(axis=0))

    def value_and_gradient(self, features: Array) -> tuple[Array, Array]:
        """Return the same, and its gradients by the features."""
        mean, deviation, by_mean, by_deviation = self.process.predict_with_gradients(features)
        return (self.beta * deviation - mean).mean(axis=0), (self.beta * by_deviation - by_mean).mean(axis=0)


def _log_mean(logs: Array) -> Array:
    top = logs.max(axis=0)
    return np.asarray(top + np.log(np.exp(logs - top).mean(axis=0)))
