"""The tuners of tuner.py behind one small face: ask for n points, then tell their values. Everything is minimised."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from scripts.bench.tuner.problem import Parameter, Point, Problem, Value

BATCH = 4
BUDGETS = (28, 60)  # evaluations after which a tuner must name its best point


class Tuner(Protocol):
    """What a run needs of a tuner."""

    def ask(self, n: int) -> list[dict[str, Value]]:
        """Return n points to try at the same time."""

    def tell(self, points: Sequence[Point], values: Sequence[float]) -> None:
        """Take the values of the points that were asked for last."""


class Random:
    """Uniform points."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem = problem
        self._chance = np.random.default_rng([seed, 1])

    def ask(self, n: int) -> list[dict[str, Value]]:
        return [self._problem.random_point(self._chance) for _ in range(n)]

    def tell(self, points: Sequence[Point], values: Sequence[float]) -> None:
        """Random search learns nothing."""


class Skopt:
    """scikit-optimize as it comes: Gaussian process, hedged acquisitions, 10 random points first, batches by cl_min."""

    def __init__(self, problem: Problem, seed: int) -> None:
        from skopt import Optimizer

        self._names = [parameter.name for parameter in problem.space]
        self._optimizer = Optimizer([_dimension(parameter) for parameter in problem.space], random_state=seed)

    def ask(self, n: int) -> list[dict[str, Value]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "evaluated at point before": it then takes a random one
            asked = self._optimizer.ask(n_points=n, strategy="cl_min")
        return [dict(zip(self._names, map(_native, values), strict=True)) for values in asked]

    def tell(self, points: Sequence[Point], values: Sequence[float]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._optimizer.tell([list(point.values()) for point in points], list(values))


def _dimension(parameter: Parameter) -> Any:
    from skopt.space import Categorical, Integer, Real

    if parameter.options:
        return Categorical(list(parameter.options))
    kind = Integer if parameter.whole else Real
    return kind(parameter.low, parameter.high, prior="log-uniform" if parameter.log else "uniform")


def _native(value: Any) -> Value:
    """Return a plain value: NumPy's are neither JSON nor found among the options."""
    if isinstance(value, str):
        return str(value)
    return int(value) if isinstance(value, int | np.integer) else float(value)


class OptunaStudy:
    """A study in memory with one of Optuna's samplers at its defaults; trials of a batch run at the same time."""

    def __init__(self, problem: Problem, make_sampler: Callable[[Any], Any]) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # GPSampler calls itself experimental
            self._study = optuna.create_study(sampler=make_sampler(optuna.samplers))
        self._distributions = {parameter.name: _distribution(parameter) for parameter in problem.space}
        self._running: list[Any] = []

    def ask(self, n: int) -> list[dict[str, Value]]:
        self._running = [self._study.ask(self._distributions) for _ in range(n)]
        return [dict(trial.params) for trial in self._running]

    def tell(self, points: Sequence[Point], values: Sequence[float]) -> None:
        for trial, _, value in zip(self._running, points, values, strict=True):
            self._study.tell(trial, value)


def _distribution(parameter: Parameter) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if parameter.options:
        return CategoricalDistribution(parameter.options)
    if parameter.whole:
        return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.log)


def _ours(problem: Problem, seed: int) -> Tuner:
    from scripts.bench.tuner.ours import Ours

    return Ours(problem, seed)


OURS, GP_SAMPLER, TPE, SKOPT, RANDOM = "bayes", "gpsampler", "tpe", "skopt", "random"
METHODS: dict[str, Callable[[Problem, int], Tuner]] = {
    OURS: _ours,
    GP_SAMPLER: lambda problem, seed: OptunaStudy(problem, lambda samplers: samplers.GPSampler(seed=seed)),
    TPE: lambda problem, seed: OptunaStudy(problem, lambda samplers: samplers.TPESampler(seed=seed)),
    SKOPT: Skopt,
    RANDOM: Random,
}
OPTUNAS = frozenset({GP_SAMPLER, TPE})
