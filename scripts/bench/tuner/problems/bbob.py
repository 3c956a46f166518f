"""Functions of COCO, by its own package: bbob (numbers) and bbob-mixint (most of them whole).

N. Hansen, A. Auger, R. Ros, O. Mersmann, T. Tušar, D. Brockhoff, "COCO: a platform for comparing continuous optimizers
in a black-box setting", Optimization Methods and Software 36, 2021. Every third of the 24 functions, which are sorted
by what makes them hard, in 2, 3, 5 and 10 dimensions in turn; every sixth with whole numbers, in 5 and 10. All are
instance 1. Two more have 20 dimensions.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import numpy as np

from scripts.bench.tuner.problem import Parameter, Point, Problem

INSTANCE = 1
FUNCTIONS = {
    **{f"bbob-f{f}-{d}": ("bbob", f, d) for f, d in zip(range(1, 25, 3), (2, 3, 5, 10) * 2, strict=True)},
    **{f"bbob-mixint-f{f}-{d}": ("bbob-mixint", f, d) for f, d in zip(range(3, 25, 6), (5, 10) * 2, strict=True)},
    **{f"bbob-f{f}-20": ("bbob", f, 20) for f in (8, 17)},
}
# At the best points, which the package writes into a file when it is asked.
OPTIMA = (79.48, -462.09, 92.94, -54.94, 29.97, 71.35, -102.55, -1000.0, -46.209, 1.2383, 100.0, 40.78, 149.15, -16.94)


@cache
def names() -> tuple[str, ...]:
    """Return the names of the problems, if the package cocoex is there."""
    return tuple(FUNCTIONS) if importlib.util.find_spec("cocoex") else ()


def make(name: str) -> Problem:
    """Return a problem."""
    suite, function, dimensions = FUNCTIONS[name]
    found = _suite(suite).get_problem_by_function_dimension_instance(function, dimensions, INSTANCE)

    def true(point: Point) -> float:
        return float(found(np.array([float(point[parameter.name]) for parameter in space])))

    bounds = zip(found.lower_bounds, found.upper_bounds, strict=True)
    space = tuple(
        Parameter(f"x{index}", float(low), float(high), whole=index < found.number_of_integer_variables)
        for index, (low, high) in enumerate(bounds)
    )
    return Problem(name, "bbob", space, true, OPTIMA[list(FUNCTIONS).index(name)])


@cache
def _suite(name: str) -> Any:  # kept, as its functions live no longer than it
    from cocoex import Suite

    return Suite(name, f"instances: {INSTANCE}", "")
