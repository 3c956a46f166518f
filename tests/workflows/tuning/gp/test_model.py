"""The mathematics under the default method: gradients against differences, predictions against textbook formulas."""

import math
import statistics

import numpy as np
import pytest

from regiondag.tuning.gp import training_set
from regiondag.tuning.gp.acquisition import Bound, Improvement, log_improvement, normal_cdf
from regiondag.tuning.gp.bfgs import minimise
from regiondag.tuning.gp.process import GaussianProcess, Observed, Posterior
from regiondag.tuning.sharing import Observation
from regiondag.tuning.sobol import BITS, DIMENSIONS, _columns, sobol_point

THETA = np.array([[-0.5, 0.2, 0.1, -4.0], [0.3, -0.6, 0.4, -6.0]])


@pytest.fixture
def data():
    random = np.random.default_rng(3)
    features = random.random((14, 3))
    targets = np.sin(4 * features[:, 0]) + features[:, 1] - features[:, 2] ** 2
    return Observed(features, targets - targets.mean(), np.array([0, 1, 1]))


def differences(function, rows, size=1e-5):
    moves = np.eye(rows.shape[1]) * size
    return np.stack([(function(rows + move) - function(rows - move)) / (2 * size) for move in moves], axis=-1)


def kernel(data, theta, left, right):
    scale = np.exp(-theta[:-2])[data.groups]
    distance = math.sqrt(5) * np.linalg.norm((left[:, None] - right[None]) * scale, axis=2)
    return np.exp(theta[-2]) * (1 + distance + distance**2 / 3) * np.exp(-distance)


def test_the_gradient_of_the_posterior(data):
    posterior = Posterior(data)
    energy, gradient = posterior.energy_and_gradient(THETA)
    assert energy == pytest.approx(posterior.energy(THETA))
    assert gradient == pytest.approx(differences(posterior.energy, THETA), rel=1e-4, abs=1e-4)


def test_the_likelihood_is_the_textbooks(data):
    posterior = Posterior(data)
    for theta in THETA:
        covariance = kernel(data, theta, data.features, data.features)
        covariance += np.eye(14) * (np.exp(theta[-1]) + 1e-8)
        expected = 0.5 * data.targets @ np.linalg.solve(covariance, data.targets)
        expected += 0.5 * np.linalg.slogdet(covariance)[1]
        prior = posterior.prior
        expected += 0.5 * (((theta - prior.mean) / prior.sd) ** 2).sum()
        assert posterior.energy(theta[None])[0] == pytest.approx(expected)


def test_predictions_are_the_textbooks(data):
    process = GaussianProcess(data, THETA)
    there = np.random.default_rng(1).random((5, 3))
    means, deviations = process.predict(there)
    for row, theta in enumerate(THETA):
        covariance = kernel(data, theta, data.features, data.features)
        covariance += np.eye(14) * (np.exp(theta[-1]) + 1e-8)
        cross = kernel(data, theta, there, data.features)
        assert means[row] == pytest.approx(cross @ np.linalg.solve(covariance, data.targets))
        variance = np.exp(theta[-2]) - np.einsum("ij,ji->i", cross, np.linalg.solve(covariance, cross.T))
        assert deviations[row] ** 2 == pytest.approx(variance, rel=1e-5)


def test_what_is_believed_leaves_means_and_shrinks_deviations(data):
    process, there = GaussianProcess(data, THETA), np.random.default_rng(1).random((5, 3))
    means, deviations = process.predict(there)
    process.believe(there[:2])
    after, smaller = process.predict(there)
    assert after == pytest.approx(means) and (smaller <= deviations + 1e-9).all()
    assert (smaller[:, :2] < np.exp(THETA[:, -1:] / 2)).all()  # no more than the noise is left
    for row, theta in enumerate(THETA):
        told = Observed(
            np.vstack([data.features, there[:2]]), np.concatenate([data.targets, means[row, :2]]), data.groups
        )
        assert GaussianProcess(told, theta[None]).predict(there)[1][0] == pytest.approx(smaller[row])


@pytest.mark.parametrize("kind", ["improvement", "per second", "bound"])
def test_the_gradients_of_criteria(data, kind):
    process = GaussianProcess(data, THETA)
    best = process.predict(data.features)[0].min(axis=1)
    cost = (
        GaussianProcess(Observed(data.features, data.features[:, 0], data.groups), THETA[:1])
        if kind == "per second"
        else None
    )
    criterion = Bound(process, 1.5) if kind == "bound" else Improvement(process, best, cost)
    there = np.random.default_rng(2).random((6, 3))
    value, gradient = criterion.value_and_gradient(there)
    assert value == pytest.approx(criterion.value(there))
    assert gradient == pytest.approx(differences(criterion.value, there, 1e-6), rel=1e-3, abs=1e-3)


