"""What a point is worth, against SciPy's normal distribution and against integrals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special
from scipy.stats import norm

from regiondag.tuning.gp import acquisition
from regiondag.tuning.gp.acquisition import Bound, Improvement, log_improvement, normal_cdf
from regiondag.tuning.gp.process import GaussianProcess, Observed

THETA = np.array([[-0.5, 0.2, 0.1, -4.0], [0.3, -0.6, 0.4, -6.0]])
THERE = np.random.default_rng(1).random((5, 3))


@pytest.fixture
def process():
    features = np.random.default_rng(3).random((9, 3))
    return GaussianProcess(Observed(features, np.sin(5 * features[:, 0]), np.array([0, 1, 1])), THETA)


@pytest.fixture
def cost():
    features = np.random.default_rng(4).random((7, 3))
    return GaussianProcess(Observed(features, features[:, 1], np.array([0, 1, 1])), THETA[:1])


def log_of_improvement(z):
    """Return log(pdf(z) + z cdf(z)), as exact below as above, and the share of each part."""
    mills = math.sqrt(math.pi / 2) * special.erfcx(-z / math.sqrt(2))  # cdf / pdf
    return norm.logpdf(z) + np.log1p(z * mills), mills / (1 + z * mills), 1 / (1 + z * mills)


def test_the_distribution_function_is_scipys():
    z = np.linspace(-37, 8, 901)
    assert normal_cdf(z) == pytest.approx(norm.cdf(z), rel=2.1e-7)
    assert normal_cdf(np.zeros(1))[0] == pytest.approx(0.5, rel=2e-7)


@pytest.mark.parametrize(("mean", "deviation", "best"), [(0.3, 0.5, 0.1), (-1.0, 0.2, -1.1), (2.0, 3.0, 4.0)])
def test_expected_improvement_is_the_integral_of_the_improvement(mean, deviation, best):
    def gained(value):
        return (best - value) * norm.pdf(value, mean, deviation)

    expected = integrate.quad(gained, mean - 12 * deviation, best)[0]
    found, _, _ = log_improvement(np.array([mean]), np.array([deviation]), np.array([best]))
    assert math.exp(found[0]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("deviation", [0.25, 1.0, 3.0])
def test_the_logarithm_and_its_slopes_are_exact_near_and_far(deviation):
    z = np.concatenate([np.linspace(-7.9, 6, 300), np.linspace(-60, -8.1, 200)])
    best = np.full(len(z), 0.7)
    value, by_mean, by_deviation = log_improvement(best - z * deviation, np.full(len(z), deviation), best)
    expected, cdf_share, density_share = log_of_improvement(z)
    near = z > -6
    assert value == pytest.approx(expected + math.log(deviation), abs=1e-3)
    assert value[near] == pytest.approx(expected[near] + math.log(deviation), abs=2e-5)
    assert by_mean == pytest.approx(-cdf_share / deviation, rel=2e-3)
    assert by_deviation == pytest.approx(density_share / deviation, rel=2e-3)
    assert by_mean[z < -20] == pytest.approx(-cdf_share[z < -20] / deviation, rel=1e-6)
    assert by_deviation[z < -20] == pytest.approx(density_share[z < -20] / deviation, rel=2e-5)
    assert value[z < -20] == pytest.approx(expected[z < -20] + math.log(deviation), abs=2e-5)


def test_far_below_no_more_is_wrong_than_the_first_term_left_out_of_the_series():
    z = np.linspace(-50, -40, 11)
    value, by_mean, by_deviation = log_improvement(-z, np.ones(11), np.zeros(11))
    expected, cdf_share, density_share = log_of_improvement(z)
    term = 945 / z**8
    assert (np.abs(value - expected) < 1.1 * term).all()
    assert (np.abs(by_mean / -cdf_share - 1) < 1.1 * term).all()
    assert (np.abs(by_deviation / density_share - 1) < 1.1 * term).all()


def test_hopeless_points_are_still_told_apart():
    z = -np.geomspace(40, 1e8, 30)
    value, by_mean, by_deviation = log_improvement(-z, np.ones(30), np.zeros(30))
    assert value == pytest.approx(norm.logpdf(z) - 2 * np.log(-z), rel=2e-3, abs=1e-3)
    assert by_mean == pytest.approx(z, rel=2e-3) and by_deviation == pytest.approx(z * z, rel=5e-3)


def test_good_points_are_worth_what_they_gain():
    value, by_mean, by_deviation = log_improvement(np.array([-50.0]), np.ones(1), np.zeros(1))
    assert value[0] == pytest.approx(math.log(50.0)) and by_mean[0] == pytest.approx(-1 / 50)
    assert by_deviation[0] == pytest.approx(0.0, abs=1e-9)


def test_improvement_is_averaged_over_the_samples(process):
    best = np.array([-0.4, -0.2])
    means, deviations = process.predict(THERE)
    z = (best[:, None] - means) / deviations
    expected = (deviations * (norm.pdf(z) + z * norm.cdf(z))).mean(axis=0)
    assert Improvement(process, best).value(THERE) == pytest.approx(np.log(expected), abs=1e-4)
    assert Improvement(process, best).value_and_gradient(THERE)[0] == pytest.approx(np.log(expected), abs=1e-4)


def test_improvement_per_second_is_divided_by_what_a_trial_costs(process, cost):
    best = np.array([-0.4, -0.2])
    free, priced = Improvement(process, best), Improvement(process, best, cost)
    seconds = np.exp(cost.predict(THERE)[0][0])
    assert np.exp(priced.value(THERE)) == pytest.approx(np.exp(free.value(THERE)) / seconds)
    value, gradient = priced.value_and_gradient(THERE)
    assert value == pytest.approx(priced.value(THERE))
    slopes = cost.predict_with_gradients(THERE)[2][0]
    assert gradient == pytest.approx(free.value_and_gradient(THERE)[1] - slopes)


def test_a_bound_is_what_a_point_may_well_be(process):
    means, deviations = process.predict(THERE)
    for beta in (0.0, 1.0, 2.5):
        expected = -(means - beta * deviations).mean(axis=0)
        assert Bound(process, beta).value(THERE) == pytest.approx(expected)
        assert Bound(process, beta).value_and_gradient(THERE)[0] == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["improvement", "per second", "bound"])
def test_gradients_are_differences(process, cost, kind):
    best = np.array([-0.4, -0.2])
    criterion = Bound(process, 1.5) if kind == "bound" else Improvement(process, best, cost if "per" in kind else None)
    gradient = criterion.value_and_gradient(THERE)[1]
    for column in range(3):
        move = 1e-6 * np.eye(3)[column]
        expected = (criterion.value(THERE + move) - criterion.value(THERE - move)) / 2e-6
        assert gradient[:, column] == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_means_of_logarithms_far_below_what_a_number_can_be():
    logs = np.array([[-2000.0, 0.0], [-2000.0, -3.0], [-2001.0, -1e4]])
    assert acquisition._log_mean(logs) == pytest.approx(special.logsumexp(logs, axis=0) - math.log(3))
