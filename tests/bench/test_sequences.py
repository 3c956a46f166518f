"""Sequences, their windows and targets, and figures of lists."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.sequences import sets
from scripts.bench.sequences.metrics import interval, measure
from scripts.bench.sequences.ours import fit_markov, to_events
from scripts.bench.sequences.windows import (
    NOTHING,
    Histories,
    batches,
    count_from_end,
    cut,
    draw_targets,
    next_days,
    spread,
)


def histories(*customers: list[tuple[int, int]], width: int = 10) -> Histories:
    """Return histories of days and items."""
    days, items = np.array([one for customer in customers for one in customer]).T
    indptr = np.cumsum([0, *map(len, customers)])
    return Histories(indptr, items, days, width, as_of=100)


BASKETS = histories([(1, 0), (1, 1), (2, 2), (5, 3), (5, 4)], [(5, 5), (9, 6)])


def test_the_next_day_is_the_customers_own():
    begin, end = next_days(BASKETS)
    assert begin.tolist() == [2, 2, 3, 5, 5, 6, 7]
    assert end.tolist() == [3, 3, 5, 5, 5, 7, 7]


def test_targets_are_of_the_next_day_or_the_next_item():
    random = np.random.default_rng(0)
    drawn = np.array([draw_targets(BASKETS, BASKETS.items, "day", random) for _ in range(50)])
    assert [set(column) for column in drawn.T] == [{2}, {2}, {3, 4}, {NOTHING}, {NOTHING}, {6}, {NOTHING}]
    following = draw_targets(BASKETS, BASKETS.items, "item", random)
    assert following.tolist() == [1, 2, 3, 4, NOTHING, 6, NOTHING]


def test_windows_cover_everything_once():
    long = histories([(day, day % 10) for day in range(23)], [(1, 1)], [(day, 2) for day in range(5)])
    for seed in range(20):
        begin, end = cut(long, 5, np.random.default_rng(seed))
        assert ((end - begin) >= 1).all() and ((end - begin) <= 5).all()
        covered = np.concatenate([np.arange(*one) for one in zip(begin, end, strict=True)])
        assert sorted(covered) == list(range(29))


def test_places_count_from_the_end_and_padding_is_on_the_right():
    numbers, inside = spread(np.array([0, 4]), np.array([3, 5]))
    assert numbers.tolist() == [[0, 1, 2], [4, 4, 4]]
    assert inside.tolist() == [[True, True, True], [True, False, False]]
    assert count_from_end(inside, 5).tolist() == [[2, 3, 4], [4, 4, 4]]


def test_an_epoch_has_each_target_once():
    random = np.random.default_rng(0)
    found = list(batches(BASKETS, length=3, size=2, ahead="item", half_life=1e9, random=random))
    targets = np.concatenate([batch.targets.ravel() for batch in found])
    assert (targets != NOTHING).sum() == 5
    assert all(np.allclose(batch.weights, 1) for batch in found)


def test_the_last_item_is_asked_for_and_the_one_before_it_chooses():
    problem = sets.leave_last_out([np.array([3, 1, 4, 0]), np.array([2, 5])], 6)
    assert problem.valid.fit.items.tolist() == [3, 1]  # who has less than three is left out
    assert problem.valid.wanted.items.tolist() == [4]
    assert problem.test.asked.items.tolist() == [3, 1, 4]
    assert problem.test.wanted.items.tolist() == [0]
    assert (problem.test.asked.as_of - problem.test.asked.days).tolist() == [3, 2, 1]


def test_the_shop_is_cut_at_a_day():
    problem = sets.read_shop()
    for part in (problem.valid, problem.test):
        assert part.fit.days.max() < part.fit.as_of <= part.wanted.days.min()
        assert part.wanted.days.max() < part.fit.as_of + sets.WINDOW
        assert np.diff(part.asked.indptr).min() >= 5
        assert np.diff(part.wanted.indptr).min() >= 1
    assert problem.valid.fit.as_of + sets.WINDOW == problem.test.fit.as_of


def test_figures_of_lists():
    wanted = histories([(0, 7)], [(0, 1), (0, 2)], [(0, 9)])
    lists = np.array([[*range(3), 7, *range(10, 16)], [2, *range(11, 20)], list(range(20, 30))])
    found = measure(lists, wanted)
    best = 1 + 1 / np.log2(3)
    assert found == pytest.approx(np.array([[1 / np.log2(5), 1], [1 / best, 0.5], [0, 0]]))


def test_the_interval_is_of_the_mean():
    mean, low, high = interval(np.random.default_rng(1).normal(3, 1, 1000))
    assert low < mean < high and high - low == pytest.approx(2 * 1.645 / 1000**0.5, rel=0.15)


def test_the_trivial_rule_counts_what_came_next():
    known = histories([(1, 0), (2, 1)], [(1, 0), (2, 1)], [(1, 0), (2, 2)])
    model = fit_markov(known, q=1.0, half_life=0.0)
    scores = model.scores(to_events(histories([(1, 5), (2, 0)])), np.array([0]))
    assert scores[0, 1] == pytest.approx(2 / 3, abs=1e-5) and scores[0, 2] == pytest.approx(1 / 3, abs=1e-5)


def test_missing_data_are_told(monkeypatch, tmp_path):
    monkeypatch.delenv(sets.VARIABLE, raising=False)
    with pytest.raises(NotMeasuredError, match="is not set"):
        sets.SETS["beauty"]()
    monkeypatch.setenv(sets.VARIABLE, str(tmp_path))
    with pytest.raises(NotMeasuredError, match=r"Beauty\.txt is missing"):
        sets.SETS["beauty"]()
