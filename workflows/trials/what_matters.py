"""Which hyperparameters mattered, by a forest, and what a model takes the metric to be at their values. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nnlib.contract import ENDED_WELL, Metric
from nnlib.spec.metric_names import keep_in_range
from regiondag.run.history import FAILED
from regiondag.study.space import Value, seed_of
from regiondag.trials.importance import LEAST_TRIALS, choose_rows, measure_importance, varied_parameters
from regiondag.trials.rows import RegionTrials
from regiondag.trials.table import format_value
from regiondag.tuning.domain import domain_of
from regiondag.tuning.propose import depend
from regiondag.tuning.sharing import Observation
from regiondag.util.text import spell_out

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


@dataclass(frozen=True, slots=True)
class RegionImportance:
    """How much each hyperparameter mattered in one region."""

    region: str
    slug: str
    metric: str
    minimize: bool
    trials: int  # successful ones, on which it rests
    shares: Mapping[str, float]  # of what explains the differences; they add up to 1, or there are none
    note: str  # why there are none
    dependence: tuple[PartialDependence, ...] = field(default=())  # of those on which the metric depends most


def explain_importance(trials: RegionTrials, dependence: bool = False) -> RegionImportance:
    """Return how much each hyperparameter mattered; with `dependence`, how the metric depends on the first few, too."""
    shares = measure_importance(trials)
    spec = trials.spec
    return RegionImportance(
        region=spec.name,
        slug=spec.slug,
        metric=spec.metric.name,
        minimize=spec.metric.minimize,
        trials=len(choose_rows(trials)),
        shares=dict(sorted((shares or {}).items(), key=lambda one: (-one[1], one[0]))),
        note="" if shares else _why_none(trials),
        dependence=find_dependence(trials) if dependence else (),
    )


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


def average_shares(regions: Sequence[RegionImportance]) -> dict[str, float]:
    """Return each hyperparameter's mean share over the regions that have any, the largest first."""
    known = [region.shares for region in regions if region.shares]
    names = {name for shares in known for name in shares}
    means = {name: math.fsum(shares.get(name, 0.0) for shares in known) / len(known) for name in names}
    return dict(sorted(means.items(), key=lambda one: (-one[1], one[0])))


def _observe(trials: RegionTrials) -> list[Observation]:
    """Return what the model is told: trials of points that the search could propose now."""
    fits = domain_of(trials.spec.search).has
    return [
        Observation(row.hyperparameters, row.cost if row.status in ENDED_WELL else None)
        for row in trials.rows
        if (row.status in FAILED or (row.status in ENDED_WELL and row.value is not None)) and fits(row.hyperparameters)
    ]


def _why_none(trials: RegionTrials) -> str:
    rows = choose_rows(trials)
    if trials.spec.served_by:
        return f"its search is that of {trials.spec.served_by}"
    if len(rows) < LEAST_TRIALS:
        return f"{len(rows)} trials have succeeded, and of fewer than {LEAST_TRIALS} nothing can be said"
    if not varied_parameters(trials, rows):
        return "no hyperparameter had more than one value"
    return "all trials came to the same, as far as hyperparameters explain it"


# --- as tables ---------------------------------------------------------------------------------------------


def tabulate_importance(regions: Sequence[RegionImportance]) -> tuple[list[str], list[list[str]]]:
    """Return a row for each region, its hyperparameters from the most important on, and one for all of them."""
    rows = [[spell_out(one.region), str(one.trials), _list_shares(one.shares) or one.note] for one in regions]
    known = [one for one in regions if one.shares]
    if len(known) > 1:
        of = str(sum(one.trials for one in known))
        rows.append([f"all {len(known)} regions", of, _list_shares(average_shares(known))])
    return ["region", "trials", "share of the differences that is explained by it"], rows


def tabulate_dependence(one: PartialDependence, metric: str) -> tuple[list[str], list[list[str]]]:
    """Return a row for each value of a hyperparameter: the metric there, and where it lies with 95 %."""
    figures = zip(one.values, one.means, one.lows, one.highs, strict=True)
    rows = [[format_value(v), format_value(m), f"{format_value(low)} to {format_value(h)}"] for v, m, low, h in figures]
    return [spell_out(one.hyperparameter), spell_out(metric), "95 %"], rows


def _list_shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{spell_out(name)} {share:.2f}" for name, share in shares.items() if share >= 0.005)
