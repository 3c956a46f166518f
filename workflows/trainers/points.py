"""Which points of a search a program is tried at: a usual one, another, and the ends of the space. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from regiondag.study.constraints import Constraint
from regiondag.study.space import Parameter, Point, Space, Value, list_ends, random_point, value_at, without_inactive

EPOCHS = "epochs"  # the hyperparameter that is a budget: each try says its own
MOST_DRAWN = 1000  # points at random, of which one has to meet the constraints


def usual_point(space: Space, constraints: Iterable[Constraint] = ()) -> Point:
    """Return the middle of a space, or the first point at random where the constraints leave that out."""
    middle = without_inactive(space, {one.name: value_at(one, 0.5) for one in space})
    return next(_legal([middle, *(random_point(space, seed) for seed in range(MOST_DRAWN))], constraints), middle)


def another_point(space: Space, usual: Point, constraints: Iterable[Constraint] = ()) -> Point | None:
    """Return a point that differs from the usual one; None where there is no other one."""
    drawn = _legal((random_point(space, seed) for seed in range(MOST_DRAWN)), constraints)
    return next((point for point in drawn if not _equal(point, usual)), None)


def end_points(space: Space, constraints: Iterable[Constraint] = ()) -> dict[str, Point]:
    """Return the points at which all hyperparameters are at one end, by what each is called.

    Those that the constraints leave out are not among them.
    """
    ends = {
        "lowest ends": {one.name: _end(one, 0) for one in space},
        "highest ends": {one.name: _end(one, -1) for one in space},
    }
    constraints = tuple(constraints)
    found = {name: without_inactive(space, point) for name, point in ends.items() if _differ(space)}
    return {name: point for name, point in found.items() if list(_legal([point], constraints))}


def least_budget(space: Space, epochs: int) -> int:
    """Return the least budget of a study whose trainings have so many epochs: that of its space, or 2.

    >>> least_budget((), 30)
    2
    """
    found = [one for one in space if one.name == EPOCHS]
    if found:
        return min(value for value in list_ends(found[0]) if isinstance(value, int))
    return min(2, epochs)


def _end(parameter: Parameter, index: int) -> Value:
    return list_ends(parameter)[index]


def _differ(space: Space) -> bool:
    return any(_end(one, 0) != _end(one, -1) for one in space if one.name != EPOCHS)


def _equal(one: Point, other: Point) -> bool:
    return all(one.get(name) == other.get(name) for name in {*one, *other} - {EPOCHS})


def _legal(points: Iterable[Point], constraints: Iterable[Constraint]) -> Iterator[Point]:
    constraints = tuple(constraints)
    return (point for point in points if all(constraint.holds(point) for constraint in constraints))
