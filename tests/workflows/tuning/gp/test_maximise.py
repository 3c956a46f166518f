"""The search for the point that a criterion likes best, with criteria whose best points are known."""

from __future__ import annotations

import numpy as np
import pytest

from regiondag.study.model import Search as Study
from regiondag.study.space import Choice, Integer, Real, grid_point
from regiondag.tuning.domain import domain_of, identity_of
from regiondag.tuning.encoding import INACTIVE, Encoding
from regiondag.tuning.gp.maximise import Maximiser

MIXED = (
    Real("x", 0.0, 1.0),
    Integer("n", 0, 10),
    Choice("kind", ("a", "b", "c")),
    Real("y", 0.0, 1.0, when=(("kind", ("b",)),)),
)
PLANE = (Real("x", 0.0, 1.0), Real("y", 0.0, 1.0))
SMALL = (Choice("kind", ("a", "b", "c")), Integer("n", 0, 4))


class Peak:
    """A criterion that falls with the square of the distance from one row of features."""

    def __init__(self, there, weights=1.0):
        self.there, self.weights, self.asked = np.array(there), np.array(weights), []

    def value(self, features):
        self.asked.append(features)
        return -(self.weights * (features - self.there) ** 2).sum(axis=1)

    def value_and_gradient(self, features):
        return self.value(features), -2 * self.weights * (features - self.there)


def search(space, criterion, *constraints, seed=0, others=None):
    domain = domain_of(Study("bayes", space, (4,), constraints=constraints))
    others = np.zeros((0, len(space))) if others is None else others
    return Maximiser(domain, Encoding(space), criterion, np.random.Generator(np.random.PCG64(seed)), others)


def peak_at(space, point, **more):
    encoding = Encoding(space)
    return Peak((encoding.features(encoding.coordinates([point])) * encoding.weights)[0], **more)


def row_of(space, point):
    return Encoding(space).coordinates([point])


@pytest.mark.parametrize(
    "best",
    [
        {"x": 0.123456, "n": 7, "kind": "b", "y": 0.654321},
        {"x": 1.0, "n": 0, "kind": "a"},
        {"x": 0.0, "n": 10, "kind": "c"},
    ],
)
def test_the_best_point_of_numbers_and_choices_is_found(best):
    found = search(MIXED, peak_at(MIXED, best)).best(np.full((1, 4), 0.5), 1.0, set())
    assert found.keys() == best.keys() and found["n"] == best["n"] and found["kind"] == best["kind"]
    assert [found["x"], found.get("y", 0)] == pytest.approx([best["x"], best.get("y", 0)], abs=1e-5)


def test_a_small_space_is_searched_from_its_best_point_to_its_end():
    best = {"kind": "b", "n": 3}
    one = search(SMALL, peak_at(SMALL, best), "kind != 'c' or n != 2")
    taken = set()
    for number in range(14):
        found = one.best(row_of(SMALL, {"kind": "a", "n": 0}), 1.0, taken)
        assert identity_of(found) not in taken and found != {"kind": "c", "n": 2} and (number > 0 or found == best)
        taken.add(identity_of(found))
    assert one.best(row_of(SMALL, {"kind": "a", "n": 0}), 1.0, taken) is None


def test_a_peak_behind_a_constraint_is_approached():
    found = search(PLANE, Peak([0.9, 0.9]), "x + y <= 1").best(np.full((1, 2), 0.2), 1.0, set())
    assert found["x"] + found["y"] <= 1 and found["x"] + found["y"] > 0.97
    assert abs(found["x"] - 0.5) < 0.05


def test_a_tiny_legal_part_is_searched():
    found = search(PLANE, Peak([0.9, 0.9]), "x + y <= 0.05", seed=3).best(np.full((1, 2), 0.5), 1.0, set())
    assert 0.04 < found["x"] + found["y"] <= 0.05


def test_with_little_reach_only_the_neighbourhood_of_the_anchors_is_searched():
    bumps = Peak([0.95, 0.95])
    anchor = np.array([[0.2, 0.3]])
    one = search(PLANE, bumps)
    rows = one._candidates(anchor, 0.3)
    assert len(rows) == 180 and np.abs(rows - anchor).max() < 0.3 * 0.2 * 5
    for part, spread in zip(np.split(rows, 3), (0.2, 0.07, 0.02), strict=True):
        moved = (part - anchor)[part != anchor]
        assert moved.std() == pytest.approx(0.3 * spread, rel=0.25)
    wide = search(PLANE, bumps)._candidates(anchor, 1.0)
    assert len(wide) == 600 + 180 and np.abs(wide[:600] - 0.5).max() > 0.49


