"""The probability of success, and criteria weighed by it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from regiondag.tuning.gp.acquisition import Bound, Improvement
from regiondag.tuning.gp.process import GaussianProcess, Observed
from regiondag.tuning.gp.success import FARTHEST, Likely, model_success

GROUPS = np.arange(2)
THETA = np.array([[math.log(0.4), math.log(0.7), 0.0, -5.0]])


def process(data):
    return GaussianProcess(data, THETA)


def told(seed=0, count=12):
    """Trials that fail where the first feature is large."""
    features = np.random.default_rng(seed).random((count, 2))
    return features, features[:, 0] > 0.6


def test_the_probability_is_that_of_a_value_above_the_middle():
    features, failed = told()
    success = model_success(features, failed, GROUPS, process)
    there = np.random.default_rng(1).random((50, 2))
    outcomes = np.where(failed, -1.0, 1.0)
    mean, deviation = outcomes.mean(), outcomes.std()
    means, deviations = process(Observed(features, (outcomes - mean) / deviation, GROUPS)).predict(there)
    of_outcome, spread = means[0] * deviation + mean, deviation * np.sqrt(deviations[0] ** 2 + math.exp(-5.0))
    assert success.value(there) == pytest.approx(norm.logcdf(of_outcome / spread), rel=1e-5, abs=1e-6)


def test_trials_succeed_near_successes_and_fail_near_failures_and_elsewhere_as_often_as_so_far():
    features, failed = told()
    success = model_success(features, failed, GROUPS, process)
    seen = np.exp(success.value(features))
    assert (seen[failed] < 0.1).all() and (seen[~failed] > 0.9).all()
    far = np.exp(success.value(np.array([[50.0, 50.0]])))[0]
    z = (1 - 2 * failed.mean()) / np.where(failed, -1.0, 1.0).std()
    assert far == pytest.approx(norm.cdf(z / math.sqrt(1 + math.exp(-5.0))), abs=1e-6)


@pytest.mark.parametrize("kind", [Improvement, Bound])
@given(seed=st.integers(0, 20))
def test_the_gradient_is_that_of_the_value(kind, seed):
    features, failed = told(seed, 9)
    failed[0] = not failed[0:1].all()
    success = model_success(features, failed, GROUPS, process)
    losses = process(Observed(features, np.random.default_rng(seed).standard_normal(9), GROUPS))
    criterion = Likely(kind(losses, np.array([-0.5]) if kind is Improvement else 1.5), success)
    there = np.random.default_rng(seed + 100).random((5, 2))
    value, gradient = criterion.value_and_gradient(there)
    assert value == pytest.approx(criterion.value(there))
    for column in range(2):
        step = np.zeros(2)
        step[column] = 1e-6
        slope = (criterion.value(there + step) - criterion.value(there - step)) / 2e-6
        assert gradient[:, column] == pytest.approx(slope, rel=1e-3, abs=1e-3)


def test_what_is_sure_to_fail_has_a_finite_value():
    features, failed = told(count=30)
    sharp = model_success(
        features, failed, GROUPS, lambda data: GaussianProcess(data, np.array([[-3.0, -3.0, 3.9, -13.8]]))
    )
    value, gradient = sharp.value_and_gradient(features)
    assert np.isfinite(value).all() and np.isfinite(gradient).all()
    assert value.min() >= norm.logcdf(FARTHEST) - 1e-3
