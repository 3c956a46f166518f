"""Searches that end because what another trial would gain is lost in noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnlib.contract import Metric, Status, TrainSettings
from regiondag.run.history import ExpectedGain, History, Proposal, TrialOutcome
from regiondag.run.region_spec import RegionSpec
from regiondag.run.region_state import MOST_LEFT, list_left, say_left, state_of, why_not_needed
from regiondag.study.model import Search
from regiondag.study.space import Real
from regiondag.tuning.gp.training_set import loss_of_unit, warp
from regiondag.tuning.noise import LEAST, Gain, is_lost_in_noise
from regiondag.tuning.propose import count_initial_trials, expect_gain
from regiondag.tuning.sharing import Observation

SEARCH = Search("bayes", (Real("x", 0.0, 1.0),), (2,) * 8, stop="noise")
POINTS = ({"x": 0.3}, {"x": 0.6})


@pytest.mark.parametrize(
    ("gains", "ended", "over"),
    [
        ([], 20, False),
        ([0.01], 20, False),  # once is chance
        ([0.01, 0.01], 20, True),
        ([0.0499, 0.0499], 20, True),
        ([0.05, 0.0499], 20, False),  # less than a twentieth
        ([0.01, 0.01, 0.3], 20, False),
        ([0.01, 0.3, 0.01], 20, False),
        ([0.3, 0.01, 0.01], LEAST, True),
        ([0.3, 0.01, 0.01], LEAST - 1, False),
    ],
)
def test_when_a_search_is_over(gains, ended, over):
    assert is_lost_in_noise(gains, ended) is over


def history_of(gains, ended=10, proposed=12):
    outcomes = {n: TrialOutcome(n, Status.OK, value=0.1) for n in range(ended)}
    return History(
        proposals={n: Proposal(n, {"x": n / 20}) for n in range(proposed)},
        settled=outcomes,
        gains={n: ExpectedGain(gain, 0.004) for n, gain in gains.items()},
    )


def spec_of(search=SEARCH):
    return RegionSpec("s", "All", "all", Metric(), TrainSettings(), search, ("final",), {})


def test_the_region_says_why_nothing_more_is_proposed():
    history = history_of({8: 0.0001, 10: 0.00005})
    state = state_of(spec_of(), history)
    assert state.complete == (
        "its search ended after 10 of 16 trials: the next was expected to gain 0.00005, and the standard error of a "
        "trial is 0.0040 (stop: noise)"
    )
    assert why_not_needed(state, history, 12) == state.complete and why_not_needed(state, history, 11) == ""


@pytest.mark.parametrize(
    ("search", "gains", "ended"),
    [
        (replace(SEARCH, stop="none"), {8: 0.0001, 10: 0.00005}, 10),
        (SEARCH, {8: 0.0001}, 10),
        (SEARCH, {8: 0.0001, 10: 0.00005}, 7),
        (SEARCH, {10: 0.0001, 8: 0.001}, 10),  # told in another order: the latest two count
    ],
)
def test_a_region_that_goes_on(search, gains, ended):
    assert state_of(spec_of(search), history_of(gains, ended)).complete == ""


def test_how_much_loss_a_unit_of_the_models_scale_is():
    """By hand: the median is 3 and the width 2, so that [1, 3, 5] are -1, 0, log(2) widths from it."""
    scaled = np.array([-1.0, 0.0, np.log(2.0)])
    assert loss_of_unit([1.0, 3.0, 5.0]) == pytest.approx(2 * scaled.std())
    targets = warp([1.0, 3.0, 5.0])
    assert (targets[1] - targets[0]) * loss_of_unit([1.0, 3.0, 5.0]) == pytest.approx(2.0)


def test_what_failed_counts_as_the_worst_of_the_others():
    assert loss_of_unit([1.0, 3.0, None, 5.0]) == loss_of_unit([1.0, 3.0, 5.0, 5.0])


@pytest.mark.parametrize("losses", [[], [None, None], [0.5, 0.5, 0.5]])
def test_no_unit_where_nothing_differs(losses):
    assert loss_of_unit(losses) == 0.0


def observed(losses):
    return [Observation({"x": (n + 0.5) / len(losses)}, loss) for n, loss in enumerate(losses)]


def test_nothing_is_to_be_gained_where_all_are_equal():
    assert expect_gain(SEARCH, observed([-0.1] * 8), POINTS, 1) == Gain(0.0, 0.0, 0.0)


def test_less_is_to_be_gained_where_all_is_noise_than_where_the_best_lies_beyond():
    noise = np.random.default_rng(1).normal(0, 1e-4, 8)
    flat = expect_gain(SEARCH, observed([-0.1 + n for n in noise]), POINTS, 1)
    slope = observed([-0.1 - 0.02 * n for n in range(8)])
    steep = expect_gain(SEARCH, slope, ({"x": 1.0},), 1)
    assert 0 <= flat.mean < 1e-4 < steep.mean < 0.05
    for gain in (flat, steep):
        assert 0 <= gain.low <= gain.mean <= gain.high
    assert flat.low == 0 and steep.high < 0.1


def test_what_is_left_to_gain_on_a_known_function_is_what_the_best_point_gains():
    """Of seven points on a parabola the best misses the minimum, 0, by its own height."""
    gains = []
    for height in (1.0, 50.0):
        told = observed([height * (0.4 - (n + 0.5) / 7) ** 2 for n in range(7)])
        best = min(o.loss for o in told)
        gain = expect_gain(SEARCH, told, ({"x": 0.4}, {"x": 0.9}), 1)
        assert gain.low <= best <= gain.high < 4 * best and gain.mean == pytest.approx(best, rel=0.3)
        gains.append(gain)
    assert gains[1].mean == pytest.approx(50 * gains[0].mean)  # in the loss's own unit
    assert gains[1].high == pytest.approx(50 * gains[0].high)


def test_nobody_says_what_is_to_be_gained_before_there_is_a_model():
    assert count_initial_trials(SEARCH) == 4
    assert expect_gain(SEARCH, observed([-0.1, -0.2, -0.3]), POINTS, 1) is None
    assert expect_gain(SEARCH, observed([-0.1, None, None, -0.2, -0.3]), POINTS, 1) is None
    assert expect_gain(SEARCH, observed([-0.1, -0.2, -0.3, -0.4]), (), 1) is None  # and nothing to ask about
    other = replace(SEARCH, method="random", stop="none")
    assert expect_gain(other, observed([-0.1, -0.2, -0.3, -0.4]), POINTS, 1) is None


def test_the_same_question_has_the_same_answer():
    told = observed([-0.1, -0.3, -0.2, -0.25, -0.28])
    assert expect_gain(SEARCH, told, POINTS, 3) == expect_gain(SEARCH, told, POINTS, 3)


def test_what_is_left_in_words():
    assert say_left(ExpectedGain(0.0001, 0.004)) == (
        "0.0001 more is expected of the best next trial; the standard error of a trial is 0.004, in which that is lost"
    )
    assert say_left(ExpectedGain(1.25e-7, None, 0.0, 12.3)) == (
        "under 0.0001 more is expected of the best next trial (0 to 12)"
    )
    one = ExpectedGain(0.01)
    assert list_left([("a", one), ("b", None)]) == ["a: 0.01 more is expected of the best next trial"]
    many = list_left((str(n), one) for n in range(MOST_LEFT + 3))
    assert len(many) == MOST_LEFT + 1 and "in 3 more regions" in many[-1]
