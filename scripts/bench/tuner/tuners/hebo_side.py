"""HEBO: Gaussian process on warped losses, a front of three acquisitions. It knows no conditions."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from hebo.design_space.design_space import DesignSpace
from hebo.optimizers.hebo import HEBO

from scripts.bench.tuner.problem import Parameter, Value
from scripts.bench.tuner.tuners.face import Task, plain


class Hebo:
    """Points that still run are unknown to it: so it comes, and nothing is added."""

    def __init__(self, task: Task) -> None:
        random.seed(task.seed)
        np.random.seed(task.seed)  # it draws from there
        torch.manual_seed(task.seed)
        self._space = task.space
        space = DesignSpace().parse([_dimension(parameter) for parameter in task.space])
        self._hebo = HEBO(space, scramble_seed=task.seed)
        self._asked: list[Any] = []  # frames of one row

    def ask(self, n: int) -> list[dict[str, Value]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame = self._hebo.suggest(n_suggestions=n)
        self._asked += [frame.iloc[[row]] for row in range(n)]
        return [{p.name: _value(p, frame[p.name].iloc[row]) for p in self._space} for row in range(n)]

    def tell(self, values: Mapping[int, float]) -> None:
        for number, value in values.items():
            self._hebo.observe(self._asked[number], np.array([[value]]))


def _dimension(parameter: Parameter) -> dict[str, Any]:
    if parameter.ordered:
        return {"name": parameter.name, "type": "int", "lb": 0, "ub": len(parameter.options) - 1}
    if parameter.options:
        return {"name": parameter.name, "type": "cat", "categories": list(parameter.options)}
    kinds = {(True, True): "pow_int", (True, False): "int", (False, True): "pow", (False, False): "num"}
    kind = kinds[parameter.whole, parameter.log]
    return {"name": parameter.name, "type": kind, "lb": parameter.low, "ub": parameter.high, "base": 10}


def _value(parameter: Parameter, value: Any) -> Value:
    if parameter.ordered:
        return parameter.options[int(value)]
    found = plain(value)
    if parameter.options or isinstance(found, str):
        return found
    found = min(max(found, parameter.low), parameter.high)  # ten to the power of a logarithm may overshoot
    return round(found) if parameter.whole else found


make = Hebo