def test_candidates_are_everywhere_around_anchors_and_what_neighbours_tried():
    others = np.array([[0.11, 3 / 10, 1.0, 0.7], [0.22, 0.0, 0.0, 0.4]])
    anchors = np.array([[0.5, 0.5, 1.0, 0.5], [0.9, 0.9, 2.0, INACTIVE]])
    one = search(MIXED, None, others=others)
    rows = one._candidates(anchors, 1.0)
    assert len(rows) == 2 + 600 + 2 * 3 * 60
    assert rows[0] == pytest.approx(others[0]) and rows[1] == pytest.approx([0.22, 0.0, 0.0, INACTIVE])
    assert one._candidates(anchors, 0.5)[:2] == pytest.approx(rows[:2])  # those of neighbours at any reach
    scattered = rows[2:602]
    assert np.histogram(scattered[:, 0], 4, (0, 1))[0].min() > 100
    assert np.bincount(scattered[:, 2].astype(int)).min() > 150 and set(scattered[:, 2]) == {0.0, 1.0, 2.0}
    assert np.unique(np.rint(scattered[:, 1] * 10)).tolist() == list(range(11))
    assert (rows == one.encoding.snap(rows)).all()


def test_legal_points_are_among_the_candidates_of_a_small_legal_part():
    one = search(PLANE, None, "x + y <= 0.05")
    rows = one._candidates(np.zeros((0, 2)), 1.0)
    assert (rows[600:].sum(axis=1) <= 0.05).all() and 2 <= len(rows) - 600 <= 32
    assert len(search(PLANE, None, "x <= 0.9")._candidates(np.zeros((0, 2)), 1.0)) == 632
    assert len(search(PLANE, None, "x <= 0.9")._candidates(np.zeros((1, 2)), 0.9)) == 180


def test_mutations_move_something_and_not_everything():
    one = search(MIXED, None)
    rows = np.tile([0.5, 0.5, 1.0, 0.5], (4000, 1))
    moved = one._mutate(rows, 0.05)
    assert (moved == rows)[:, [0, 3]].mean() == pytest.approx(0.6 * 3 / 4, abs=0.03)  # 0.4, or drawn as the one
    numbers = (moved - rows)[:, [0, 3]][moved[:, [0, 3]] != 0.5]
    assert numbers.std() == pytest.approx(0.05, rel=0.05) and abs(numbers.mean()) < 0.005
    whole = (moved - rows)[:, 1][moved[:, 1] != 0.5]
    assert whole.std() == pytest.approx(1 / 10, rel=0.1)  # at least by a step
    changed = (moved[:, 2] != 1.0).mean()
    assert changed == pytest.approx((1 - 0.6 * 3 / 4) * 0.15 * 2 / 3, abs=0.015) and set(moved[:, 2]) == {0.0, 1.0, 2.0}
    assert ((moved >= 0) & (moved[:, [0, 1, 3]].max() <= 1)).all()
    edge = one._mutate(np.tile([0.0, 1.0, 0.0, 1.0], (500, 1)), 0.4)
    assert edge[:, [0, 1, 3]].min() == 0.0 and edge[:, [0, 1, 3]].max() == 1.0
    assert one._mutate(rows, 0.3)[:, 1].std() > 0.15  # and by more where more is asked for


def test_of_one_or_two_parameters_enough_move():
    single = search(PLANE[:1], None)
    assert (single._mutate(np.full((500, 1), 0.5), 0.1) != 0.5).all()
    moved = search(PLANE, None)._mutate(np.full((4000, 2), 0.5), 0.1) != 0.5
    assert moved.any(axis=1).all() and moved.mean() == pytest.approx(0.75, abs=0.03)
    five = search((*MIXED[:2], *PLANE[1:], Real("z", 0.0, 1.0), Real("w", 0.0, 1.0)), None)
    moved = five._mutate(np.full((4000, 5), 0.5), 0.1) != 0.5
    assert moved.any(axis=1).all() and moved.mean() == pytest.approx(1 - 0.6 * 4 / 5, abs=0.03)


