"""Where in a space a program is tried."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regiondag.study.constraints import parse_constraints
from regiondag.study.space import Choice, Integer, Real, Space, is_legal
from regiondag.trainers.points import another_point, end_points, least_budget, usual_point

SPACE: Space = (
    Real("rate", 1e-4, 1e-2, log=True),
    Integer("width", 8, 64),
    Choice("optimizer", ("sgd", "adam")),
    Real("momentum", 0.0, 0.9, when=(("optimizer", ("sgd",)),)),
)


def test_the_usual_point_is_the_middle():
    found = usual_point(SPACE)
    assert abs(found["rate"] - 1e-3) < 1e-9
    assert found["width"] == 36
    assert found["optimizer"] == "adam"
    assert "momentum" not in found  # of sgd alone


def test_ends_of_all_parameters():
    lowest, highest = end_points(SPACE).values()
    assert lowest == {"rate": 1e-4, "width": 8, "optimizer": "sgd", "momentum": 0.0}
    assert highest == {"rate": 1e-2, "width": 64, "optimizer": "adam"}


def test_constraints_hold_everywhere():
    constraints = parse_constraints(["width <= 20", "width > 8"], [one.name for one in SPACE])
    usual = usual_point(SPACE, constraints)
    other = another_point(SPACE, usual, constraints)
    assert other is not None and other != usual
    assert all(8 < point["width"] <= 20 for point in (usual, other))
    assert end_points(SPACE, constraints) == {}


def test_a_space_of_one_point_has_no_other():
    space: Space = (Choice("rate", (0.1,)), Integer("epochs", 2, 9))  # a budget is none of its own
    assert another_point(space, usual_point(space)) is None
    assert end_points(space) == {}
    assert usual_point(()) == {} and another_point((), {}) is None


def test_the_fewest_epochs_are_the_studys():
    assert least_budget((Integer("epochs", 5, 50),), 30) == 5
    assert least_budget((Choice("epochs", (20, 10)),), 30) == 10
    assert least_budget((), 30) == 2
    assert least_budget((), 1) == 1


@given(low=st.integers(1, 50), more=st.integers(0, 50), options=st.lists(st.integers(), min_size=1, unique=True))
def test_every_point_is_legal(low, more, options):
    space: Space = (Integer("width", low, low + more), Choice("kind", tuple(options)))
    usual = usual_point(space)
    points = [usual, another_point(space, usual) or usual, *end_points(space).values()]
    assert all(is_legal(one, point[one.name]) for one in space for point in points)
