"""The processes against NumPy's and SciPy's own solutions, one matrix at a time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize
from scipy.stats import multivariate_normal, norm

from regiondag.tuning.gp import process as gaussian
from regiondag.tuning.gp.process import (
    JITTER,
    GaussianProcess,
    Observed,
    Posterior,
    cholesky,
    invert_lower,
    prior_of,
)

THETA = np.array([[-0.5, 0.2, 0.7, 0.1, -4.0], [0.3, -0.6, 0.1, 0.4, -6.0], [-1.2, 0.0, -0.3, -0.8, -1.0]])
THERE = np.random.default_rng(1).random((5, 4))
GROUPS = np.array([0, 1, 1, 2])  # which parameter a feature belongs to


def data_of(count=12, sources=None, **more):
    random = np.random.default_rng(3)
    features = random.random((count, 4))
    targets = (
        np.sin(4 * features[:, 0])
        + features[:, 1]
        - features[:, 2] ** 2 * features[:, 3]
        + 0.1 * random.standard_normal(count)
    )
    return Observed(features, targets - targets.mean(), GROUPS, sources, **more)


def two_sources():
    sources = np.repeat([0, 1, 2], 4)
    return data_of(
        12,
        sources,
        similarity=np.array([1.0, 0.8, -0.3]),
        scales=np.array([1.0, 0.5, 1.4]),
        noises=np.array([2.0, 5.0, 0.5]),
    )


def matern(theta, left, right):
    lengths = np.exp(theta[:-2])[GROUPS]
    result = np.empty((len(left), len(right)))
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            r = math.sqrt(sum(((x - y) / length) ** 2 for x, y, length in zip(a, b, lengths, strict=True)))
            result[i, j] = math.exp(theta[-2]) * (1 + math.sqrt(5) * r + 5 * r * r / 3) * math.exp(-math.sqrt(5) * r)
    return result


def covariance_of(data, theta):
    """Return the covariance of the targets, written out pair by pair."""
    kernel, count = matern(theta, data.features, data.features), len(data.targets)
    result = np.empty((count, count))
    for i in range(count):
        for j in range(count):
            share = 1.0
            if data.sources is not None:
                a, b = data.sources[i], data.sources[j]
                share = data.scales[a] * data.scales[b] * (1.0 if a == b else data.similarity[a] * data.similarity[b])
            noise = 1.0 if data.noises is None else data.noises[data.sources[i]]
            result[i, j] = share * kernel[i, j] + (math.exp(theta[-1]) * noise + JITTER if i == j else 0.0)
    return result


@pytest.mark.parametrize("data", [data_of(), two_sources()], ids=["one source", "three sources"])
def test_the_energy_is_scipys_logarithm_of_the_density(data):
    posterior = Posterior(data)
    constant = 0.5 * len(data.targets) * math.log(2 * math.pi)
    prior = prior_of(3)
    normal = 0.5 * 5 * math.log(2 * math.pi) + np.log(prior.sd).sum()
    for theta, energy in zip(THETA, posterior.energy(THETA), strict=True):
        likelihood = multivariate_normal(cov=covariance_of(data, theta)).logpdf(data.targets)
        believed = norm(prior.mean, prior.sd).logpdf(theta).sum()
        assert energy == pytest.approx(-likelihood - constant - believed - normal)


@pytest.mark.parametrize("data", [data_of(), two_sources()], ids=["one source", "three sources"])
def test_the_gradient_of_the_energy_is_its_differences(data):
    posterior = Posterior(data)
    energy, gradient = posterior.energy_and_gradient(THETA)
    assert energy == pytest.approx(posterior.energy(THETA))
    for column in range(5):
        move = 1e-5 * np.eye(5)[column]
        expected = (posterior.energy(THETA + move) - posterior.energy(THETA - move)) / 2e-5
        assert gradient[:, column] == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("data", [data_of(), two_sources()], ids=["one source", "three sources"])
def test_predictions_are_those_of_a_plain_solution(data):
    process = GaussianProcess(data, THETA)
    means, deviations = process.predict(THERE)
    for row, theta in enumerate(THETA):
        cross = matern(theta, THERE, data.features)
        if data.sources is not None:
            cross = cross * (data.scales * data.similarity)[data.sources]
        solved = np.linalg.solve(covariance_of(data, theta), np.column_stack([data.targets, cross.T]))
        assert means[row] == pytest.approx(cross @ solved[:, 0])
        assert deviations[row] ** 2 == pytest.approx(math.exp(theta[-2]) - (cross * solved[:, 1:].T).sum(axis=1))


@pytest.mark.parametrize("data", [data_of(), two_sources()], ids=["one source", "three sources"])
def test_the_gradients_of_predictions_are_their_differences(data):
    process = GaussianProcess(data, THETA)
    means, deviations, by_mean, by_deviation = process.predict_with_gradients(THERE)
    for found, expected in zip((means, deviations), process.predict(THERE), strict=True):
        assert found == pytest.approx(expected)
    for column in range(4):
        move = 1e-6 * np.eye(4)[column]
        ups, downs = process.predict(THERE + move), process.predict(THERE - move)
        assert by_mean[..., column] == pytest.approx((ups[0] - downs[0]) / 2e-6, rel=1e-4, abs=1e-6)
        assert by_deviation[..., column] == pytest.approx((ups[1] - downs[1]) / 2e-6, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("data", [data_of(), two_sources()], ids=["one source", "three sources"])
def test_what_is_believed_is_as_if_it_had_been_observed_as_predicted(data):
    process = GaussianProcess(data, THETA)
    means, _ = process.predict(THERE)
    process.believe(THERE[:3])
    after, smaller = process.predict(THERE)
    assert after == pytest.approx(means)
    for row, theta in enumerate(THETA):
        noise = math.exp(theta[-1]) * (1.0 if data.noises is None else data.noises[0]) + JITTER
        cross = matern(theta, THERE, data.features)
        if data.sources is not None:
            cross = cross * (data.scales * data.similarity)[data.sources]
        joint = matern(theta, THERE, THERE) - cross @ np.linalg.solve(covariance_of(data, theta), cross.T)
        seen = joint[:, :3]
        rest = joint - seen @ np.linalg.solve(joint[:3, :3] + noise * np.eye(3), seen.T)
        assert smaller[row] ** 2 == pytest.approx(np.diag(rest), rel=1e-5, abs=1e-9)


def test_deviations_never_vanish_and_are_level_there():
    sure = Observed(np.array([[0.5, 0.5, 0.5, 0.5]]), np.zeros(1), GROUPS)
    process = GaussianProcess(sure, np.array([[0.0, 0.0, 0.0, 0.0, -40.0]]))
    process.believe(sure.features.repeat(30, axis=0))  # until the jitter is outweighed
    _, deviations = process.predict(sure.features)
    assert 0.9e-5 <= deviations[0, 0] < 1e-3
    _, deviation, _, by_deviation = process.predict_with_gradients(sure.features)
    assert deviation == pytest.approx(deviations) and np.isfinite(by_deviation).all()
    faint = GaussianProcess(data_of(), np.array([[0.0, 0.0, 0.0, -25.0, -4.0]]))
    _, deviation, _, by_deviation = faint.predict_with_gradients(THERE)
    assert (deviation == 1e-5).all() and (faint.predict(THERE)[1] == 1e-5).all() and (by_deviation == 0).all()


def test_the_prior_expects_lengths_of_half_the_diagonal_and_little_noise():
    for parameters in (1, 2, 5, 8):
        prior = prior_of(parameters)
        assert np.exp(prior.mean[:-2]) == pytest.approx([0.5 * math.sqrt(parameters / 2)] * parameters)
        assert np.exp(prior.mean[-2:]) == pytest.approx([1.0, 1e-3], rel=0.1)
        within = np.exp(2 * prior.sd)  # nearly always, so many times more or less
        assert within == pytest.approx([6.0] * parameters + [7.4, 30.0], rel=0.01)
        assert np.exp(prior.low) == pytest.approx([0.01] * parameters + [0.02, 1e-6])
        assert np.exp(prior.high) == pytest.approx([30.0] * parameters + [50.0, 2.0])
        assert (prior.low < prior.mean).all() and (prior.mean < prior.high).all()


@pytest.mark.parametrize("data", [data_of(20), two_sources()], ids=["one source", "three sources"])
def test_the_mode_is_as_good_as_scipys_from_many_starts(data):
    posterior, prior = Posterior(data), prior_of(3)

    def alone(theta):
        energy, gradient = posterior.energy_and_gradient(theta[None])
        return energy[0], gradient[0]

    starts = [prior.mean, *np.random.default_rng(0).uniform(prior.low, prior.high, (5, 5))]
    bounds = list(zip(prior.low, prior.high, strict=True))
    best = min(optimize.minimize(alone, s, jac=True, method="L-BFGS-B", bounds=bounds).fun for s in starts)
    mode = posterior.mode(np.random.default_rng(0))
    assert posterior.energy(mode[None])[0] == pytest.approx(best, abs=1e-3)
    assert (mode >= prior.low).all() and (mode <= prior.high).all()


def test_the_mode_is_that_of_the_best_start():
    data = data_of(9)
    posterior = Posterior(data)
    modes = [posterior.mode(np.random.default_rng(1), restarts) for restarts in (0, 1, 4)]
    energies = [posterior.energy(mode[None])[0] for mode in modes]
    assert energies[0] >= energies[1] - 1e-6 and energies[1] >= energies[2] - 1e-6
    prior = prior_of(3)
    start = posterior.mode(np.random.default_rng(1), 0, 0)
    assert start == pytest.approx(prior.mean)  # that of the prior is always one of them
    assert (posterior.mode(np.random.default_rng(1), 3, 40) == posterior.mode(np.random.default_rng(1), 3, 40)).all()


def test_other_starts_are_drawn_from_a_narrower_prior(monkeypatch):
    started = []
    monkeypatch.setattr(gaussian, "minimise", lambda f, starts, *_: started.append(starts) or (starts, np.arange(401)))
    Posterior(data_of()).mode(np.random.default_rng(2), 400)
    [starts] = started
    prior = prior_of(3)
    assert starts[0] == pytest.approx(prior.mean)
    assert starts[1:].mean(axis=0) == pytest.approx(prior.mean, abs=0.25)
    assert starts[1:].std(axis=0) == pytest.approx(0.8 * prior.sd, rel=0.15)


def test_some_points_of_several_sources_keep_their_source():
    data = two_sources()
    chosen = np.array([0, 5, 11])
    some = data.take(chosen)
    assert (some.features == data.features[chosen]).all() and (some.targets == data.targets[chosen]).all()
    assert some.sources.tolist() == [0, 1, 2] and some.similarity is data.similarity and some.noises is data.noises
    assert data_of().take(chosen).sources is None
    expected = covariance_of(data, THETA[0])[np.ix_(chosen, chosen)]
    assert Posterior(some)._covariance(THETA[:1])[0][0] == pytest.approx(expected)


def test_what_is_not_said_of_sources_is_one():
    sources, similarity = np.array([0, 0, 1, 1]), np.array([1.0, 0.5])
    plain = data_of(4, sources, similarity=similarity)
    assert plain.toward.tolist() == [1.0, 1.0, 0.5, 0.5] and plain.noisy.tolist() == [1.0] * 4
    expected = [[1, 1, 0.5, 0.5], [1, 1, 0.5, 0.5], [0.5, 0.5, 1, 1], [0.5, 0.5, 1, 1]]
    assert plain.shares.tolist() == expected
    same = data_of(4, sources, similarity=similarity, scales=np.ones(2), noises=np.ones(2))
    assert (same.shares == plain.shares).all() and Posterior(same).energy(THETA) == pytest.approx(
        Posterior(plain).energy(THETA)
    )
    unlike = data_of(4, sources)  # that no similarity is known says nothing against the points
    assert unlike.toward.tolist() == [1.0] * 4
    own = data_of(4)
    assert own.toward.tolist() == own.noisy.tolist() == [1.0] * 4 and own.shares.tolist() == [[1.0]]
    assert own.parameters == 3


def test_squared_differences_are_those_of_each_parameter():
    data = data_of(4)
    squares = data.squares().reshape(3, 4, 4)
    for i in range(4):
        for j in range(4):
            apart = (data.features[i] - data.features[j]) ** 2
            assert squares[:, i, j] == pytest.approx([apart[0], apart[1] + apart[2], apart[3]])
    with pytest.raises(ValueError):
        replace(data, groups=GROUPS[:3]).squares()


def test_factors_are_numpys_with_more_jitter_where_it_is_needed():
    good, flat = np.array([[2.0, 0.5], [0.5, 1.0]]), 3.0 * np.ones((2, 2))
    hopeless = np.array([[1.0, 2.0], [2.0, 1.0]])
    lower, fine = cholesky(np.stack([good, good]))
    assert fine.all() and lower[1] == pytest.approx(np.linalg.cholesky(good))
    slightly = np.array([[1.0, 1.0 + 1e-5], [1.0 + 1e-5, 1.0]])  # 1e-6 is not enough, 1e-4 is
    lower, fine = cholesky(np.stack([good, hopeless, slightly, flat - 1e-9 * np.eye(2)]))
    assert fine.tolist() == [True, False, True, True]
    assert lower[0] == pytest.approx(np.linalg.cholesky(good)) and (lower[1] == np.eye(2)).all()
    assert lower[2] @ lower[2].T == pytest.approx(slightly + 1e-4 * np.eye(2), abs=1e-12)
    assert lower[3] @ lower[3].T == pytest.approx(flat - 1e-9 * np.eye(2) + 3e-6 * np.eye(2), abs=1e-12)
    barely = np.array([[1.0, 1.0 + 5e-3], [1.0 + 5e-3, 1.0]])
    assert cholesky(barely[None])[1].all() and not cholesky(barely[None] - np.eye(2) * 0.1)[1].any()


@pytest.mark.parametrize("ask", ["energy", "energy_and_gradient"])
def test_what_has_no_factor_is_infinitely_bad(monkeypatch, ask):
    monkeypatch.setattr(gaussian, "cholesky", lambda c: (np.tile(np.eye(12), (3, 1, 1)), np.array([1, 0, 1], bool)))
    found = getattr(Posterior(data_of()), ask)(THETA)
    energy = found[0] if ask == "energy_and_gradient" else found
    assert np.isinf(energy).tolist() == [False, True, False] and energy[1] > 0


@pytest.mark.parametrize("count", [1, 2, 16, 17, 33, 120])
def test_lower_triangular_matrices_are_inverted_by_halves(count):
    random = np.random.default_rng(count)
    lower = np.tril(random.standard_normal((3, count, count))) / count + 2 * np.eye(count)
    inverse = invert_lower(lower)
    assert inverse == pytest.approx(np.linalg.inv(lower), rel=1e-10, abs=1e-12)
    assert not np.triu(inverse, 1).any()
