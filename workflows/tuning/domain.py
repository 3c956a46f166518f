"""The points that a search may propose: inside the space, without inactive parameters, every constraint met."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from regiondag.study.constraints import Constraint, parse_constraints
from regiondag.study.model import Search
from regiondag.study.space import (
    Choice,
    Parameter,
    Point,
    Space,
    Value,
    count_grid_points,
    grid_point,
    is_legal,
    level,
    list_levels,
    random_point,
    seed_of,
    value_at,
    without_inactive,
)

UnitSequence = Callable[[int, int, int], list[float]]  # dimensions, index, seed -> that point, in [0, 1)^dimensions

_TEXT_OF = json.JSONEncoder(sort_keys=True).encode  # `json.dumps` would make one for each point
TRIES = 20_000  # at a random legal point
TRIES_OF_COUNTABLE = 200  # before all points are listed instead
COUNTABLE = 20_000  # values of a space that are listed where chance finds no new one


@dataclass(frozen=True, slots=True)
class Domain:
    """A space and the constraints on its points."""

    space: Space
    constraints: tuple[Constraint, ...]

    @property
    def free(self) -> Space:
        """The parameters that have more than one value."""
        return tuple(p for p in self.space if not (isinstance(p, Choice) and len(p.options) == 1))

    @property
    def count(self) -> int | None:
        """The number of points of a small space, illegal and inactive ones included; None of a large one."""
        counts = [list_levels(parameter) for parameter in self.space]
        sizes = [count for count in counts if count is not None]
        return math.prod(sizes) if len(sizes) == len(counts) and math.prod(sizes) <= COUNTABLE else None

    def holds(self, point: Point) -> bool:
        """Return whether `point` meets every constraint."""
        return all(constraint.holds(point) for constraint in self.constraints)

    def has(self, point: Point) -> bool:
        """Return whether `point` could have been proposed here: another region's, or one of an earlier run."""
        known = {parameter.name: parameter for parameter in self.space}

        def active(parameter: Parameter) -> bool:
            return all(active(known[name]) and point.get(name) in wanted for name, wanted in parameter.when)

        wanted = [parameter for parameter in self.space if not parameter.when or active(parameter)]
        if len(wanted) != len(point):
            return False
        legal = all(parameter.name in point and is_legal(parameter, point[parameter.name]) for parameter in wanted)
        return legal and self.holds(point)

    def at(self, units: Iterable[float]) -> dict[str, Value]:
        """Return the point at coordinates of the unit cube, one for each parameter; it may break constraints."""
        values = {parameter.name: value_at(parameter, unit) for parameter, unit in zip(self.space, units, strict=True)}
        return without_inactive(self.space, values)

    def random(self, seed: int, taken: set[str]) -> dict[str, Value] | None:
        """Return a random legal point that is not `taken`; None when there seems to be none."""
        for attempt in range(TRIES if self.count is None else TRIES_OF_COUNTABLE):
            point = random_point(self.space, seed_of(seed, attempt) if attempt else seed)
            if self.holds(point) and identity_of(point) not in taken:
                return point
        left = [point for point in self.all_points() if identity_of(point) not in taken]
        return left[seed % len(left)] if left else None

    def some(self, count: int, tries: int, seed: int) -> list[dict[str, Value]]:
        """Return up to `count` legal ones of `tries` random points."""
        points = (random_point(self.space, seed_of(seed, attempt)) for attempt in range(tries))
        return list(itertools.islice((point for point in points if self.holds(point)), count))

    def in_sequence(self, sequence: UnitSequence, index: int, seed: int) -> dict[str, Value]:
        """Return point `index` of a sequence that fills the space."""
        free = {parameter.name: number for number, parameter in enumerate(self.free)}
        units = sequence(len(free), index, seed)
        return self.at(units[free[p.name]] if p.name in free else 0.0 for p in self.space)

    def grid(self) -> Iterator[dict[str, Value]]:
        """Yield the legal points of the grid, each once."""
        conditional = any(parameter.when for parameter in self.space)
        seen = set()
        for index in range(count_grid_points(self.space)):
            point = without_inactive(self.space, grid_point(self.space, index))
            if conditional:
                key = identity_of(point)
                if key in seen:
                    continue
                seen.add(key)
            if self.holds(point):
                yield point

    def all_points(self) -> Iterator[dict[str, Value]]:
        """Yield every legal point of a small space, and nothing of a large one."""
        if self.count is None:
            return
        sizes = [list_levels(parameter) or 1 for parameter in self.space]
        seen = set()
        for index in range(self.count):
            point = without_inactive(self.space, _values_at(self.space, sizes, index))
            key = identity_of(point)
            if key not in seen and self.holds(point):
                yield point
            seen.add(key)


def domain_of(search: Search) -> Domain:
    """Return what `search` may propose."""
    return Domain(search.space, parse_constraints(search.constraints, (p.name for p in search.space)))


def identity_of(point: Point) -> str:
    """Return a text that is equal for equal points only, whatever the order of their parameters."""
    return _TEXT_OF(point)


def _values_at(space: tuple[Parameter, ...], sizes: list[int], index: int) -> dict[str, Value]:
    values = {}
    for parameter, size in zip(space, sizes, strict=True):
        index, position = divmod(index, size)
        values[parameter.name] = level(parameter, position)
    return values