def test_two_values_of_one_number_are_a_step_apart():
    one = search((Integer("n", 3, 4), Choice("one", (5,)), Real("x", 0.0, 1.0, step=0.25)), None)
    moved = one._mutate(np.tile([0.0, 0.0, 0.5], (3000, 1)), 0.01)
    assert (moved[:, 0] > 0.5).mean() > 0.1 and (moved[:, 1] == 0).all()
    assert (moved[:, 2] - 0.5)[moved[:, 2] != 0.5].std() == pytest.approx(0.25, rel=0.1)


def test_refining_keeps_what_is_best_around_each_row():
    criterion = Peak([0.8, 0.1])
    rows = np.array([[0.2, 0.2], [0.79, 0.11], [0.8, 0.1]])
    for count in (1, 25, 400):
        refined = search(PLANE, criterion)._refine(rows, 0.1, count, set())
        assert refined.shape == rows.shape and (criterion.value(refined) >= criterion.value(rows)).all()
        assert criterion.asked[0].shape == (3 * (count + 1), 2)
        criterion.asked.clear()
    assert (criterion.value(refined)[:2] > criterion.value(rows)[:2]).all() and (refined[2] == rows[2]).all()
    assert np.abs(refined - rows).max() < 0.5  # each row's own neighbours
    assert np.abs(refined[0] - rows[0]).max() < np.abs(refined[0] - rows[1]).max()


def test_refining_never_ends_at_what_breaks_a_constraint():
    rows = np.array([[0.2, 0.2], [0.48, 0.5]])
    refined = search(PLANE, Peak([0.9, 0.9]), "x + y <= 1")._refine(rows, 0.1, 400, set())
    assert (refined.sum(axis=1) <= 1).all() and (refined.sum(axis=1) > rows.sum(axis=1)).all()


def test_polishing_follows_the_gradient_of_real_numbers_alone():
    criterion = peak_at(MIXED, {"x": 0.31, "n": 9, "kind": "b", "y": 0.77})
    rows = np.array([[0.9, 0.2, 1.0, 0.1], [0.1, 0.4, 0.0, INACTIVE]])
    ends = search(MIXED, criterion)._polish(rows)
    assert ends[0] == pytest.approx([0.31, 0.2, 1.0, 0.77], abs=1e-4)
    assert ends[1] == pytest.approx([0.31, 0.4, 0.0, INACTIVE], abs=1e-4)
    assert (ends[:, 1:3] == rows[:, 1:3]).all() and ends[1, 3] == INACTIVE
    outside = Peak([1.4, -0.5])
    assert search(PLANE, outside)._polish(np.array([[0.5, 0.5]])) == pytest.approx(np.array([[1.0, 0.0]]), abs=1e-6)
    same = row_of(SMALL, {"kind": "a", "n": 0})
    assert search(SMALL, None)._polish(same) is same  # nothing can be moved a little


def test_a_narrow_ridge_is_climbed_by_its_gradient():
    criterion = Peak([0.2718281, 0.5772156], weights=[1e4, 1.0])
    found = search(PLANE, criterion).best(np.full((1, 2), 0.9), 1.0, set())
    assert [found["x"], found["y"]] == pytest.approx([0.2718281, 0.5772156], abs=2e-6)


def test_rows_whose_points_are_legal_new_and_different():
    one = search(SMALL, None, "n < 4")
    rows = np.array([[0, 0.0], [0, 0.1], [1, 1.0], [2, 0.5], [2, 0.25], [1, 0.0], [0, 0.75]])
    taken = {identity_of({"kind": "c", "n": 2})}
    assert one._legal(rows, 9, taken).tolist() == [[0, 0], [2, 0.25], [1, 0], [0, 0.75]]
    assert one._legal(rows, 2, taken).tolist() == [[0, 0], [2, 0.25]]
    assert len(one._legal(rows[2:4], 2, taken)) == 0


def test_values_are_those_of_weighted_features():
    criterion = Peak(np.zeros(3))
    one = search(SMALL[:1], criterion)
    assert one._value(np.array([[0.0], [2.0]])) == pytest.approx([-0.5, -0.5])  # so that two options lie 1 apart


