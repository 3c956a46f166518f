"""What a program has said, and which of it counts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.contract import Metric
from nnlib.worker.curve import Curve
from nnlib.worker.reports import Report


def curve(*said, minimize=False):
    one = Curve(Metric("auc", minimize))
    for epoch, value in said:
        one.take_up(Report({"auc": value}, epoch))
    return one


def best(one):
    report, epoch = one.best()
    return report and report.figures["auc"], epoch


def test_the_best_of_equal_ones_is_the_first_and_gaps_end_where_they_were_reported():
    assert best(curve((1, 0.5), (2, 0.7), (3, 0.7), (4, 0.6))) == (0.7, 2)
    assert best(curve((0, 0.5), (1, 0.2), minimize=True)) == (0.2, 2)
    assert best(curve((5, 0.9), (10, 0.5))) == (0.9, 5)
    assert best(curve()) == (None, 0) and best(curve((None, 0.5), (None, 0.7))) == (0.7, 2)


def test_what_is_no_number_is_never_the_best_unless_there_is_nothing_else():
    assert best(curve((1, 0.5), (2, math.nan))) == (0.5, 1) == best(curve((1, 0.5), (2, math.inf)))
    assert best(curve((1, math.nan)))[0] == pytest.approx(math.nan, nan_ok=True)


def test_what_is_said_at_the_end_counts_where_it_is_better():
    assert best(curve((1, 0.5), (2, 0.4), (None, 0.5))) == (0.5, 1)
    assert best(curve((1, 0.5), (None, 0.6))) == (0.6, 1)


def test_after_a_step_back_what_came_later_is_forgotten():
    assert best(curve((1, 0.5), (2, 0.9), (2, 0.4))) == (0.5, 1)


def test_a_resumed_one_goes_on_with_its_best():
    one = Curve(Metric("auc"))
    one.restore([0.5, 0.9, 0.9], 1)
    assert best(one) == (0.9, 3) and one.last is not None and one.counted
    assert list(one.take_up(Report({"auc": 0.4}, 3))) == [4] and best(one) == (0.9, 3)


@given(st.lists(st.tuples(st.none() | st.integers(0, 20), st.floats()), max_size=20), st.booleans())
def test_the_best_is_no_worse_than_any_value_of_the_curve(said, minimize):
    one = curve(*said, minimize=minimize)
    assert len(one.values) == len(one.said)
    if one.values:
        value, epoch = best(one)
        assert 1 <= epoch <= len(one.values)
        assert value == (min if minimize else max)([*one.values, value])
