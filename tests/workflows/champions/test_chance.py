"""Means, intervals and probabilities of being better."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.champions.chance import (
    MANY,
    estimate,
    estimate_gain,
    estimate_metric,
    probability_better,
    probability_of_best,
)
from tests.workflows.champions.test_scores import NAN, scores

VALUES = st.lists(st.floats(-1, 1, width=16), min_size=1, max_size=30)


def test_an_interval_by_hand():
    # Mean 2, standard deviation 1, t of two degrees of freedom 4.303: 4.303 / sqrt(3) = 2.484.
    found = estimate(np.array([1.0, NAN, 2.0, 3.0]))
    assert (found.mean, found.n) == (2, 3)
    assert (found.low, found.high) == (pytest.approx(-0.484, abs=1e-3), pytest.approx(4.484, abs=1e-3))


def test_too_few_customers_have_no_interval():
    none, one = estimate(np.array([NAN])), estimate(np.array([0.25]))
    assert none.n == 0 and math.isnan(none.mean) and (none.low, none.high) == (-math.inf, math.inf)
    assert (one.mean, one.low, one.high, one.n) == (0.25, -math.inf, math.inf, 1)


def test_gains_are_paired_and_know_the_direction():
    made = scores([1, NAN, 3], [0, 5, 1])
    assert estimate_gain(made, "a", "b").mean == 1.5 and estimate_gain(made, "a", "b").n == 2
    assert estimate_gain(made, "a", "b", "R").n == 1
    assert estimate_gain(scores([1, NAN, 3], [0, 5, 1], minimize=True), "a", "b").mean == -1.5
    assert estimate_metric(made, "b").mean == 2 and estimate_metric(made, "b", "S").mean == 1


@pytest.mark.parametrize(
    ("values", "probability"), [([], 0.5), ([0.0] * 7, 0.5), ([0.1] * 3, 1.0), ([-0.1] * 3, 0.0), ([1.0], 1.0)]
)
def test_certain_probabilities(values, probability):
    assert probability_better(np.array(values), 100, 0) == probability


def test_a_probability_by_hand():
    # Of resamples of (1, -1) one in four is twice 1, one in four twice -1, and half of them are ties.
    assert probability_better(np.array([1.0, -1.0]), 20_000, 0) == pytest.approx(0.5, abs=0.01)
    # Of (2, -1) three in four have a positive sum.
    assert probability_better(np.array([2.0, -1.0]), 20_000, 0) == pytest.approx(0.75, abs=0.01)


def test_many_customers_are_as_good_as_normal():
    random = np.random.default_rng(0)
    values = random.normal(0.01, 1, MANY + 1)
    assert probability_better(values, 1000, 0) == pytest.approx(probability_better(values[:-1], 4000, 0), abs=0.02)
    assert (
        probability_better(np.full(MANY + 1, 0.5), 10, 0) == 1 and probability_better(np.zeros(MANY + 1), 10, 0) == 0.5
    )


@given(VALUES, st.randoms())
def test_order_changes_a_probability_by_noise_only(values, random):
    found = probability_better(np.array(values), 2000, 0)
    random.shuffle(values)
    assert abs(found - probability_better(np.array(values), 2000, 0)) < 0.08


@given(VALUES)
def test_being_better_one_way_is_being_worse_the_other_way(values):
    found = probability_better(np.array(values), 200, 0)
    assert found + probability_better(-np.array(values), 200, 0) == pytest.approx(1)
    assert 0 <= found <= 1


def rows(count, n, best):
    """Candidates that are independent of one another, the first `best` standard errors above 0, the others on it."""
    drawn = np.linalg.qr(np.random.default_rng(0).normal(size=(n, count + 1)) + np.eye(n, count + 1))[0].T[1:]
    drawn = (drawn - drawn.mean(axis=1, keepdims=True)) / drawn.std(axis=1, ddof=1, keepdims=True)
    drawn[0] += best / math.sqrt(n)
    return drawn


@pytest.mark.parametrize(("groups", "count"), [(1, 1), (1, 20), (8, 1), (8, 20)])
def test_the_best_of_many_has_to_be_better_than_luck(groups, count):
    # Of m that are independent and alike all lie below 3 standard errors with (.99865)^m: .999, .973, .989, .806.
    given = [rows(count, 1000, best=3.0)] + [rows(count, 1000, best=0.0) for _ in range(groups - 1)]
    found = probability_of_best(given, 4000, 0)
    assert found[0] == pytest.approx(0.99865 ** (groups * count), abs=0.03)
    assert all(one < 0.9 for one in found[1:])


@pytest.mark.parametrize("n", [1000, MANY + 1])
def test_candidates_that_are_the_same_count_once(n):
    one = rows(1, n, best=2.0)
    (alone,), (twice,) = (probability_of_best([of], 4000, 0) for of in (one, np.repeat(one, 9, axis=0)))
    assert alone == pytest.approx(0.977, abs=0.01) and twice == pytest.approx(alone, abs=0.01)


def test_many_small_gains_and_few_large_losses_are_no_proof():
    """Of candidates that are alike in truth the best of 400 is surely better in one shop of twenty, at most."""
    random = np.random.default_rng(1)
    surely = 0
    for shop in range(20):
        alike = [np.where(random.random((40, 300)) < 0.1, -0.9, 0.1) for _ in range(10)]
        surely += max(probability_of_best(alike, 500, shop)) > 0.95
    assert surely <= 2  # normal means would let through a third


def test_certain_bests():
    constant, nothing = np.full((2, 5), 0.1), np.zeros((3, 5))
    assert probability_of_best([constant, nothing, -constant], 100, 0) == [1, 0, 0]
    assert probability_of_best([nothing], 100, 0) == [0] and probability_of_best([], 100, 0) == []
