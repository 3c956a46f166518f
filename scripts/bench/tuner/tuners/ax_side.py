"""Ax with the strategy that it chooses itself: Sobol points, then BoTorch's noisy expected improvement (qLogNEI)."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Any

from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

from scripts.bench.tuner.problem import Parameter, Value
from scripts.bench.tuner.tuners.face import Task, plain


class Ax:
    """Trials that were asked for and not told are running ones to Ax; conditions are unknown to it.

    Of trials that failed it is told so; they are left out, and not proposed again.
    """

    def __init__(self, task: Task) -> None:
        logging.disable(logging.WARNING)
        self._client = Client(random_seed=task.seed)
        dimensions = [_dimension(parameter) for parameter in task.space]
        self._client.configure_experiment(parameters=dimensions, parameter_constraints=task.constraints)
        self._client.configure_optimization(objective="-loss")
        self._indices: list[int] = []

    def ask(self, n: int) -> list[dict[str, Value]]:
        points: list[dict[str, Value]] = []
        while len(points) < n:  # it may give fewer at a time
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = self._client.get_next_trials(max_trials=n - len(points))
            if not found:
                raise RuntimeError(f"Ax gives no trial while {len(self._indices)} were asked for")
            self._indices += found
            points += [{name: plain(value) for name, value in point.items()} for point in found.values()]
        return points

    def tell(self, values: Mapping[int, float | None]) -> None:
        for number, value in values.items():
            if value is None:
                self._client.mark_trial_abandoned(self._indices[number])  # what is only failed may come again
            else:
                self._client.complete_trial(self._indices[number], raw_data={"loss": value})


def _dimension(parameter: Parameter) -> Any:
    if parameter.options:
        kind = {str: "str", int: "int", float: "float"}[type(parameter.options[0])]
        options = list(parameter.options)
        return ChoiceParameterConfig(
            name=parameter.name, values=options, parameter_type=kind, is_ordered=parameter.ordered
        )
    low, high = (int(parameter.low), int(parameter.high)) if parameter.whole else (parameter.low, parameter.high)
    kind = "int" if parameter.whole else "float"
    scaling = "log" if parameter.log else "linear"
    return RangeParameterConfig(name=parameter.name, bounds=(low, high), parameter_type=kind, scaling=scaling)


make = Ax
