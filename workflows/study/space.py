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
When = tuple[tuple[str, tuple[Value, ...]], ...]  # (another parameter's name, its values), all of which must hold


@dataclass(frozen=True, slots=True)
class Real:
    """A real number from `low` to `high`; `points` is its number of values in a grid.

    With a `step` only low, low + step, low + 2 step ... exist. A parameter whose `when` does not hold is absent from
    the point; `default` is what the network then gets for it.
    """

    name: str
    low: float
    high: float
    log: bool = False
    points: int | None = None
    step: float | None = None
    when: When = ()
    default: Value | None = None


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from `low` to `high`, both included."""

    name: str
    low: int
    high: int
    log: bool = False
    points: int | None = None
    step: int | None = None
    when: When = ()
    default: Value | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some values; one value alone is a fixed hyperparameter.

    Where they are `ordered` they are steps of one scale, as they stand: those next to each other are alike.
    """

    name: str
    options: tuple[Value, ...]
    when: When = ()
    default: Value | None = None
    ordered: bool = False


NUMBER = (int, float)
Parameter = Real | Integer | Choice
Space = tuple[Parameter, ...]


def parameter_to_json(parameter: Parameter) -> dict[str, object]:
    """Return what `parameter_from_json` reads back."""
    more = {"when": [[name, list(values)] for name, values in parameter.when], "default": parameter.default}
    if isinstance(parameter, Choice):
        return {"name": parameter.name, "choice": list(parameter.options), "ordered": parameter.ordered, **more}
    kind = "real" if isinstance(parameter, Real) else "int"
    bounds = [parameter.low, parameter.high]
    scale = {"log": parameter.log, "points": parameter.points, "step": parameter.step}
    return {"name": parameter.name, kind: bounds, **scale, **more}


def parameter_from_json(raw: Mapping[str, Any]) -> Parameter:
    """Read what `parameter_to_json` wrote."""
    when = tuple((name, tuple(values)) for name, values in raw["when"])
    if "choice" in raw:
        ordered = raw.get("ordered", False)  # older runs do not say
        return Choice(raw["name"], tuple(raw["choice"]), when, raw["default"], ordered)
    more = (raw["log"], raw["points"], raw["step"], when, raw["default"])
    if "real" in raw:
        low, high = raw["real"]
        return Real(raw["name"], float(low), float(high), *more)
    low, high = raw["int"]
    return Integer(raw["name"], low, high, *more)


def list_levels(parameter: Parameter) -> int | None:
    """Return how many values a parameter has; None for a real number without steps."""
    if isinstance(parameter, Choice):
        return len(parameter.options)
    if parameter.step is not None:
        return round((parameter.high - parameter.low) / parameter.step) + 1
    return parameter.high - parameter.low + 1 if isinstance(parameter, Integer) else None


def level(parameter: Parameter, index: int) -> Value:
    """Return value number `index` of a parameter that has `list_levels`.

    >>> level(Real("dropout", 0.0, 1.0, step=0.1), 3)
    0.3
    """
    if isinstance(parameter, Choice):
        return parameter.options[index]
    if isinstance(parameter, Integer):
        return parameter.low + index * (parameter.step or 1)
    from decimal import Decimal  # most scripts start faster without

    step = parameter.step or 0.0
    digits = max(-int(Decimal(repr(number)).normalize().as_tuple().exponent) for number in (parameter.low, step))
    return round(parameter.low + index * step, max(digits, 0))  # 3 * 0.1 is 0.3 here, not 0.30000000000000004


def is_legal(parameter: Parameter, value: Value) -> bool:
    """Return whether `value` is one of the parameter's values.

    >>> is_legal(Integer("hidden", 64, 128, step=32), 96), is_legal(Choice("optimizer", ("sgd", "adam")), "rmsprop")
    (True, False)
    """
    if isinstance(parameter, Choice):
        return any(type(option) is type(value) and option == value for option in parameter.options)
    if isinstance(value, bool) or not isinstance(value, NUMBER) or not parameter.low <= value <= parameter.high:
        return False
    if isinstance(parameter, Integer) and not isinstance(value, int):
        return False
    return parameter.step is None or level(parameter, round((value - parameter.low) / parameter.step)) == value


