"""The probability that a trial succeeds, from those that did and those that failed: a region to avoid, no bad value.

A second Gaussian process is fitted to what became of trials, 1 for success and -1 for failure (least-squares
classification; Rasmussen and Williams 2006, 6.5); a point succeeds where it comes out above 0. Every criterion is then
weighed by that probability, as Gelbart et al. 2014 and Lee et al. 2011 do with expected improvement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regiondag.tuning.gp.acquisition import LOG_ROOT, Criterion, normal_cdf
from regiondag.tuning.gp.process import GaussianProcess, Observed

Array = NDArray[np.float64]

FARTHEST = -30.0  # deviations below: as sure to fail as can be


@dataclass(frozen=True, slots=True)
class Success:
    """The log of the probability of success."""

    process: GaussianProcess  # of one theta
    middle: float  # of its targets: above, trials succeed

    def value(self, features: Array) -> Array:
        """Return one number, 0 or below, for each row of features."""
        mean, deviation = self.process.predict(features)
        return np.asarray(np.log(normal_cdf(self._z(mean[0], deviation[0])[0])))

    def value_and_gradient(self, features: Array) -> tuple[Array, Array]:
        """Return the same, and its gradients by the features."""
        mean, deviation, by_mean, by_deviation = (each[0] for each in self.process.predict_with_gradients(features))
        z, spread = self._z(mean, deviation)
        cdf = normal_cdf(z)
        ratio = np.where(z > FARTHEST, np.exp(-0.5 * z * z - LOG_ROOT) / cdf, 0.0)
        slope = by_mean / spread[:, None] - (z * deviation / spread**2)[:, None] * by_deviation
        return np.log(cdf), ratio[:, None] * slope

    def _z(self, mean: Array, deviation: Array) -> tuple[Array, Array]:
        spread = np.sqrt(deviation**2 + self.process.noise[0])
        return np.maximum((mean - self.middle) / spread, FARTHEST), spread


@dataclass(frozen=True, slots=True)
class Likely:
    """A criterion, and the log of the probability that the point succeeds: of log improvement, their product's log."""

    criterion: Criterion
    success: Success

    def value(self, features: Array) -> Array:
        """Return one number for each row of features."""
        return self.criterion.value(features) + self.success.value(features)

    def value_and_gradient(self, features: Array) -> tuple[Array, Array]:
        """Return the same, and its gradients by the features."""
        value, gradient = self.criterion.value_and_gradient(features)
        likely, slope = self.success.value_and_gradient(features)
        return value + likely, gradient + slope


def model_success(
    features: Array,
    failed: NDArray[np.bool_],
    groups: NDArray[np.intp],
    fit: Callable[[Observed], GaussianProcess],
) -> Success:
    """Return the model of trials of which some failed and some did not."""
    outcomes = np.where(failed, -1.0, 1.0)
    mean, deviation = outcomes.mean(), outcomes.std()
    return Success(fit(Observed(features, (outcomes - mean) / deviation, groups)), float(-mean / deviation))
