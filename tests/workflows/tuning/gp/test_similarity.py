"""How alike regions are and how much is chance, against likelihoods that SciPy computes one by one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from regiondag.tuning.gp import similarity
from regiondag.tuning.gp.process import Observed
from regiondag.tuning.gp.similarity import GRID, NOISES, USUAL, USUAL_EARLIER, estimate_noises, estimate_similarities

GROUPS = np.array([0, 1, 1])
LENGTHS = (0.5, 1.0, 2.0)


def region(count, seed, slope=1.0, noise=0.0):
    random = np.random.default_rng(seed)
    features = random.random((count, 3))
    targets = slope * np.sin(4 * features[:, 0]) + features[:, 1] * slope
    targets = math.sqrt(1 - noise) * (targets - targets.mean()) / targets.std()
    targets = targets + math.sqrt(noise) * random.standard_normal(count)
    return Observed(features, (targets - targets.mean()) / targets.std(), GROUPS)


def flat(count, seed=0):
    return replace(region(max(count, 2), seed).take(np.arange(count)), targets=np.zeros(count))


def kernels(features):
    """Return Matern correlations for half, once and twice the length that the prior of two parameters expects."""
    usual = 0.5 * math.sqrt(2 / 2)
    apart = [math.sqrt(5) * cdist(features, features) / (times * usual) for times in LENGTHS]
    return [(1 + d + d * d / 3) * np.exp(-d) for d in apart]


def log_likelihood(covariances, targets):
    """Return the logarithm of the mean density, less what is the same for all covariances."""
    logs = [multivariate_normal(cov=covariance).logpdf(targets) for covariance in covariances]
    return logsumexp(logs) - math.log(len(logs))


def by_noise(data):
    data = data.take(np.arange(len(data.targets))[-40:])
    if not data.targets.any():
        return [0.0] * 5
    one = np.eye(len(data.targets))
    return [
        log_likelihood([(1 - part) * kernel + part * one for kernel in kernels(data.features)], data.targets)
        for part in NOISES
    ]


def by_similarity(own, other, mine, theirs):
    if not own.targets.any() or not other.targets.any():
        return [0.0] * len(GRID)
    own, other = own.take(np.arange(len(own.targets))[-40:]), other.take(np.arange(len(other.targets))[:40])
    first, second = len(own.targets), len(other.targets)
    features = np.concatenate([own.features, other.features])
    targets = np.concatenate([own.targets, other.targets])
    found = []
    for alike in GRID:
        both = alike * math.sqrt((1 - mine) * (1 - theirs))
        sides = np.array([[1 - mine, both], [both, 1 - theirs]])
        share = np.repeat(np.repeat(sides, [first, second], axis=0), [first, second], axis=1)
        chance = np.diag([mine] * first + [theirs] * second)
        found.append(log_likelihood([kernel * share + chance for kernel in kernels(features)], targets))
    return found


def mixed(usual, logs):
    """Return the shares after eight steps of expectation maximisation, a region at a time."""
    odds = [list(row) for row in usual]
    for _ in range(8):
        shares = []
        for row, log in zip(odds, logs, strict=True):
            weights = [odd * math.exp(value - max(log)) for odd, value in zip(row, log, strict=True)]
            shares.append([weight / sum(weights) for weight in weights])
        totals = [sum(column) for column in zip(*shares, strict=True)]
        odds = [
            [(4 * prior + total) / (4 + len(logs)) for prior, total in zip(row, totals, strict=True)] for row in usual
        ]
        odds = [[value / sum(row) for value in row] for row in odds]
    return np.array(shares)


REGIONS = [region(9, 0), region(14, 1, noise=0.6), region(7, 2, slope=-1.0), flat(5), region(50, 3, noise=0.2)]


def test_chance_is_the_mean_over_a_grid_by_likelihood():
    expected = mixed([[1 / 5] * 5] * len(REGIONS), [by_noise(data) for data in REGIONS]) @ NOISES
    assert estimate_noises(REGIONS) == pytest.approx(expected, abs=1e-3)
    assert estimate_noises(REGIONS[:1]) == pytest.approx(mixed([[0.2] * 5], [by_noise(REGIONS[0])]) @ NOISES, abs=1e-3)
    assert estimate_noises(REGIONS).tolist() == [round(value, 3) for value in estimate_noises(REGIONS)]


@pytest.mark.parametrize("own", [0, 1, 4])
def test_similarities_are_means_over_a_grid_by_likelihood(own):
    others = [data for number, data in enumerate(REGIONS) if number != own]
    earlier, chance = [False, True, False, False], np.array([0.1, 0.02, 0.3, 0.2, 0.05])
    usual = [USUAL_EARLIER if same else USUAL for same in earlier]
    logs = [by_similarity(REGIONS[own], o, chance[0], theirs) for o, theirs in zip(others, chance[1:], strict=True)]
    found = estimate_similarities(REGIONS[own], others, earlier, chance)
    assert found == pytest.approx(mixed(usual, logs) @ GRID, abs=1e-3)
    assert found.tolist() == [round(value, 3) for value in found]


def test_of_many_trials_the_latest_of_ones_own_and_the_first_of_others_count():
    own, other = region(60, 0), region(60, 1)
    chance = np.array([0.1, 0.1])
    expected = estimate_similarities(own.take(np.arange(20, 60)), [other.take(np.arange(40))], [False], chance)
    assert estimate_similarities(own, [other], [False], chance) == pytest.approx(expected)
    changed = replace(own, targets=np.concatenate([-own.targets[:20], own.targets[20:]]))
    assert estimate_similarities(changed, [other], [False], chance) == pytest.approx(expected)
    assert estimate_noises([changed, other]) == pytest.approx(estimate_noises([own, other]))


def test_equal_regions_are_alike_and_unrelated_ones_are_not():
    same, unlike = [region(25, seed) for seed in (1, 2)], [region(25, seed, slope=-1.0) for seed in (3, 4)]
    found = estimate_similarities(region(25, 0), [*same, *unlike], [False] * 4, np.full(5, 0.01))
    assert (found[:2] > 0.9).all() and (found[2:] < 0.1).all()
    random = np.random.default_rng(0)
    noise = [replace(data, targets=random.permutation(data.targets)) for data in same * 6]
    assert estimate_similarities(region(25, 0), noise, [False] * 12, np.full(13, 0.01)).mean() < 0.2


def test_without_trials_that_differ_what_is_usual_holds():
    for own, other in ((flat(6), REGIONS[0]), (REGIONS[0], flat(6)), (flat(0), REGIONS[0])):
        found = estimate_similarities(own, [other, other], [False, True], np.full(3, 0.5))
        usual = mixed([USUAL, USUAL_EARLIER], [[0.0] * 6] * 2) @ GRID
        assert found == pytest.approx(usual, abs=1e-3)
    assert estimate_noises([flat(6)]) == pytest.approx([NOISES.mean()], abs=1e-3)
    assert estimate_similarities(REGIONS[0], [], [], np.array([0.1])).tolist() == []


def test_what_is_usual_adds_up_and_expects_more_of_earlier_runs():
    assert USUAL.sum() == pytest.approx(1) and USUAL_EARLIER.sum() == pytest.approx(1)
    assert 0.5 < USUAL @ GRID < 0.6 < 0.7 < USUAL_EARLIER @ GRID < 0.8
    for grid in (GRID, NOISES):
        assert (np.diff(grid) > 0).all() and grid.min() >= 0 and grid.max() < 1


def test_families_are_learned_from_all_neighbours_together():
    few = region(5, 0)
    alone = estimate_similarities(few, [region(25, 1)], [False], np.full(2, 0.05))[0]
    friends = [region(25, seed) for seed in range(1, 8)]
    together = estimate_similarities(few, friends, [False] * 7, np.full(8, 0.05))
    assert alone < together[0]


def test_likelihoods_far_below_what_a_number_can_be():
    targets = np.array([300.0, -300.0])
    covariances = np.stack([[np.eye(2), 4 * np.eye(2)], [np.eye(2) * 1e-3, 9 * np.eye(2)]])
    found = similarity._mean_over_lengths(similarity._log_densities(covariances[:, :, None], targets[None]))[0]
    logs = [[multivariate_normal(cov=c).logpdf(targets) for c in row] for row in covariances]
    expected = logsumexp(logs, axis=0) - math.log(2) + math.log(2 * math.pi)
    assert found[1] == pytest.approx(expected[1]) and found[0] < found[1] - 600
    usual, logs = np.array([USUAL, USUAL_EARLIER]), np.arange(12.0).reshape(2, 6) % 5
    assert similarity._mix(usual, logs) == pytest.approx(mixed(usual, logs))
    assert similarity._mix(usual, logs - [[2000.0], [-2000.0]]) == pytest.approx(mixed(usual, logs))
