"""Blends of standardized scores, and the search for their weights."""

import numpy as np
import pytest

from nnlib.data.events import Window
from nnlib.data.rows import from_rows
from nnlib.errors import NnlibError
from nnlib.families.blend import FOLDS, Blend, cross_fit_weights, find_weights, standardize
from nnlib.families.measure import measure
from nnlib.util.threads import workers
from tests.nnlib.families.made_up import drawn, events, window


class Fixed:
    """Scores that are given, by customer."""

    def __init__(self, table):
        self.table = np.array(table, np.float32)

    def scores(self, asked, rows):
        return self.table[rows]

    def arrays(self):
        return {"table": self.table}


ASKED = drawn(customers=300, items=30, seed=4)
WINDOW = window(ASKED)


def at_random(seed):
    return Fixed(np.random.default_rng(seed).standard_normal((300, 30)))


def hint(seed, strength):
    """Scores with some knowledge of the targets."""
    table = at_random(seed).table
    wanted = WINDOW.wanted
    table[np.repeat(np.arange(300), np.diff(wanted.indptr)), wanted.indices] += strength
    return Fixed(table * 100 + 7)


def test_standardized_rows_have_mean_0_and_deviation_1_and_a_flat_one_is_0():
    found = standardize(np.array([[1, 2, 3, 6], [5, 5, 5, 5]], np.float32))
    assert found[0] == pytest.approx(np.array([-2, -1, 0, 3]) / 3.5**0.5)
    assert not found[1].any()


def test_a_blend_is_the_weighted_sum_whatever_the_members_scales():
    one, other = at_random(1), at_random(2)
    rows = np.array([5, 2])
    want = standardize(one.table[rows]) - 0.5 * standardize(other.table[rows])
    assert Blend((one, other), (1.0, -0.5)).scores(ASKED, rows) == pytest.approx(want, abs=1e-6)
    scaled = Blend((Fixed(one.table * 1000), Fixed(other.table + 50)), (1.0, -0.5)).scores(ASKED, rows)
    assert scaled == pytest.approx(want, abs=1e-4)
    assert set(Blend((one, other), (1.0, 0.0)).arrays()) == {"member0_table", "member1_table"}


def test_a_member_without_weight_is_not_asked():
    class Never:
        def scores(self, asked, rows):
            raise AssertionError

    one = at_random(1)
    assert Blend((one, Never()), (1.0, 0.0)).scores(ASKED, np.array([0])).shape == (1, 30)


def test_weights_of_noise_are_0_and_two_that_know_something_are_better_than_one():
    members = [at_random(5), hint(6, 1.0), hint(7, 1.2)]
    weights = find_weights(members, WINDOW)
    assert weights[1] > 0 < weights[2]
    assert weights[0] <= 0.25
    alone, both = (
        np.nanmean(measure(Blend(tuple(members), w), WINDOW, ["ndcg@20"])["ndcg@20"]) for w in ((0, 0, 1), weights)
    )
    assert both > alone + 0.01


def value_of(model, among):
    return np.nanmean(measure(model, among, ["ndcg@20"])["ndcg@20"])


def test_each_customer_is_judged_by_weights_that_were_found_on_others():
    members = [at_random(5), hint(6, 1.0), hint(7, 1.2)]
    weights, judged = cross_fit_weights(members, WINDOW, seed=3)
    assert weights == find_weights(members, WINDOW, seed=3)
    asked = np.flatnonzero(np.diff(WINDOW.wanted.indptr))
    part = np.random.default_rng(3).permutation(len(asked)) % FOLDS
    assert np.bincount(part).min() > 40
    for number in range(FOLDS):
        others = asked[part != number]
        without = Window(WINDOW.asked.take(others), WINDOW.wanted.take(others))
        found = find_weights([Fixed(member.table[others]) for member in members], without)
        assert (judged.weights[asked[part == number]] == np.array(found, np.float32)).all()
    row = asked[[0]]
    blend = Blend(tuple(members), tuple(judged.weights[row[0]]))
    assert judged.scores(ASKED, row) == pytest.approx(blend.scores(ASKED, row), abs=1e-6)


def test_what_fits_by_chance_alone_does_not_look_better_for_it():
    members = [at_random(seed) for seed in range(6)]
    few = np.arange(60)
    among = Window(ASKED.take(few), WINDOW.wanted.take(few))
    some = [Fixed(member.table[few]) for member in members]
    weights, judged = cross_fit_weights(some, among)
    best = max(value_of(member, among) for member in some)
    assert value_of(Blend(tuple(some), weights), among) > best + 0.01
    assert value_of(judged, among) < best


def test_with_hardly_any_customers_nothing_is_dealt_out():
    few = np.flatnonzero(np.diff(WINDOW.wanted.indptr))[:9]
    among = Window(ASKED.take(few), WINDOW.wanted.take(few))
    weights, judged = cross_fit_weights([Fixed(at_random(1).table[few]), Fixed(hint(2, 2.0).table[few])], among)
    assert (judged.weights == np.array(weights)).all()


def test_it_begins_with_the_best_and_stays_there_when_nothing_helps():
    assert find_weights([at_random(1), hint(2, 50.0)], WINDOW) == (0.0, 1.0)


def test_the_weights_are_the_same_on_any_number_of_threads():
    members = [hint(n, 0.5) for n in range(3)]
    found = []
    for count in (1, 2, 8):
        with workers(count) as each:
            found.append(find_weights(members, WINDOW, each=each))
    assert found[0] == found[1] == found[2]


def test_customers_are_drawn_where_all_take_too_much_memory():
    asked = []

    class Spy(Fixed):
        def scores(self, events_, rows):
            asked.extend(rows)
            return super().scores(events_, rows)

    find_weights([Spy(hint(1, 1.0).table), hint(2, 1.0)], WINDOW, seed=3, most_bytes=2 * 4 * 30 * 10)
    first = list(asked)
    assert len(first) == 10
    assert sorted(set(first)) == first
    asked.clear()
    find_weights([Spy(hint(1, 1.0).table), hint(2, 1.0)], WINDOW, seed=4, most_bytes=2 * 4 * 30 * 10)
    assert asked != first


def test_without_targets_there_is_nothing_to_find():
    nobody = Window(events([[0], [1]]), from_rows([[], []], 2))
    with pytest.raises(NnlibError, match="no customer of the window has a target"):
        find_weights([Fixed(np.zeros((2, 2)))], nobody)
