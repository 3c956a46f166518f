"""Means, intervals and probabilities of being better."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.champions.chance import MANY, estimate, estimate_gain, estimate_metric, probability_better
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