def value_at(parameter: Parameter, unit: float) -> Value:
    """Return the parameter's value at `unit` in [0, 1), uniform on its (log) scale.

    >>> value_at(Integer("hidden", 1, 4), 0.99)
    4
    """
    if isinstance(parameter, Choice) or parameter.step is not None:
        count = list_levels(parameter) or 1
        return level(parameter, min(int(unit * count), count - 1))
    if isinstance(parameter, Real):
        return _interpolate(parameter.low, parameter.high, unit, parameter.log)
    # Half a step beyond both ends, so that the first and the last number are as likely as the others.
    value = _interpolate(parameter.low - 0.5, parameter.high + 0.5, unit, parameter.log)
    return min(max(round(value), parameter.low), parameter.high)


def list_ends(parameter: Parameter) -> tuple[Value, ...]:
    """Return both bounds, or every option."""
    return parameter.options if isinstance(parameter, Choice) else (parameter.low, parameter.high)


def list_extreme_values(parameter: Parameter) -> tuple[Value, ...]:
    """Return the values at which a parameter is most likely to be illegal: both bounds, or every option."""
    found = list_ends(parameter)
    return found if parameter.default is None or parameter.default in found else (*found, parameter.default)


def largest_value(parameter: Parameter) -> Value:
    """Return the largest number that a parameter may have; of texts any."""
    return max(list_extreme_values(parameter), key=lambda value: 0 if isinstance(value, str) else value)


def without_inactive(space: Space, values: Point) -> dict[str, Value]:
    """Return `values` less those of parameters whose `when` does not hold, in the order of the space.

    >>> space = (Choice("optimizer", ("sgd", "adam")), Real("momentum", 0.0, 0.9, when=(("optimizer", ("sgd",)),)))
    >>> without_inactive(space, {"optimizer": "adam", "momentum": 0.5})
    {'optimizer': 'adam'}
    """
    known = {parameter.name: parameter for parameter in space}

    def active(parameter: Parameter) -> bool:
        return all(values[name] in wanted and active(known[name]) for name, wanted in parameter.when)

    return {parameter.name: values[parameter.name] for parameter in space if active(parameter)}


def with_defaults(space: Space, point: Point) -> dict[str, Value]:
    """Return `point` with the defaults of the parameters that it lacks, as far as they have one."""
    missing = {p.name: p.default for p in space if p.name not in point and p.default is not None}
    return {**point, **missing}


def list_grid_values(parameter: Parameter) -> Sequence[Value]:
    """Return the values that a grid takes of `parameter`; ValueError when it does not say how many."""
    if isinstance(parameter, Choice):
        return parameter.options
    points = parameter.points
    if isinstance(parameter, Integer) and points is None:
        return range(parameter.low, parameter.high + 1, parameter.step or 1)
    if parameter.step is not None:
        return tuple(level(parameter, index) for index in range(list_levels(parameter) or 1))
    if points is None:
        raise ValueError("a grid needs `points: N`, `step: S` (or a choice) for a real parameter")
    if points == 1:
        return (parameter.low,)
    steps = (_interpolate(parameter.low, parameter.high, i / (points - 1), parameter.log) for i in range(points))
    if isinstance(parameter, Real):
        return tuple(steps)
    return tuple(dict.fromkeys(round(step) for step in steps))  # close points fall on one number: once is enough


def count_grid_points(space: Space) -> int:
    """Return the number of points of the full grid, those with inactive parameters or broken constraints included."""
    return math.prod(len(list_grid_values(parameter)) for parameter in space)


def grid_point(space: Space, index: int) -> dict[str, Value]:
    """Return point `index` of the full grid, inactive parameters included; the last parameter changes fastest."""
    point: dict[str, Value] = {}
    for parameter in reversed(space):
        values = list_grid_values(parameter)
        index, position = divmod(index, len(values))
        point[parameter.name] = values[position]
    return {parameter.name: point[parameter.name] for parameter in space}


def random_point(space: Space, seed: int) -> dict[str, Value]:
    """Return a uniform point without its inactive parameters; the same seed gives the same point on every machine."""
    generator = random.Random(seed)  # noqa: S311 (not for secrets)
    return without_inactive(space, {parameter.name: value_at(parameter, generator.random()) for parameter in space})


def seed_of(*parts: object) -> int:
    """Return a 64-bit seed that depends on all `parts` and on nothing else."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _interpolate(low: float, high: float, unit: float, log: bool) -> float:
    if log:
        low_log, high_log = math.log(low), math.log(high)
        return min(max(math.exp(low_log + (high_log - low_log) * unit), low), high)
    return min(max(low + (high - low) * unit, low), high)  # rounding may overshoot by one unit in the last place
