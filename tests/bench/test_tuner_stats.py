"""The figures of the tuners' comparison, beside ones that were worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from scripts.bench.tuner import stats
from scripts.bench.tuner.stats import (
    Ground,
    compare,
    count_common,
    ground,
    leave_out_rare,
    leave_out_unfinished,
    mean_ranks,
    ranks,
    resample,
    whole,
    worse_than,
)


def seeds(*values):
    return dict(enumerate(values))


def test_regrets_are_of_the_optimum_or_of_the_best_value_of_any_run():
    values = {
        "known": {"random": {28: seeds(3.0, 5.0, 4.0), 60: seeds(2.0)}, "tpe": {28: seeds(1.5), 60: seeds(1.0)}},
        "unknown": {"random": {28: seeds(3.0, 5.0)}, "tpe": {28: seeds(2.0), 60: seeds(1.0), 120: seeds(0.0)}},
        "solved": {"random": {28: seeds(7.0, 7.0, 8.0)}, "tpe": {28: seeds(7.0)}},
        "begun": {"tpe": {28: seeds(7.0)}},
    }
    optima = {"known": 1.0, "unknown": None, "solved": 7.0, "begun": None}
    found = ground(values, optima, 28, "random")
    assert found.regrets == {
        "known": {"random": seeds(2.0, 4.0, 3.0), "tpe": seeds(0.5)},
        "unknown": {"random": seeds(3.0, 5.0), "tpe": seeds(2.0)},
    }
    assert found.scales == {"known": 3.0, "unknown": 4.0}  # medians of random after 28, of whatever budget
    later = ground(values, optima, 60, "random")
    assert later.regrets == {"known": {"random": seeds(1.0), "tpe": seeds(0.0)}, "unknown": {"tpe": seeds(1.0)}}
    assert later.scales == found.scales
    assert found.tuners == ["random", "tpe"]
    assert list(found.only(["unknown", "solved"]).regrets) == ["unknown"]


def test_a_run_that_is_better_than_the_best_known_value_is_what_regrets_are_measured_from():
    values = {"beaten": {"random": {28: seeds(3.0)}, "tpe": {28: seeds(1.5), 60: seeds(0.5)}}}
    assert ground(values, {"beaten": 1.0}, 28, "random").regrets == {
        "beaten": {"random": seeds(2.5), "tpe": seeds(1.0)}
    }


def test_a_seed_counts_once_a_tuner_ran_it_on_all_of_its_problems():
    found = Ground(
        {"p": {"a": seeds(1.0, 2.0, 3.0), "b": seeds(5.0)}, "q": {"a": seeds(4.0, 6.0)}, "r": {"b": {1: 7.0}}},
        {"p": 9.0},
    )
    left = leave_out_unfinished(found)
    assert left.regrets == {"p": {"a": seeds(1.0, 2.0)}, "q": {"a": seeds(4.0, 6.0)}, "r": {}}
    assert left.scales == found.scales


def test_a_ratio_is_the_geometric_mean_over_pairs_with_floors_of_randoms_regret():
    found = Ground({"p": {"a": seeds(0.0, 2.0, 9.0), "b": seeds(0.9, 2.0)}}, {"p": 100.0})
    beside = compare(found, "a", "b")
    assert (beside.pairs, beside.wins, beside.losses, beside.ties) == (2, 1, 0, 1)
    fine, coarse = beside.ratios
    assert fine.value == pytest.approx(math.sqrt(0.1 / 1.0))  # a thousandth of 100 is added to both
    assert coarse.value == pytest.approx(math.sqrt(1.0 / 1.9))
    assert beside.by_problem == {"p": pytest.approx(math.sqrt(0.1))}
    assert beside.worst == ("p", pytest.approx(math.sqrt(0.1)))
    assert compare(found, "a", "nobody") is None


def test_the_tuners_that_ran_as_often_as_asked_on_every_problem():
    found = Ground(
        {
            "p": {"a": seeds(1.0, 2.0), "b": seeds(1.0, 2.0), "c": seeds(3.0)},
            "q": {"a": seeds(4.0, 4.0), "b": {1: 5.0}},
        },
        {"p": 1.0, "q": 2.0},
    )
    assert whole(found, 2) == Ground({"p": {"a": seeds(1.0, 2.0)}, "q": {"a": seeds(4.0, 4.0)}}, found.scales)
    assert whole(found, 1).tuners == ["a", "b"]
    assert whole(found, 3).tuners == []
    assert (count_common(whole(found, 1)), count_common(found)) == (3, 1)


def test_a_tuner_that_ran_on_few_of_the_problems_is_left_out():
    one = {"a": seeds(1.0), "b": seeds(2.0)}
    found = Ground({"p": one, "q": {**one, "c": seeds(0.0)}, "r": {"a": seeds(3.0)}, "s": {"a": seeds(3.0)}}, {})
    assert leave_out_rare(found).tuners == ["a", "b"]
    assert leave_out_rare(found).regrets["q"] == one


def test_problems_count_alike_however_many_seeds_they_have():
    many = {"a": seeds(*[1.0] * 9), "b": seeds(*[2.0] * 9)}
    few = {"a": seeds(8.0), "b": seeds(1.0)}
    found = Ground({"many": many, "few": few}, {"many": 1e-9, "few": 1e-9})
    assert compare(found, "a", "b").ratios[0].value == pytest.approx(math.sqrt(0.5 * 8))


@pytest.mark.parametrize(
    ("ours", "theirs", "claim"),
    [
        ((0.1, 0.1), (1.0, 1.0), "surely less"),
        ((0.1, 1.2), (1.0, 1.0), "less"),
        ((1.0, 1.0), (0.1, 0.1), "surely more"),
        ((1.0, 1.0), (0.1, 1.2), "more"),
        ((0.0, 1.0), (0.02, 0.15), "none"),  # .63 with the smallest floor, 2.3 with the other
        ((1.0, 1.0), (1.0, 1.0), "none"),
    ],
)
def test_a_claim_is_none_where_the_floors_differ(ours, theirs, claim):
    found = Ground({"p": {"a": seeds(*ours), "b": seeds(*theirs)}}, {"p": 1.0})
    assert compare(found, "a", "b").claim == claim


def test_an_interval_draws_problems_and_seeds_anew():
    chance = np.random.default_rng(3)
    between, within, problems, runs = 0.5, 1.0, 40, 20
    groups = [chance.normal(chance.normal(0, between), within, runs) for _ in range(problems)]
    means = resample(groups)
    assert means.mean() == pytest.approx(np.mean(groups), abs=0.02)
    # What the means of groups vary by already has what seeds do to them; drawing seeds anew adds that once more.
    spread = np.var([group.mean() for group in groups]) + np.mean([group.var() for group in groups]) / runs
    assert means.std() == pytest.approx(math.sqrt(spread / problems), rel=0.1)
    assert resample(groups).tolist() == means.tolist()  # the same every time


def test_groups_of_different_sizes_keep_to_their_own_members():
    means = resample([np.array([1.0]), np.array([5.0, 5.0, 5.0])])
    assert sorted(set(means.round(9))) == [1.0, 3.0, 5.0]
    assert np.mean(means == 3.0) == pytest.approx(0.5, abs=0.05)


def test_what_is_worse_than_random_on_a_problem_is_so_by_nearly_all_resamples():
    regrets = {
        "surely": {"a": seeds(*[2.0] * 5, 0.9), "random": seeds(*[1.0] * 6)},
        "perhaps": {"a": seeds(*[2.0] * 2, *[0.9] * 4), "random": seeds(*[1.0] * 6)},
        "better": {"a": seeds(*[0.5] * 6), "random": seeds(*[1.0] * 6)},
        "level": {"a": seeds(*[1.0] * 6), "random": seeds(*[1.0] * 6)},
        "few": {"a": seeds(*[2.0] * 3), "random": seeds(*[1.0] * 3)},
    }
    assert worse_than(Ground(regrets, dict.fromkeys(regrets, 1.0)), "a", "random") == ["surely"]


def test_mean_ranks_are_of_medians_and_of_runs():
    regrets = {
        "p": {"a": seeds(1.0, 1.0, 9.0), "b": seeds(2.0, 2.0, 2.0), "c": seeds(3.0, 3.0, 3.0)},
        "q": {"a": seeds(1.0), "b": seeds(1.0, 5.0), "c": seeds(0.5)},
        "left out": {"a": seeds(1.0), "b": seeds(1.0)},
    }
    found = mean_ranks(Ground(regrets, dict.fromkeys(regrets, 1.0)), ["a", "b", "c"])
    assert found["a"] == pytest.approx(((1 + 2.5) / 2, ((1 + 1 + 3) / 3 + 2.5) / 2))
    assert found["b"] == pytest.approx(((2 + 2.5) / 2, ((2 + 2 + 1) / 3 + 2.5) / 2))
    assert found["c"] == pytest.approx(((3 + 1) / 2, ((3 + 3 + 2) / 3 + 1) / 2))
    assert mean_ranks(Ground(regrets, {}), ["a", "nobody"]) == {}


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12))
def test_ranks_are_scipys(values):
    assert ranks(values).tolist() == rankdata(values).tolist()


@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e3)), min_size=1, max_size=5))
def test_a_comparison_the_other_way_round_is_the_inverse(pairs):
    ours, theirs = zip(*pairs, strict=True)
    found = Ground({"p": {"a": seeds(*ours), "b": seeds(*theirs)}}, {"p": 1.0})
    one, other = compare(found, "a", "b"), compare(found, "b", "a")
    assert one.ratios[0].value * other.ratios[0].value == pytest.approx(1)
    assert (one.wins, one.losses) == (other.losses, other.wins)


def test_the_floors_are_a_thousandth_and_a_hundredth():
    assert stats.FLOORS == (1e-3, 1e-2)
    assert stats.FIRST_BUDGET == 28
