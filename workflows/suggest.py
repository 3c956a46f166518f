"""Propose hyperparameters from a region's history. The only module that imports scikit-optimize.

`suggest` is a pure function: nothing is remembered between calls, so the same history and seed give the same
proposals on any machine, after a crash as in a rescue DAG.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workflows.space import Choice, Parameter, Point, Real, Space, Value, grid_point, random_point, seed_of

MODEL_HISTORY = 50  # trials the model is fitted to at the most: the best ones and the latest ones, half and half
INITIAL_SHARE = 0.25  # of all trials are spread over the space before the first model is fitted


@dataclass(frozen=True, slots=True)
class Observation:
    """One settled trial. `value` is None when it failed; failures count as the worst value seen."""

    point: Point
    value: float | None


def suggest(
    method: str,
    space: Space,
    history: Sequence[Observation],
    numbers: range,
    *,
    trials: int,
    minimize: bool,
    seed: int,
) -> list[dict[str, Value]]:
    """Return one point for each trial number in `numbers`.

    `history` holds the settled trials in the order of their numbers; `trials` is the size of the whole search.
    """
    if method == "grid":
        return [grid_point(space, number) for number in numbers]
    succeeded = sum(observation.value is not None for observation in history)
    initial = max(len(numbers), math.ceil(INITIAL_SHARE * trials))
    if method == "random" or numbers.start < initial or succeeded < 2:
        return [random_point(space, seed_of(seed, number)) for number in numbers]
    return _model_based(space, history, numbers, minimize, seed)


def _model_based(
    space: Space, history: Sequence[Observation], numbers: range, minimize: bool, seed: int
) -> list[dict[str, Value]]:
    free = [parameter for parameter in space if not (isinstance(parameter, Choice) and len(parameter.options) == 1)]
    fixed = {p.name: p.options[0] for p in space if isinstance(p, Choice) and len(p.options) == 1}
    if not free:
        return [dict(fixed) for _ in numbers]
    asked = _ask(free, history, len(numbers), minimize, seed_of(seed, numbers.start, "ask") % 2**32)
    seen = [dict(observation.point) for observation in history]
    points = []
    for number, values in zip(numbers, asked, strict=True):
        point = {**fixed, **values}
        point = {parameter.name: point[parameter.name] for parameter in space}
        attempt = 0
        while point in seen and attempt < 10:  # scikit-optimize repeats itself in small spaces
            point = random_point(space, seed_of(seed, number, "instead of a repeat", attempt))
            attempt += 1
        seen.append(point)
        points.append(point)
    return points


def _ask(
    space: Sequence[Parameter], history: Sequence[Observation], n: int, minimize: bool, seed: int
) -> list[dict[str, Value]]:
    from skopt import Optimizer  # 1.7 s: only where a model is really fitted

    history = _most_telling(history, minimize)
    optimizer = Optimizer(
        [_dimension(parameter) for parameter in space],
        base_estimator="GP",
        acq_func="EI",  # the default, gp_hedge, costs three times as much and was no better
        n_initial_points=1,
        random_state=seed,
    )
    xs = [[observation.point[parameter.name] for parameter in space] for observation in history]
    with warnings.catch_warnings():
        # "evaluated at point before": repeats are replaced by `_model_based`, where the seed decides
        warnings.simplefilter("ignore", UserWarning)
        optimizer.tell(xs, _objective(history, minimize))
        asked = optimizer.ask(n_points=n, strategy="cl_min")
    return [
        {parameter.name: _native(parameter, value) for parameter, value in zip(space, values, strict=True)}
        for values in asked
    ]


def _most_telling(history: Sequence[Observation], minimize: bool) -> list[Observation]:
    """Return what the model is fitted to: fitting costs the cube of it, and DAGMan waits."""
    objective = _objective(history, minimize)
    latest = max(len(history) - MODEL_HISTORY // 2, 0)
    best = sorted(range(latest), key=lambda index: (objective[index], index))[: MODEL_HISTORY // 2]
    return [history[index] for index in sorted(best)] + list(history[latest:])


def _objective(history: Sequence[Observation], minimize: bool) -> list[float]:
    """Return what scikit-optimize minimises; one NaN told to it would spoil every later proposal."""
    sign = 1.0 if minimize else -1.0
    values = [None if o.value is None else sign * o.value for o in history]
    worst = max(value for value in values if value is not None)
    return [worst if value is None else value for value in values]


def _dimension(parameter: Parameter) -> Any:
    from skopt.space import Categorical, Integer
    from skopt.space import Real as RealDimension

    if isinstance(parameter, Choice):
        return Categorical(list(parameter.options))
    prior = "log-uniform" if parameter.log else "uniform"
    kind = RealDimension if isinstance(parameter, Real) else Integer
    return kind(parameter.low, parameter.high, prior=prior)


def _native(parameter: Parameter, value: Any) -> Value:
    """NumPy's scalars are not JSON; choices come back as copies of another type (np.str_)."""
    if isinstance(parameter, Choice):
        return next(option for option in parameter.options if option == value)
    if isinstance(parameter, Real):
        return min(max(float(value), parameter.low), parameter.high)
    return int(value)
