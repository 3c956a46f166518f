"""scikit-optimize as it comes: Gaussian process, hedged acquisitions, 10 random points first, batches by cl_min.

A trial that failed counts as the worst value seen: it knows no failures. Constraints are its space_constraint.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from skopt import Optimizer
from skopt.space import Categorical, Integer, Real

from regiondag.study.constraints import parse_constraints
from scripts.bench.tuner.problem import Parameter, Point, Value
from scripts.bench.tuner.tuners.face import Task, plain


class Skopt:
    """It knows neither conditions nor points that still run."""

    def __init__(self, task: Task) -> None:
        self._space = task.space
        self._constraints = parse_constraints(task.constraints, (parameter.name for parameter in task.space))
        self._optimizer = Optimizer(
            [_dimension(parameter) for parameter in task.space],
            random_state=task.seed,
            space_constraint=self._is_legal if task.constraints else None,
        )
        self._asked: list[list[Any]] = []
        self._running: set[int] = set()

    def ask(self, n: int) -> list[dict[str, Value]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "evaluated at point before": it then takes a random one
            asked = self._told_of_running().ask(n_points=n, strategy="cl_min")
        self._running |= set(range(len(self._asked), len(self._asked) + n))
        self._asked += asked
        return list(map(self._point, asked))

    def _point(self, values: Sequence[Any]) -> dict[str, Value]:
        return dict(map(_named, self._space, values))

    def _is_legal(self, values: Sequence[Any]) -> bool:
        return all(constraint.holds(self._point(values)) for constraint in self._constraints)

    def _told_of_running(self) -> Any:
        """Return an optimizer to which what runs came out as the best so far: cl_min, as within its own batches."""
        if not self._running:
            return self._optimizer
        copy = self._optimizer.copy(random_state=self._optimizer.rng.randint(0, np.iinfo(np.int32).max))
        for number in sorted(self._running):
            copy.tell(self._asked[number], min(self._optimizer.yi, default=0.0))
        return copy

    def know(self, points: Sequence[Point], values: Sequence[float]) -> None:
        """Take trials that it did not ask for."""
        self._optimizer.tell([list(point.values()) for point in points], list(values))

    def tell(self, values: Mapping[int, float | None]) -> None:
        known = [*self._optimizer.yi, *(value for value in values.values() if value is not None)]
        told = [max(known, default=0.0) if value is None else value for value in values.values()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._optimizer.tell([self._asked[number] for number in values], told)
        self._running -= set(values)


def _dimension(parameter: Parameter) -> Any:
    if parameter.ordered:
        return Integer(0, len(parameter.options) - 1)
    if parameter.options:
        return Categorical(list(parameter.options))
    kind = Integer if parameter.whole else Real
    return kind(parameter.low, parameter.high, prior="log-uniform" if parameter.log else "uniform")


def _named(parameter: Parameter, value: Any) -> tuple[str, Value]:
    return parameter.name, parameter.options[int(value)] if parameter.ordered else plain(value)


make = Skopt
