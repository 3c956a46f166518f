"""Points that a search may propose: listed, drawn, and told from those that it may not."""

from __future__ import annotations

import itertools
import math

import pytest

from regiondag.study.model import Search
from regiondag.study.space import Choice, Integer, Real, random_point, seed_of
from regiondag.tuning import domain as module
from regiondag.tuning.domain import COUNTABLE, TRIES, Domain, domain_of, identity_of
from regiondag.tuning.sobol import sobol_point

SMALL = (Choice("a", ("x", "y")), Integer("n", 1, 3, when=(("a", ("y",)),)), Real("r", 0.0, 1.0, step=0.5))
POINTS = [{"a": "x", "r": r} for r in (0.0, 0.5, 1.0)]
POINTS += [{"a": "y", "n": n, "r": r} for n in (1, 2, 3) for r in (0.0, 0.5, 1.0)]


def of(space, *constraints):
    return domain_of(Search("bayes", space, (4,), constraints=constraints))


def identities(points):
    return {identity_of(point) for point in points}


def test_parameters_of_one_value_are_not_free():
    space = (Choice("one", (5,)), *SMALL, Choice("other", ("z",)))
    assert of(space).free == SMALL and of(space[:1]).free == ()


def test_small_spaces_are_counted_and_large_ones_are_not():
    assert of(SMALL).count == 2 * 3 * 3
    assert of((Integer("n", 1, COUNTABLE),)).count == COUNTABLE and of((Integer("n", 0, COUNTABLE),)).count is None
    assert of((*SMALL, Real("x", 0.0, 1.0))).count is None
    assert list(of((Integer("n", 0, COUNTABLE),)).all_points()) == [] and COUNTABLE == 20_000


def test_every_point_of_a_small_space_is_listed_once():
    listed = list(of(SMALL).all_points())
    assert len(listed) == 12 and identities(listed) == identities(POINTS)
    legal = list(of(SMALL, "n * r < 2").all_points())
    assert identities(legal) == identities(p for p in POINTS if "n" not in p or p["n"] * p["r"] < 2)
    assert len(legal) == 10


def test_the_grid_is_every_combination_once_and_in_order():
    assert list(of(SMALL).grid()) == POINTS
    assert list(of(SMALL, "r != 0.5").grid()) == [point for point in POINTS if point["r"] != 0.5]
    plain = (Integer("n", 1, 2), Choice("a", ("x", "y")))
    assert list(of(plain).grid()) == [{"n": n, "a": a} for n, a in itertools.product((1, 2), "xy")]
    assert list(of(plain, "n > 1").grid()) == [{"n": 2, "a": "x"}, {"n": 2, "a": "y"}]


def test_conditions_on_conditions_decide_what_a_point_has():
    space = (
        Choice("a", ("x", "y")),
        Choice("b", (True, False), when=(("a", ("y",)),)),
        Integer("c", 1, 9, when=(("b", (True,)),)),
    )
    domain = of(space, "c < 5")
    for good in ({"a": "x"}, {"a": "y", "b": False}, {"a": "y", "b": True, "c": 4}):
        assert domain.has(good)
    for bad in (
        {"a": "x", "c": 4},
        {"a": "y"},
        {"a": "y", "b": True},
        {"a": "y", "b": False, "c": 4},
        {"a": "y", "b": True, "c": 5},
        {"a": "y", "b": True, "c": 10},
        {"a": "x", "other": 1},
        {"b": True, "c": 4},
        {},
    ):
        assert not domain.has(bad)


def test_a_point_holds_where_every_constraint_does():
    domain = of(SMALL, "r > 0", "n < 3")
    assert [domain.holds(p) for p in ({"r": 0.5, "n": 2}, {"r": 0.0, "n": 2}, {"r": 0.5, "n": 3}, {"r": 0.5})] == [
        True, False, False, True,
    ]  # fmt: skip


def test_points_at_coordinates_lack_what_is_inactive():
    assert of(SMALL).at([0.2, 0.9, 0.5]) == {"a": "x", "r": 0.5}
    assert of(SMALL).at([0.7, 0.9, 0.99]) == {"a": "y", "n": 3, "r": 1.0}
    for units in ([0.7, 0.9], [0.7, 0.9, 0.5, 0.5]):
        with pytest.raises(ValueError):
            of(SMALL).at(units)


def test_random_points_are_those_of_the_space_until_one_is_legal_and_new():
    space = (Real("x", 0.0, 1.0),)
    assert of(space).random(7, set()) == random_point(space, 7)
    first = random_point(space, 7)
    assert of(space).random(7, {identity_of(first)}) == random_point(space, seed_of(7, 1))
    drawn = (random_point(space, seed_of(7, n) if n else 7) for n in itertools.count())
    assert of(space, "x > 0.95").random(7, set()) == next(p for p in drawn if p["x"] > 0.95)


def test_what_chance_misses_in_a_small_space_is_found_by_listing(monkeypatch):
    taken = identities(POINTS)
    assert of(SMALL).random(3, taken) is None
    assert of(SMALL).random(3, taken - identities(POINTS[5:6])) == POINTS[5]
    tries = []
    monkeypatch.setattr(module, "random_point", lambda space, seed: tries.append(seed) or POINTS[0])
    left = [point for point in of(SMALL).all_points() if point != POINTS[0]]
    assert [of(SMALL).random(seed, {identity_of(POINTS[0])}) for seed in range(11)] == left  # any of them, by the seed
    assert len(tries) == 11 * 200


def test_a_large_space_without_legal_points_has_an_end_of_tries(monkeypatch):
    tries = []
    monkeypatch.setattr(module, "random_point", lambda space, seed: tries.append(seed) or {"x": 0.5})
    assert of((Real("x", 0.0, 1.0),), "x > 1").random(3, set()) is None and len(tries) == TRIES == 20_000
    assert len(set(tries)) == TRIES and tries[0] == 3


def test_some_legal_points_are_the_first_of_so_many():
    space = (Real("x", 0.0, 1.0),)
    drawn = [random_point(space, seed_of(5, number)) for number in range(60)]
    legal = [point for point in drawn if point["x"] < 0.3]
    assert of(space, "x < 0.3").some(4, 60, 5) == legal[:4]
    assert of(space, "x < 0.3").some(400, 60, 5) == legal and of(space, "x < 0").some(4, 60, 5) == []


def test_sobol_points_leave_out_what_is_fixed():
    space = (Choice("one", (5,)), Real("x", 0.0, 1.0), Choice("two", ("u",)), Real("y", 0.0, 10.0))
    for index in range(8):
        x, y = sobol_point(2, index, 4)
        assert of(space).in_sequence(sobol_point, index, 4) == {
            "one": 5,
            "x": x,
            "two": "u",
            "y": pytest.approx(10 * y),
        }


def test_points_are_the_same_whatever_the_order_of_their_parameters():
    assert identity_of({"a": 1, "b": 2.5}) == identity_of({"b": 2.5, "a": 1})
    assert len({identity_of({"a": value}) for value in (1, 1.0, True, "1")}) == 4


def test_a_domain_is_its_space_and_its_constraints():
    domain = of(SMALL, "r > 0", "n < 3")
    assert domain.space == SMALL and [c.text for c in domain.constraints] == ["r > 0", "n < 3"]
    assert Domain(SMALL, ()).count == math.prod((2, 3, 3))
