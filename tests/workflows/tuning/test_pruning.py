"""Tables of rungs from the curves of trials."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.tuning.pruning import KINDS, fewest_epochs, make_rungs

CURVES = [[5.0, 4, 6, 3], [9.0, 8, 7, 7], [1.0, 1, 1, 1], [2.0, 3], [6.0, 5, 4, 4], [3.0, 3, 3, 3]]


def test_none_has_none():
    assert make_rungs("none", CURVES, 10, True) == []


def test_the_median_of_the_best_values_so_far():
    assert make_rungs("median", CURVES, 10, True) == [(3, 4.0), (4, 3.0)]  # five curves have three epochs


def test_more_is_better():
    up = [[-value for value in curve] for curve in CURVES]
    assert make_rungs("median", up, 10, False) == [(3, -4.0), (4, -3.0)]
    assert make_rungs("asha", up, 10, False) == [
        (epoch, -value) for epoch, value in make_rungs("asha", CURVES, 10, True)
    ]


def test_the_best_third_at_each_rung():
    assert make_rungs("asha", CURVES, 10, True) == [(3, 1.0)]
    assert make_rungs("asha", [[3.0] * 9, [2.0] * 9, [1.0] * 9], 28, True) == [(3, 1.0), (9, 1.0)]


@pytest.mark.parametrize("kind", KINDS)
def test_few_trials_prune_nobody(kind):
    assert make_rungs(kind, CURVES[:2], 10, True) == []
    assert make_rungs(kind, [], 10, True) == []


def test_as_few_as_suffice():
    assert make_rungs("asha", CURVES[:3], 4, True) == [(3, 1.0)]  # one of three goes on
    assert make_rungs("median", [[3.0, 2, 1]] * 2 + [[9.0, 8, 7]] * 3, 4, True) == [(3, 7)]
    assert make_rungs("median", [[3.0, 2, 1]] * 4, 4, True) == []
    assert make_rungs("asha", [[float(one)] * 3 for one in range(9)], 4, True) == [(3, 2.0)]  # three of nine


def test_the_fewest_epochs_that_a_rung_needs():
    for kind in KINDS:
        fewest = next((epochs for epochs in range(1, 9) if make_rungs(kind, [[1.0] * 9] * 9, epochs, True)), 1)
        assert fewest_epochs(kind) == fewest


def test_the_last_epoch_has_no_rung():
    assert make_rungs("median", CURVES, 3, True) == []
    assert make_rungs("asha", CURVES, 3, True) == []


NUMBERS = st.floats(-100, 100)


@given(st.lists(st.lists(NUMBERS, max_size=12), max_size=12), st.sampled_from(KINDS), st.booleans())
def test_some_trials_of_the_past_would_have_gone_on(curves, kind, minimize):
    better = min if minimize else max
    for epoch, value in make_rungs(kind, curves, 12, minimize):
        reached = [better(curve[:epoch]) for curve in curves if len(curve) >= epoch]
        assert better(value, better(reached)) == better(reached)
