"""Optuna's samplers: a study in memory, whose trials suggest only what their earlier values make active.

Trials that failed and are told so are left out by every sampler, so that it may come again to the same place. TPE is
told that they were pruned, which it puts behind all others; the rest, which leave out those, too, the worst value seen.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import optuna

from scripts.bench.tuner.problem import Parameter, Value
from scripts.bench.tuner.tuners.face import Task, worst_of


class OptunaStudy:
    """Trials that were asked for and not told are running ones to Optuna."""

    def __init__(self, task: Task, sampler: str, **options: Any) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = task.space
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some call themselves experimental
            self._study = optuna.create_study(sampler=getattr(optuna.samplers, sampler)(seed=task.seed, **options))
        self._trials: list[Any] = []
        self._knows_pruned = sampler == "TPESampler"
        self._worst: float | None = None

    def ask(self, n: int) -> list[dict[str, Value]]:
        return [self._ask() for _ in range(n)]

    def _ask(self) -> dict[str, Value]:
        trial = self._study.ask()
        self._trials.append(trial)
        point: dict[str, Value] = {}
        for parameter in self._space:
            if parameter.is_active(point):
                point[parameter.name] = _suggest(trial, parameter)
        return point

    def tell(self, values: Mapping[int, float | None]) -> None:
        self._worst = worst_of(self._worst, values)
        for number, value in values.items():
            if value is not None:
                self._study.tell(self._trials[number], value)
            elif self._knows_pruned or self._worst is None:
                self._study.tell(self._trials[number], state=optuna.trial.TrialState.PRUNED)
            else:
                self._study.tell(self._trials[number], self._worst)


def _suggest(trial: Any, parameter: Parameter) -> Any:
    if parameter.ordered:  # it knows no scale of options, but whole numbers
        return parameter.options[trial.suggest_int(parameter.name, 0, len(parameter.options) - 1)]
    if parameter.options:
        return trial.suggest_categorical(parameter.name, parameter.options)
    if parameter.whole:
        return trial.suggest_int(parameter.name, int(parameter.low), int(parameter.high), log=parameter.log)
    return trial.suggest_float(parameter.name, parameter.low, parameter.high, log=parameter.log)


make = OptunaStudy
