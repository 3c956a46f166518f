"""Hyperparameter spaces as plain data: JSON in and out, grids, and points of the unit cube."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Value = bool | int | float | str
Point = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Real:
    """A real number from `low` to `high`; `points` is its number of values in a grid."""

    name: str
    low: float
    high: float
    log: bool = False
    points: int | None = None


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from `low` to `high`, both included."""

    name: str
    low: int
    high: int
    log: bool = False
    points: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some values; one value alone is a fixed hyperparameter."""

    name: str
    options: tuple[Value, ...]


Parameter = Real | Integer | Choice
Space = tuple[Parameter, ...]


def parameter_to_json(parameter: Parameter) -> dict[str, Any]:
    """Return what `parameter_from_json` reads back."""
    if isinstance(parameter, Choice):
        return {"name": parameter.name, "choice": list(parameter.options)}
    kind = "real" if isinstance(parameter, Real) else "int"
    bounds = [parameter.low, parameter.high]
    return {"name": parameter.name, kind: bounds, "log": parameter.log, "points": parameter.points}


def parameter_from_json(raw: Mapping[str, Any]) -> Parameter:
    """Read what `parameter_to_json` wrote."""
    if "choice" in raw:
        return Choice(raw["name"], tuple(raw["choice"]))
    if "real" in raw:
        low, high = raw["real"]
        return Real(raw["name"], float(low), float(high), raw["log"], raw["points"])
    low, high = raw["int"]
    return Integer(raw["name"], low, high, raw["log"], raw["points"])


def at(parameter: Parameter, unit: float) -> Value:
    """Return the parameter's value at `unit` in [0, 1), uniform on its (log) scale.

    >>> at(Integer("hidden", 1, 4), 0.99)
    4
    """
    if isinstance(parameter, Choice):
        return parameter.options[min(int(unit * len(parameter.options)), len(parameter.options) - 1)]
    if isinstance(parameter, Real):
        return _interpolate(parameter.low, parameter.high, unit, parameter.log)
    # Half a step beyond both ends, so that the first and the last number are as likely as the others.
    value = _interpolate(parameter.low - 0.5, parameter.high + 0.5, unit, parameter.log)
    return min(max(round(value), parameter.low), parameter.high)


def ends(parameter: Parameter) -> tuple[Value, ...]:
    """Return the values at which a parameter is most likely to be illegal: both bounds, or every option."""
    return parameter.options if isinstance(parameter, Choice) else (parameter.low, parameter.high)


def grid_values(parameter: Parameter) -> Sequence[Value]:
    """Return the values that a grid takes of `parameter`; ValueError when it does not say how many."""
    if isinstance(parameter, Choice):
        return parameter.options
    points = parameter.points
    if points is None:
        if isinstance(parameter, Real):
            raise ValueError("a grid needs `points: N` (or a choice) for a real parameter")
        return range(parameter.low, parameter.high + 1)
    if points == 1:
        return (parameter.low,)
    steps = (_interpolate(parameter.low, parameter.high, i / (points - 1), parameter.log) for i in range(points))
    if isinstance(parameter, Real):
        return tuple(steps)
    return tuple(dict.fromkeys(round(step) for step in steps))  # close points fall on one number: once is enough


def grid_size(space: Space) -> int:
    """Return the number of points of the full grid."""
    return math.prod(len(grid_values(parameter)) for parameter in space)


def grid_point(space: Space, index: int) -> dict[str, Value]:
    """Return point `index` of the full grid; the last parameter changes fastest."""
    point: dict[str, Value] = {}
    for parameter in reversed(space):
        values = grid_values(parameter)
        index, position = divmod(index, len(values))
        point[parameter.name] = values[position]
    return {parameter.name: point[parameter.name] for parameter in space}


def random_point(space: Space, seed: int) -> dict[str, Value]:
    """Return a uniform point; the same seed gives the same point on every machine."""
    generator = random.Random(seed)  # noqa: S311 (not for secrets)
    return {parameter.name: at(parameter, generator.random()) for parameter in space}


def seed_of(*parts: object) -> int:
    """Return a 64-bit seed that depends on all `parts` and on nothing else."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _interpolate(low: float, high: float, unit: float, log: bool) -> float:
    if log:
        low_log, high_log = math.log(low), math.log(high)
        return min(max(math.exp(low_log + (high_log - low_log) * unit), low), high)
    return min(max(low + (high - low) * unit, low), high)  # rounding may overshoot by one unit in the last place
