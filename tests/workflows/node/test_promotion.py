from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.contract import Metric
from regiondag.node.promotion import why_kept

VALUES = st.floats(-1e6, 1e6)
MAYBE = st.none() | VALUES
METRICS = st.sampled_from([Metric("ndcg@20"), Metric("loss", minimize=True)])


def judge(metric, test, incumbent_test, valid, incumbent_valid):
    """Values of the study's metric; None: the standing champion could not be scored by it."""
    bars = [{} if value is None else {metric.name: value} for value in (incumbent_test, incumbent_valid)]
    return why_kept(
        metric, test={metric.name: test}, incumbent_test=bars[0], valid=valid, incumbent_valid=bars[1]
    )  # fmt: skip


@given(METRICS, VALUES, MAYBE, VALUES, MAYBE)
def test_promoted_is_what_beats_the_test_bar_and_is_not_below_the_other(metric, test, bar, valid, valid_bar):
    sign = -1 if metric.minimize else 1
    beats = bar is None or sign * test > sign * bar
    holds = valid_bar is None or sign * valid >= sign * valid_bar
    reason = judge(metric, test, bar, valid, valid_bar)
    assert (reason == "") == (beats and holds)
    assert not reason or reason.startswith("kept: on the ")


@given(METRICS, VALUES, MAYBE, VALUES)
def test_without_a_score_on_the_validation_data_only_the_test_counts(metric, test, bar, valid):
    assert judge(metric, test, bar, valid, None) == judge(metric, test, bar, None, None)


@given(METRICS, VALUES, VALUES, VALUES, VALUES)
def test_two_models_never_beat_each_other(metric, one, other, valid_one, valid_other):
    forth = judge(metric, one, other, valid_one, valid_other)
    back = judge(metric, other, one, valid_other, valid_one)
    assert forth or back


@pytest.mark.parametrize(
    ("metric", "values", "words"),
    [
        (Metric(), (0.5, 0.6, 0.4, 0.3), ["test", "0.6000", "0.5000"]),
        (Metric(), (0.7, 0.6, 0.2, 0.3), ["validation", "0.3000", "winning trial 0.2000"]),
        (Metric("loss", minimize=True), (0.5, 0.6, 0.4, 0.3), ["validation", "loss 0.3000"]),
        (Metric("loss", minimize=True), (0.7, 0.6, 0.3, 0.3), ["test"]),
    ],
)
def test_the_reason_names_the_part_and_both_values(metric, values, words):
    reason = judge(metric, *values)
    assert all(word in reason for word in words), reason


def test_another_metric_than_the_studys_is_no_bar():
    bars = {"loss": 0.1}
    assert why_kept(Metric(), test={"ndcg@20": 0.1}, incumbent_test=bars, valid=0.1, incumbent_valid=bars) == ""
