"""Points as rows of numbers for the model, as scikit-optimize's transforms have them: normalised, logarithms, one-hot.

A row of *coordinates* has one number for each parameter: its place in [0, 1] on its (log) scale, or the index of a
choice. *Features* are what the kernel sees: a choice becomes one column for each option (one alone for two options).
Inactive parameters stand at one fixed place in both, so that no difference between them counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regiondag.study.space import Choice, Integer, Parameter, Point, Space, Value, level, list_levels, without_inactive

Array = NDArray[np.float64]

INACTIVE = 0.5  # where an inactive number stands
DIGITS = 6  # of a real value relative to its range; digits beyond them differ between machines


@dataclass(frozen=True, slots=True)
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
        rows = rows.copy()
        for number, parameter in enumerate(self.space):
            rows[:, number] = _snap(parameter, rows[:, number])
        return np.where(self.active(rows), rows, self._fixed)

    def active(self, rows: Array) -> NDArray[np.bool_]:
        """Return which parameter is active in which row."""
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
        """Return the kernel's view of snapped coordinates."""
        active = self.active(rows)
        columns = []
        for number, parameter in enumerate(self.space):
            column = rows[:, number]
            if not isinstance(parameter, Choice):
                columns.append(column[:, None])
                continue
            hot = column[:, None] == np.arange(len(parameter.options))
            if len(parameter.options) <= 2:
                hot = hot[:, 1:]
            columns.append((hot & active[:, number, None]).astype(np.float64))
        return np.concatenate(columns, axis=1)

    @property
    def groups(self) -> NDArray[np.intp]:
        """For each feature, the index of its parameter among those that have features."""
        widths = [width for p in self.space if (width := _width(p)) > 0]
        return np.repeat(np.arange(len(widths)), widths)

    @property
    def columns(self) -> NDArray[np.intp]:
        """The first feature of each parameter; of a fixed one, which has none, any other."""
        widths = np.array([_width(parameter) for parameter in self.space])
        return np.asarray(np.minimum(np.cumsum(widths) - widths, widths.sum() - 1))

    @property
    def weights(self) -> Array:
        """What each feature is multiplied by, so that two options of a choice lie 1 apart."""
        widths = [_width(parameter) for parameter in self.space]
        return np.repeat([1 / math.sqrt(2) if width > 1 else 1.0 for width in widths], widths)

    @property
    def smooth(self) -> NDArray[np.bool_]:
        """Which parameters can move by as little as one likes."""
        return np.array([list_levels(parameter) is None for parameter in self.space])

    @property
    def counts(self) -> Array:
        """The number of values of each parameter; infinity for reals."""
        return np.array([list_levels(parameter) or math.inf for parameter in self.space])

    @property
    def choices(self) -> NDArray[np.bool_]:
        """Which parameters have no order."""
        return np.array([isinstance(parameter, Choice) for parameter in self.space])

    @property
    def _fixed(self) -> Array:
        return np.array([0.0 if isinstance(parameter, Choice) else INACTIVE for parameter in self.space])


def _width(parameter: Parameter) -> int:
    if not isinstance(parameter, Choice):
        return 1
    return len(parameter.options) if len(parameter.options) > 2 else len(parameter.options) - 1


def _coordinate(parameter: Parameter, value: Value | None) -> float:
    if isinstance(parameter, Choice):
        return 0.0 if value is None else float(index_of(parameter, value))
    if value is None:
        return INACTIVE
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
        return parameter.options[round(unit)]
    unit = min(max(unit, 0.0), 1.0)
    low, high = parameter.low, parameter.high
    if parameter.step is not None:
        return level(parameter, round(unit * ((list_levels(parameter) or 1) - 1)))
    value = low * (high / low) ** unit if parameter.log else low + unit * (high - low)
    if isinstance(parameter, Integer):
        return min(max(round(value), parameter.low), parameter.high)
    scale = abs(value) if parameter.log else high - low
    return min(max(round(value, DIGITS - math.floor(math.log10(scale))), low), high)


def _snap(parameter: Parameter, column: Array) -> Array:
    if isinstance(parameter, Choice):
        return np.clip(np.rint(column), 0, len(parameter.options) - 1)
    column = np.clip(column, 0.0, 1.0)
    low, high = parameter.low, parameter.high
    if parameter.step is not None:
        last = (list_levels(parameter) or 1) - 1
        return np.asarray(np.rint(column * last) / last)
    if not isinstance(parameter, Integer):
        return column
    if parameter.log:
        return np.asarray(np.log(np.rint(low * (high / low) ** column) / low) / math.log(high / low))
    return np.asarray(np.rint(column * (high - low)) / (high - low))
