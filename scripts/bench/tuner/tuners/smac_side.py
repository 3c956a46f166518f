"""SMAC3's facade for hyperparameters: a random forest, asked and told, with conditions by ConfigSpace.

Its logarithms are of costs that are scaled to positive ones first, so negative costs need no care. A new forest for
each of four points, and its BlackBoxFacade (a Gaussian process), were tried on four problems and not found better.

A trial that failed has crashed at the cost of the worst value seen: at its default, an infinite one, no forest can be
fitted. Of constraints it is told those of the form a <= b, which ConfigSpace knows as forbidden relations.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ConfigSpace import (
    AndConjunction,
    Categorical,
    ConfigurationSpace,
    Float,
    ForbiddenGreaterThanRelation,
    InCondition,
    Integer,
    OrdinalHyperparameter,
)
from smac import HyperparameterOptimizationFacade, Scenario
from smac.runhistory import StatusType, TrialValue

from scripts.bench.tuner.problem import Parameter, Value
from scripts.bench.tuner.tuners.face import BATCH, ROUNDS, Task, plain, worst_of

FIRST = 8  # points before its first model


class Smac:
    """Every configuration is tried once, and the forest is fitted anew for each batch."""

    def __init__(self, task: Task) -> None:
        self._folder = tempfile.TemporaryDirectory()  # it writes its history
        facade = HyperparameterOptimizationFacade
        scenario = Scenario(
            _configurations(task),
            deterministic=True,
            n_trials=task.trials,
            seed=task.seed,
            output_directory=Path(self._folder.name),
        )
        self._smac = facade(
            scenario,
            lambda config, seed=0: 0.0,  # noqa: ARG005 -- it is never called, but must be there
            # Of the 30 that it would take of 120 trials nothing would be left of 28.
            initial_design=facade.get_initial_design(scenario, n_configs=FIRST),
            intensifier=facade.get_intensifier(scenario, max_config_calls=1),
            config_selector=facade.get_config_selector(scenario, retrain_after=BATCH if task.mode == ROUNDS else 1),
            logging_level=False,
            overwrite=True,
        )
        self._asked: list[Any] = []
        self._worst: float | None = None

    def ask(self, n: int) -> list[dict[str, Value]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            asked = [self._smac.ask() for _ in range(n)]
        self._asked += asked
        return [{name: plain(value) for name, value in dict(info.config).items()} for info in asked]

    def tell(self, values: Mapping[int, float | None]) -> None:
        self._worst = worst_of(self._worst, values)
        for number, value in values.items():
            failed = TrialValue(cost=self._worst or 0.0, status=StatusType.CRASHED)
            self._smac.tell(self._asked[number], failed if value is None else TrialValue(cost=value))


def _configurations(task: Task) -> Any:
    space = ConfigurationSpace(seed=task.seed)
    made = {parameter.name: _hyperparameter(parameter) for parameter in task.space}
    space.add(list(made.values()))
    for parameter in task.space:
        conditions = [InCondition(made[parameter.name], made[name], list(found)) for name, found in parameter.when]
        if conditions:
            space.add(conditions[0] if len(conditions) == 1 else AndConjunction(*conditions))
    for words in (constraint.split() for constraint in task.constraints):
        if len(words) == 3 and words[1] == "<=" and {words[0], words[2]} <= set(made):
            space.add(ForbiddenGreaterThanRelation(made[words[0]], made[words[2]]))
    return space


def _hyperparameter(parameter: Parameter) -> Any:
    if parameter.ordered:
        return OrdinalHyperparameter(parameter.name, list(parameter.options))
    if parameter.options:
        return Categorical(parameter.name, list(parameter.options))
    if parameter.whole:
        return Integer(parameter.name, (int(parameter.low), int(parameter.high)), log=parameter.log)
    return Float(parameter.name, (parameter.low, parameter.high), log=parameter.log)


make = Smac
