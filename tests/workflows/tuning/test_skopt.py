"""What scikit-optimize is told and how its answers are read, with a play one: importing it takes seconds."""

from __future__ import annotations

import sys
import types
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from regiondag.study.model import Search
from regiondag.study.space import Choice, Integer, Real
from regiondag.tuning import skopt_method
from regiondag.tuning.domain import domain_of
from regiondag.tuning.sharing import Observation

SPACE = (
    Real("x", 0.5, 2.0),
    Real("rate", 1e-4, 1e-1, log=True),
    Integer("n", 1, 9, log=True),
    Choice("one", (5,)),
    Choice("kind", ("a", "b", "c")),
    Real("drop", 0.0, 1.0, step=0.25, when=(("kind", ("b",)),)),
    Choice("equal", (1, True, 1.0, "1")),
    Choice("size", ("small", "medium", "large"), ordered=True),
)
POINT = {"x": 1.5, "rate": 0.01, "n": 3, "one": 5, "kind": "b", "drop": 0.75, "equal": True, "size": "medium"}
OTHER = {"x": 0.5, "rate": 0.1, "n": 9, "one": 5, "kind": "a", "equal": 1.0, "size": "large"}


@dataclass
class Play:
    """Stands for the package: dimensions are tuples, and an optimizer answers `rows`."""

    rows: list[list[Any]] = field(default_factory=list)
    made: dict[str, Any] = field(default_factory=dict)
    told: tuple[Any, ...] = ()
    asked: dict[str, Any] = field(default_factory=dict)

    def optimizer(self, dimensions, **options):
        self.made = {"dimensions": dimensions, **options}
        return self

    def tell(self, rows, values):
        warnings.warn("The objective has been evaluated at this point before.", UserWarning, stacklevel=1)
        self.told = rows, values

    def ask(self, **how):
        self.asked = how
        return self.rows[: how["n_points"]]


@pytest.fixture
def play(monkeypatch):
    play, package, space = Play(), types.ModuleType("skopt"), types.ModuleType("skopt.space")
    package.Optimizer = play.optimizer
    space.Real = lambda low, high, prior: ("real", low, high, prior)
    space.Integer = lambda low, high, prior="uniform": ("integer", low, high, prior)
    space.Categorical = lambda options: ("choice", options)
    monkeypatch.setitem(sys.modules, "skopt", package)
    monkeypatch.setitem(sys.modules, "skopt.space", space)
    return play


def domain(*constraints, space=SPACE):
    return domain_of(Search("skopt", space, (4,), constraints=constraints))


def test_the_space_is_told_without_what_is_fixed(play):
    skopt_method.ask(domain(), [Observation(POINT, 1.0)], [], 2, 2**32 + 7)
    assert play.made["dimensions"] == [
        ("real", 0.5, 2.0, "uniform"),
        ("real", 1e-4, 1e-1, "log-uniform"),
        ("integer", 1, 9, "log-uniform"),
        ("choice", ["a", "b", "c"]),
        ("integer", 0, 4, "uniform"),  # the number of the step
        ("choice", ["0", "1", "2", "3"]),  # options that are one to scikit-optimize
        ("integer", 0, 2, "uniform"),  # the number of an ordered option
    ]
    assert play.made["random_state"] == 7 and play.made["n_initial_points"] == 1
    assert play.made["acq_optimizer_kwargs"] == {"n_points": 10_000} and play.made["space_constraint"] is None
    assert play.asked == {"n_points": 2, "strategy": "cl_min"}


def test_failures_are_the_worst_and_pending_trials_the_best(play):
    history = [Observation(POINT, 3.0), Observation(OTHER, None), Observation(OTHER, -1.0), Observation(POINT, 2.0)]
    skopt_method.ask(domain(), history, [OTHER, POINT], 1, 1)
    full, low = [1.5, 0.01, 3, "b", 3, "1", 1], [0.5, 0.1, 9, "a", 0, "2", 2]  # what is inactive is at its first value
    assert play.told == ([full, low, low, full, low, full], [3.0, 3.0, -1.0, 2.0, -1.0, -1.0])