def test_where_no_candidate_is_legal_chance_goes_on():
    one = search(SMALL, Peak([0.0, 0.0, 0.0, 0.0]), "n == 4")
    taken = {identity_of({"kind": kind, "n": 4}) for kind in "ac"}
    anchor = row_of(SMALL, {"kind": "a", "n": 0})
    last = {"kind": "b", "n": 4}
    assert one.best(anchor, 0.0, taken) in (None, last) and one.draw(taken) == last
    taken.add(identity_of(last))
    assert one.best(anchor, 0.0, taken) is None and one.draw(taken) is None


STEPS = (Integer("n", 0, 20), Choice("size", tuple(range(8)), ordered=True), Choice("kind", ("a", "b")))


def test_of_a_space_of_steps_the_best_new_point_is_found_each_time():
    criterion = peak_at(STEPS, {"n": 7, "size": 5, "kind": "a"}, weights=[1.0, 1.3, 0.1])
    encoding = Encoding(STEPS)
    every = [grid_point(STEPS, index) for index in range(336)]
    values = criterion.value(encoding.features(encoding.coordinates(every)))
    best = [every[number] for number in np.argsort(-values, kind="stable")]
    taken = {identity_of(point) for point in best[:40]}
    anchors = encoding.coordinates(best[:4])  # where the model has been told that it is good
    for number in range(40, 50):
        found = search(STEPS, criterion, seed=number).best(anchors, 1.0, taken)
        assert criterion.value(encoding.features(encoding.coordinates([found]))) == pytest.approx(
            criterion.value(encoding.features(encoding.coordinates([best[number]])))
        )
        taken.add(identity_of(found))


def test_refining_never_ends_at_what_is_taken():
    criterion = peak_at(STEPS, {"n": 7, "size": 5, "kind": "a"})
    taken = {identity_of({"n": 7, "size": 5, "kind": kind}) for kind in "ab"}
    rows = row_of(STEPS, {"n": 6, "size": 4, "kind": "b"})
    refined = search(STEPS, criterion)._refine(rows, 0.1, 400, taken)
    assert Encoding(STEPS).point(refined[0]) == {"n": 6, "size": 5, "kind": "a"}


def test_ordered_options_move_to_those_next_to_them_and_others_to_any():
    space = (Choice("size", tuple(range(21)), ordered=True), Choice("kind", tuple(range(21))))
    one = search(space, None)
    moved = one.encoding.snap(one._mutate(np.tile([0.5, 10.0], (2000, 1)), 0.05))
    assert np.abs(moved[:, 0] - 0.5).max() <= 0.25 and len(np.unique(moved[:, 0])) > 3
    assert len(np.unique(moved[:, 1])) == 21


def test_where_all_around_the_anchors_is_taken_it_looks_everywhere():
    criterion = peak_at(STEPS, {"n": 0, "size": 0, "kind": "a"})
    near = [grid_point(STEPS, index) for index in range(336)]
    taken = {identity_of(point) for point in near if point["n"] < 12}
    reaches = []
    one = search(STEPS, criterion)
    candidates = Maximiser._candidates
    look = lambda self, anchors, reach: reaches.append(reach) or candidates(self, anchors, reach)  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Maximiser, "_candidates", look)
        found = one.best(row_of(STEPS, near[0]), 0.1, taken)
    assert found == {"n": 12, "size": 0, "kind": "a"} and reaches == [0.1, 1.0]


def test_what_is_refined_is_the_best_of_the_candidates(monkeypatch):
    refined = []
    refine = Maximiser._refine
    monkeypatch.setattr(
        Maximiser, "_refine", lambda self, rows, *how: refined.append((rows, how)) or refine(self, rows, *how)
    )
    criterion = Peak([0.3, 0.6])
    search(PLANE, criterion).best(np.full((2, 2), 0.5), 1.0, set())
    (rows, (*first, _)), (_, (*second, _)) = refined
    values = np.sort(criterion.value(criterion.asked[0]))[::-1]
    assert criterion.value(rows) == pytest.approx(values[:6]) and len(rows) == 6  # the best of all candidates
    assert (first, second) == ([0.1, 25], [0.03, 25])
