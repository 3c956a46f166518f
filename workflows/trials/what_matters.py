"""Which hyperparameters mattered in regions and over all, as data and as tables. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from regiondag.trials.dependence import PartialDependence, find_dependence
from regiondag.trials.importance import measure_importance
from regiondag.trials.rows import LEAST_TRIALS, RegionTrials, choose_rows, varied_parameters
from regiondag.trials.table import format_value
from regiondag.util.text import spell_out


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


def average_shares(regions: Sequence[RegionImportance]) -> dict[str, float]:
    """Return each hyperparameter's mean share over the regions that have any, the largest first."""
    known = [region.shares for region in regions if region.shares]
    names = {name for shares in known for name in shares}
    means = {name: math.fsum(shares.get(name, 0.0) for shares in known) / len(known) for name in names}
    return dict(sorted(means.items(), key=lambda one: (-one[1], one[0])))


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