def test_losses_are_kept_where_they_can_be_squared(play):
    skopt_method.ask(
        domain(), [Observation(POINT, 1e308), Observation(OTHER, -1e200), Observation(POINT, 5.0)], [], 1, 1
    )
    assert play.told[1] == [1e100, -1e100, 5.0]


def test_answers_are_points_of_plain_values(play):
    play.rows = [
        [np.float64(1.5), np.float64(0.01), np.int64(3), np.str_("b"), np.int64(3), np.str_("1"), np.int64(1)],
        [0.4, 0.2, 9, "a", 4, "2", 2],
        [2.1, 1e-5, 9, "c", 4, "3", 0],
    ]
    points = skopt_method.ask(domain(), [Observation(POINT, 1.0)], [], 3, 1)
    assert points[0] == POINT and list(points[0]) == [p.name for p in SPACE]
    assert [type(value) for value in points[0].values()] == [float, float, int, int, str, float, bool, str]
    assert points[1] == OTHER and type(points[1]["equal"]) is float  # rounding may lead beyond an end
    assert points[2] == {"x": 2.0, "rate": 1e-4, "n": 9, "one": 5, "kind": "c", "equal": "1", "size": "small"}
    with pytest.raises(ValueError):
        play.rows = [[1.5, 0.01]]
        skopt_method.ask(domain(), [Observation(POINT, 1.0)], [], 1, 1)


def test_what_is_illegal_is_left_out_of_its_candidates(play):
    constrained = domain("n < 5")
    skopt_method.ask(constrained, [Observation(POINT, 1.0)], [], 1, 1)
    holds = play.made["space_constraint"]
    assert holds([1.5, 0.01, 3, "b", 3, "1", 0]) and not holds([1.5, 0.01, 5, "b", 3, "1", 0])
    plane = (Real("x", 0.0, 1.0), Real("y", 0.0, 1.0))
    for text, least, most in (
        ("x < 0.5", 4200, 5800),
        ("x < 0.1", 600, 1400),
        ("x + y < 0.01", 50, 50),
        ("x > 1", 50, 50),
    ):
        count = skopt_method._candidates(domain(text, space=plane), 3)
        assert isinstance(count, int) and least <= count <= most and (count % 20 == 0 or count == 50)  # so many of 500


def test_a_space_of_one_point_is_not_asked_about(play):
    assert skopt_method.ask(domain(space=SPACE[3:4]), [], [], 2, 1) == [] and play.made == {}


def test_whole_numbers_with_steps_are_told_by_the_number_of_the_step(play):
    space = (Integer("n", 10, 50, step=20), Choice("two", (0.5, "x")))
    play.rows = [[2, "x"], [0, 0.5]]
    found = skopt_method.ask(domain(space=space), [Observation({"n": 30, "two": 0.5}, 1.0)], [], 2, 1)
    assert play.made["dimensions"] == [("integer", 0, 2, "uniform"), ("choice", [0.5, "x"])]
    assert play.told[0] == [[1, 0.5]] and found == [{"n": 50, "two": "x"}, {"n": 10, "two": 0.5}]


def test_what_is_inactive_is_told_at_its_first_value(play):
    when = (("on", (True,)),)
    space = (
        Choice("on", (False, True)),
        Choice("kind", ("a", "b", "c"), when=when),
        Integer("n", 3, 9, when=when),
        Real("x", 0.5, 1.0, step=0.25, when=when),
    )
    history = [Observation({"on": False}, 1.0), Observation({"on": True, "kind": "c", "n": 7, "x": 0.75}, 2.0)]
    play.rows = [[False, "b", 4, 2], [True, "b", 4, 2]]
    found = skopt_method.ask(domain(space=space), history, [], 2, 1)
    assert play.told[0] == [[False, "a", 3, 0], [True, "c", 7, 1]]
    assert found == [{"on": False}, {"on": True, "kind": "b", "n": 4, "x": 1.0}]
