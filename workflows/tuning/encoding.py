"""Points as rows of numbers for the model, as scikit-optimize's transforms have them: normalised, logarithms, one-hot.

A row of *coordinates* has one number for each parameter: its place in [0, 1] on its (log) scale, in equal steps where
options are ordered, or the index of a choice. *Features* are what the kernel sees, of the values that exist nearest to
the coordinates: so the model is flat between two whole numbers or steps, as the objective is (Garrido-Merchan and
Hernandez-Lobato 2020), and nothing is gained by polishing there. A choice becomes one column for each option (one alone
for two options). Inactive parameters stand at one fixed place, so that no difference between them counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regiondag.study.space import (
    Choice,
    Integer,
    Parameter,
    Point,
    Real,
    Space,
    Value,
    level,
    list_levels,
    without_inactive,
)

Array = NDArray[np.float64]

INACTIVE = 0.5  # where an inactive number stands
DIGITS = 6  # of a real value relative to its range; digits beyond them differ between machines


@dataclass(frozen=True)
class Encoding:
    """Coordinates and features of one space."""

    space: Space

    def coordinates(self, points: Iterable[Point]) -> Array:
        """Return a row of coordinates for each point."""
        rows = [[_coordinate(p, point.get(p.name)) for p in self.space] for point in points]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.space))

    def point(self, row: Array) -> dict[str, Value]:
        """Return the point at a row of coordinates, its reals rounded."""
        values = {p.name: _value(p, float(u)) for p, u in zip(self.space, row, strict=True)}
        return without_inactive(self.space, values)

    def snap(self, rows: Array) -> Array:
        """Return the nearest coordinates that exist: whole numbers and steps, inactive ones at their fixed place."""
        return self._snap(rows)[0]

    def active(self, rows: Array) -> NDArray[np.bool_]:
        """Return which parameter is active in which row."""
        if not any(parameter.when for parameter in self.space):
            return np.ones(rows.shape, dtype=bool)
        columns: dict[str, NDArray[np.bool_]] = {}
        numbers = {parameter.name: number for number, parameter in enumerate(self.space)}

        def of(parameter: Parameter) -> NDArray[np.bool_]:
            if parameter.name not in columns:
                result = np.ones(len(rows), dtype=bool)
                for name, values in parameter.when:
                    parent = self.space[numbers[name]]
                    wanted = [_coordinate(parent, value) for value in values]
                    seen = rows[:, numbers[name]]
                    result &= of(parent) & (np.abs(seen[:, None] - np.array(wanted)) < 1e-9).any(axis=1)
                columns[parameter.name] = result
            return columns[parameter.name]

        return np.stack([of(parameter) for parameter in self.space], axis=1)

    def features(self, rows: Array) -> Array:
        """Return the kernel's view of coordinates: two rows that come to the same values have the same features."""
        rows, active = self._snap(rows)
        owners, options = self._features
        hot = options >= 0
        features = rows[:, owners]
        features[:, hot] = (features[:, hot] == options[hot]) & active[:, owners[hot]]
        return features

    @cached_property
    def groups(self) -> NDArray[np.intp]:
        """For each feature, the index of its parameter among those that have features."""
        widths = [width for p in self.space if (width := _width(p)) > 0]
        return np.repeat(np.arange(len(widths)), widths)

    @cached_property
    def columns(self) -> NDArray[np.intp]:
        """The first feature of each parameter; of a fixed one, which has none, any other."""
        widths = np.array([_width(parameter) for parameter in self.space])
        return np.asarray(np.minimum(np.cumsum(widths) - widths, widths.sum() - 1))

    @cached_property
    def weights(self) -> Array:
        """What each feature is multiplied by, so that two options of a choice lie 1 apart."""
        widths = [_width(parameter) for parameter in self.space]
        return np.repeat([1 / math.sqrt(2) if width > 1 else 1.0 for width in widths], widths)

    @cached_property
    def smooth(self) -> NDArray[np.bool_]:
        """Which parameters can move by as little as one likes."""
        return np.array([list_levels(parameter) is None for parameter in self.space])

    @cached_property
    def counts(self) -> Array:
        """The number of values of each parameter; infinity for reals."""
        return np.array([list_levels(parameter) or math.inf for parameter in self.space])

    @cached_property
    def choices(self) -> NDArray[np.bool_]:
        """Which parameters have no order."""
        return np.array([isinstance(parameter, Choice) and not parameter.ordered for parameter in self.space])

    @cached_property
    def _features(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The number of each feature's parameter, and the option that it stands for; -1: it is the coordinate."""
        found: list[tuple[int, int]] = []
        for number, parameter in enumerate(self.space):
            width = _width(parameter)
            if isinstance(parameter, Choice) and not parameter.ordered:
                found += [(number, option) for option in range(len(parameter.options) - width, len(parameter.options))]
            else:
                found += [(number, -1)] * width
        owners, options = np.array(found, dtype=np.intp).reshape(-1, 2).T
        return owners, options

    @cached_property
    def _steps(self) -> tuple[Array, NDArray[np.intp], Array, list[tuple[int, Integer]]]:
        """The largest coordinates; parameters with equal steps and the steps in 1; whole numbers on a log scale."""
        top = [1.0 if not isinstance(p, Choice) else float(len(p.options) - 1) / _last(p) for p in self.space]
        equal = {number: _equal_steps(p) for number, p in enumerate(self.space)}
        stepped = [number for number, steps in equal.items() if steps is not None]
        uneven = [
            (number, p) for number, p in enumerate(self.space) if isinstance(p, Integer) and equal[number] is None
        ]
        return np.array(top), np.array(stepped, dtype=np.intp), np.array([equal[n] for n in stepped], float), uneven

    @cached_property
    def _fixed(self) -> Array:
        return np.array([_inactive(parameter) for parameter in self.space])

    def _snap(self, rows: Array) -> tuple[Array, NDArray[np.bool_]]:
        top, stepped, steps, uneven = self._steps
        rows = np.clip(rows, 0.0, top)
        rows[:, stepped] = np.rint(rows[:, stepped] * steps) / steps
        for number, whole in uneven:
            ratio = whole.high / whole.low
            rows[:, number] = np.log(np.rint(whole.low * ratio ** rows[:, number]) / whole.low) / math.log(ratio)
        active = self.active(rows)
        return np.where(active, rows, self._fixed), active


def _width(parameter: Parameter) -> int:
    if not isinstance(parameter, Choice):
        return 1
    if parameter.ordered or len(parameter.options) <= 2:
        return min(len(parameter.options) - 1, 1)
    return len(parameter.options)


def _inactive(parameter: Parameter) -> float:
    return 0.0 if isinstance(parameter, Choice) and not parameter.ordered else INACTIVE


def _last(choice: Choice) -> int:
    """Return by what the number of an option is divided: ordered ones lie between 0 and 1, others 1 apart."""
    return max(len(choice.options) - 1, 1) if choice.ordered else 1


def _coordinate(parameter: Parameter, value: Value | None) -> float:
    if value is None:
        return _inactive(parameter)
    if isinstance(parameter, Choice):
        return index_of(parameter, value) / _last(parameter)
    number = float(value)
    if parameter.log:
        return math.log(number / parameter.low) / math.log(parameter.high / parameter.low)
    return (number - parameter.low) / (parameter.high - parameter.low)


def index_of(choice: Choice, value: Value) -> int:
    """Return which option `value` is; 1, 1.0 and true are three options. ValueError when it is none."""
    for number, option in enumerate(choice.options):
        if option == value and type(option) is type(value):
            return number
    raise ValueError(f"{value!r} is none of {choice.options}")


def _value(parameter: Parameter, unit: float) -> Value:
    if isinstance(parameter, Choice):
        return parameter.options[round(unit * _last(parameter))]
    unit = min(max(unit, 0.0), 1.0)
    low, high = parameter.low, parameter.high
    if _has_equal_steps(parameter):
        return level(parameter, round(unit * ((list_levels(parameter) or 1) - 1)))
    value = low * (high / low) ** unit if parameter.log else low + unit * (high - low)
    if isinstance(parameter, Integer):
        return min(max(round(value), parameter.low), parameter.high)
    scale = abs(value) if parameter.log else high - low
    return min(max(round(value, DIGITS - math.floor(math.log10(scale))), low), high)


def _equal_steps(parameter: Parameter) -> float | None:
    """Return how many equal steps lie in a coordinate's 1; None of other scales."""
    if isinstance(parameter, Choice):
        return _last(parameter)
    return (list_levels(parameter) or 1) - 1 if _has_equal_steps(parameter) else None


def _has_equal_steps(parameter: Real | Integer) -> bool:
    return parameter.step is not None or (isinstance(parameter, Integer) and not parameter.log)