def test_the_normal_distribution():
    z = np.linspace(-30, 8, 500)
    expected = [statistics.NormalDist().cdf(x) if x > -5 else 0.5 * math.erfc(-x / math.sqrt(2)) for x in z]
    assert normal_cdf(z) == pytest.approx(expected, rel=3e-7)


def test_the_logarithm_of_improvement_is_smooth_where_the_formula_changes():
    z = np.linspace(-7, -5, 2001)
    value, by_mean, by_deviation = log_improvement(-z, np.ones_like(z), np.zeros_like(z))
    assert np.abs(np.diff(value)).max() < 0.08 and np.isfinite(by_mean).all() and np.isfinite(by_deviation).all()
    far = log_improvement(np.array([1e3]), np.array([1e-3]), np.zeros(1))
    assert all(np.isfinite(part).all() for part in far)


def test_the_mode_is_where_the_gradient_ends(data):
    posterior = Posterior(data)
    mode = posterior.mode(np.random.default_rng(0))
    assert np.abs(posterior.energy_and_gradient(mode[None])[1]).max() < 1e-2


def test_the_minimiser_finds_valleys_and_corners():
    def valley(rows):
        x, y = rows.T
        gradient = np.stack([-400 * x * (y - x * x) - 2 * (1 - x), 200 * (y - x * x)], axis=1)
        return 100 * (y - x * x) ** 2 + (1 - x) ** 2, gradient

    starts = np.array([[-1.2, 1.0], [1.5, 1.8], [0.0, 0.0]])
    ends, values = minimise(valley, starts, np.full(2, -2.0), np.full(2, 2.0), 100)
    assert ends == pytest.approx(np.ones((3, 2)), abs=1e-3) and values.max() < 1e-6
    ends, _ = minimise(valley, starts, np.full(2, -2.0), np.full(2, 0.5), 100)
    assert ends == pytest.approx(np.tile([0.5, 0.25], (3, 1)), abs=1e-3)


def test_warped_losses():
    targets = training_set.warp([1.0, 2.0, 3.0, 4.0, 1e30, None])
    assert targets[4] == targets[5] == targets.max() and targets.std() == pytest.approx(1)
    assert list(np.argsort(targets[:5])) == [0, 1, 2, 3, 4]
    assert targets[1] - targets[0] > 0.005
    assert (training_set.warp([2.0, 2.0]) == 0).all() and (training_set.warp([None, None]) == 1).all()


def test_failures_are_worse_than_successes_that_are_all_equal():
    targets = training_set.warp([0.0] * 5 + [None] * 3)
    assert targets[5:].min() > targets[:5].max() and targets.std() == pytest.approx(1)


def test_losses_at_the_end_of_what_a_number_can_be():
    targets = training_set.warp([1.7e308] * 6 + [1.6e308] * 6 + [1.0])
    assert np.isfinite(targets).all() and targets[12] < targets[:12].min()


def test_a_long_history_is_cut_to_the_best_and_the_latest():
    history = [Observation({"x": n}, None if n % 7 == 0 else float(n % 601)) for n in range(1200)]
    kept = training_set.choose_most_telling(history)
    assert len(kept) == training_set.MOST and kept[-1] is history[-1]
    assert {o.loss for o in kept} >= set(map(float, range(1, 7))) and training_set.choose_most_telling(
        history[:400]
    ) == history[:400]


def test_the_table_of_sobol_numbers_is_scipys():
    from scipy.stats import qmc

    expected = qmc.Sobol(DIMENSIONS, scramble=False, bits=BITS).random(32)
    columns = [_columns(dimension) for dimension in range(DIMENSIONS)]
    for index, row in enumerate(expected):
        gray = index ^ (index >> 1)
        for dimension, value in enumerate(row):
            digits = 0
            for bit in range(6):
                digits ^= columns[dimension][bit] if gray >> bit & 1 else 0
            assert digits / 2**BITS == value


def test_scrambled_sobol_points_keep_their_balance():
    points = [sobol_point(DIMENSIONS + 2, index, 5) for index in range(64)]
    for column in list(zip(*points, strict=True))[:DIMENSIONS]:
        assert sorted(int(value * 64) for value in column) == list(range(64))
    assert points[3] != sobol_point(DIMENSIONS + 2, 3, 6) and all(0 <= value < 1 for value in points[0])
