"""What a model takes a region's metric to be at the values of its hyperparameters. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnlib.contract import ENDED_WELL, Metric
from nnlib.spec.metric_names import keep_in_range
from regiondag.run.history import FAILED
from regiondag.study.space import Value, seed_of
from regiondag.trials.rows import LEAST_TRIALS, RegionTrials, choose_rows, varied_parameters
from regiondag.tuning.domain import domain_of
from regiondag.tuning.propose import depend
from regiondag.tuning.sharing import Observation

if TYPE_CHECKING:  # NumPy is imported when a model is really asked
    from regiondag.tuning.gp.dependence import Dependence

SHOWN = 4  # hyperparameters


@dataclass(frozen=True, slots=True)
class PartialDependence:
    """What the model takes the metric to be at some values of one hyperparameter, averaged over the trials' points."""

    hyperparameter: str
    values: tuple[Value, ...]
    means: tuple[float, ...]  # of the metric, in its own unit and direction
    lows: tuple[float, ...]  # 95 % of the average lie between
    highs: tuple[float, ...]


def find_dependence(trials: RegionTrials) -> tuple[PartialDependence, ...]:
    """Return how the metric depends on the few hyperparameters on which it depends most; nothing with few trials."""
    rows, spec = choose_rows(trials), trials.spec
    varied = {parameter.name for parameter in varied_parameters(trials, rows)}
    if len(rows) < LEAST_TRIALS or not varied:
        return ()
    every = depend(spec.search, _observe(trials), seed_of(spec.train.seed, spec.slug, "dependence"))
    found = [one for one in every if one.name in varied]
    return tuple(_in_metric(one, spec.metric) for one in found[:SHOWN])


def _in_metric(one: Dependence, metric: Metric) -> PartialDependence:
    """Return what is known of the loss in the metric's own unit and direction."""
    sign = 1.0 if metric.minimize else -1.0
    means, *ends = (
        tuple(keep_in_range(metric.name, sign * loss) for loss in losses) for losses in (one.means, one.lows, one.highs)
    )
    lows, highs = ends if metric.minimize else reversed(ends)
    return PartialDependence(one.name, one.values, means, lows, highs)


def _observe(trials: RegionTrials) -> list[Observation]:
    """Return what the model is told: trials of points that the search could propose now."""
    fits = domain_of(trials.spec.search).has
    return [
        Observation(row.hyperparameters, row.cost if row.status in ENDED_WELL else None)
        for row in trials.rows
        if (row.status in FAILED or (row.status in ENDED_WELL and row.value is not None)) and fits(row.hyperparameters)
    ]
