"""scikit-optimize as it comes, as the method `skopt`: the only module that imports it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regiondag.study.space import Choice, Parameter, Point, Real, Value, level, list_levels, without_inactive
from regiondag.tuning.domain import Domain
from regiondag.tuning.encoding import index_of

if TYPE_CHECKING:
    from regiondag.tuning.sharing import Observation

LARGEST = 1e100  # of losses: scikit-learn squares them
CANDIDATES, FEWEST = 10_000, 50
SAMPLE = 500  # points that say how many are legal


def ask(
    domain: Domain, history: Sequence[Observation], pending: Sequence[Point], n: int, seed: int
) -> list[dict[str, Value]]:
    """Return what scikit-optimize proposes after `history`; repeats and illegal points are for the caller to replace.

    Failures are told as the worst value seen, because one NaN would spoil every later proposal; pending trials, which
    scikit-optimize does not know, as the best one, as it does within a batch itself.
    """
    free = domain.free
    if not free:
        return []
    from skopt import Optimizer  # 1.7 s: only where it is asked for

    losses = [None if o.loss is None else min(max(o.loss, -LARGEST), LARGEST) for o in history]
    known = [loss for loss in losses if loss is not None]
    told = [max(known) if loss is None else loss for loss in losses] + [min(known)] * len(pending)
    points = [*(observation.point for observation in history), *pending]
    optimizer = Optimizer(
        [_dimension(parameter) for parameter in free],
        n_initial_points=1,
        random_state=seed % 2**32,
        acq_optimizer_kwargs={"n_points": _candidates(domain, seed)},
        space_constraint=(lambda row: domain.holds(_point(domain, row))) if domain.constraints else None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "evaluated at point before"
        optimizer.tell([_row(free, point) for point in points], told)
        asked = optimizer.ask(n_points=n, strategy="cl_min")
    return [_point(domain, row) for row in asked]


def _candidates(domain: Domain, seed: int) -> int:
    """Return how many points are to be compared: scikit-optimize's 10,000, or as many as are legal of so many.

    It draws until it has enough legal ones, which takes minutes where few are.
    """
    if not domain.constraints:
        return CANDIDATES
    return max(CANDIDATES * len(domain.some(SAMPLE, SAMPLE, seed)) // SAMPLE, FEWEST)


def _dimension(parameter: Parameter) -> Any:
    from skopt.space import Categorical, Integer
    from skopt.space import Real as RealDimension

    if isinstance(parameter, Choice):
        return Integer(0, len(parameter.options) - 1) if parameter.ordered else Categorical(_labels(parameter))
    if parameter.step is not None:
        return Integer(0, (list_levels(parameter) or 1) - 1)  # the number of the step
    prior = "log-uniform" if parameter.log else "uniform"
    kind = RealDimension if isinstance(parameter, Real) else Integer
    return kind(parameter.low, parameter.high, prior=prior)


def _labels(parameter: Choice) -> list[Value]:
    """Return the options, or their numbers where some are one to scikit-optimize, as 1, 1.0 and true are.

    Of ordered ones it is told the numbers, too, as of steps.
    """
    options = parameter.options
    if parameter.ordered:
        return list(range(len(options)))
    return list(options) if len(set(options)) == len(options) else [str(number) for number in range(len(options))]


def _row(free: Sequence[Parameter], point: Point) -> list[Any]:
    """Return a point as scikit-optimize wants it; an inactive parameter stands at its first value."""
    row: list[Any] = []
    for parameter in free:
        if isinstance(parameter, Choice):
            row.append(_labels(parameter)[index_of(parameter, point.get(parameter.name, parameter.options[0]))])
            continue
        value: Any = point.get(parameter.name, parameter.low)
        row.append(value if parameter.step is None else round((value - parameter.low) / parameter.step))
    return row


def _point(domain: Domain, row: Sequence[Any]) -> dict[str, Value]:
    values: Mapping[str, Any] = dict(zip((p.name for p in domain.free), row, strict=True))
    return without_inactive(
        domain.space,
        {p.name: _native(p, values[p.name]) if p.name in values else level(p, 0) for p in domain.space},
    )


def _native(parameter: Parameter, value: Any) -> Value:
    """NumPy's scalars are not JSON; choices come back as copies of another type (np.str_)."""
    if isinstance(parameter, Choice):
        return parameter.options[_labels(parameter).index(value)]
    if parameter.step is not None:
        return level(parameter, int(value))
    if isinstance(parameter, Real):
        return min(max(float(value), parameter.low), parameter.high)
    return int(value)
