"""What a run took: event logs and journals, read and summed up per region and in total."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from regiondag.accounting.prices import PriceTable
from regiondag.accounting.right_size import Sizes, measure, study_lines
from regiondag.accounting.usage import HOUR, Taken, Usage, slot_seconds, sum_up, take
from regiondag.condor.events.attempts import Attempt, gpus_of
from regiondag.condor.events.log import read_attempts
from regiondag.run.history import History, TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RunFolder
from regiondag.run.manifest import read_manifest
from regiondag.run.region_spec import RegionSpec, read_spec
from regiondag.run.trial_recipes import FLOOR
from regiondag.study.families import name_floor

POINT = 0.01  # of a metric


@dataclass(frozen=True, slots=True)
class RegionStats:
    """One region's usage. `gained`: by how much its new model's metric beats `over` on the test part."""

    region: str
    slug: str
    usage: Usage
    metric: str
    gained: float | None
    over: str  # the floor, or bestsellers
    cost_per_point: float | None  # of 0.01 gained; None where nothing is gained, or a price is unknown
    sizes: Sizes
    trials: tuple[Taken, ...]


@dataclass(frozen=True, slots=True)
class RunStats:
    """A whole run."""

    study: str
    run: str
    total: Usage
    regions: tuple[RegionStats, ...]
    prices: PriceTable
    unpriced: tuple[str, ...]  # instance types without a price
    machines: Mapping[str, float]  # GPU-hours, or slot-hours of jobs without GPUs, by kind of machine
    yaml: tuple[str, ...]  # what to put into study.yaml


def read_stats(run: RunFolder, prices: PriceTable, now: float | None = None) -> RunStats:
    """Read a run's journals and event logs; jobs that still run count up to `now`."""
    now = time.time() if now is None else now
    manifest = read_manifest(run)
    attempts: dict[str, list[Attempt]] = {slug: [] for slug in manifest.regions}
    for attempt in read_attempts(run):
        if attempt.node.slug in attempts:
            attempts[attempt.node.slug].append(attempt)
    regions = tuple(_region(run, slug, tries, prices, now) for slug, tries in attempts.items())
    everything = [attempt for tries in attempts.values() for attempt in tries]
    return RunStats(
        study=manifest.study,
        run=str(run.path),
        total=sum_up([one for region in regions for one in region.trials], everything, now),
        regions=regions,
        prices=prices,
        unpriced=_find_unpriced(everything, prices),
        machines=_machines(everything, now),
        yaml=tuple(study_lines({region.region: region.sizes for region in regions})),
    )


def _region(run: RunFolder, slug: str, attempts: list[Attempt], prices: PriceTable, now: float) -> RegionStats:
    spec = read_spec(run.region(slug).spec)
    history = Journal(run.region(slug).journal).read()
    taken = take(attempts, _read_training(slug, history), prices, now)
    usage = sum_up(taken, attempts, now)
    gained, over = measure_gain(spec, history.final)
    return RegionStats(
        region=spec.name,
        slug=slug,
        usage=usage,
        metric=spec.metric.name,
        gained=gained,
        over=over,
        cost_per_point=usage.cost / gained * POINT if usage.cost is not None and gained and gained > 0 else None,
        sizes=measure(attempts),
        trials=tuple(taken),
    )


def _read_training(slug: str, history: History) -> dict[NodeName, float]:
    seconds = {NodeName(slug, number): settled.seconds for number, settled in history.settled.items()}
    if history.final:
        seconds[NodeName(slug, None)] = history.final.seconds
    return seconds


def measure_gain(spec: RegionSpec, final: TrialOutcome | None) -> tuple[float | None, str]:
    """Return by how much what serves a region is better, and than what: the floor, or bestsellers."""
    if final is None or not final.ok:
        return None, ""
    floor = final.compared.get(FLOOR)
    over = name_floor(spec.floor) if floor else "popularity"
    before, after = (floor or final.baseline).get(spec.metric.name), final.metrics.get(spec.metric.name)
    if before is None or after is None:
        return None, over
    return (before - after if spec.metric.minimize else after - before), over


def _find_unpriced(attempts: list[Attempt], prices: PriceTable) -> tuple[str, ...]:
    kinds = {leg.facts.get("instance_type", "") for attempt in attempts for leg in attempt.legs}
    return tuple(sorted(kind for kind in kinds if kind and kind not in prices.instances))


def _machines(attempts: list[Attempt], now: float) -> dict[str, float]:
    """Return the hours by kind of machine: instance type, life cycle and GPU, as far as the slots say them."""
    hours: dict[str, float] = {}
    for attempt in attempts:
        for leg in attempt.legs:
            known = [leg.facts[fact] for fact in ("instance_type", "life_cycle", "gpu") if leg.facts.get(fact)]
            kind = ", ".join(known) or "unknown"
            hours[kind] = hours.get(kind, 0.0) + (gpus_of(attempt, leg) or 1.0) * slot_seconds(leg, now) / HOUR
    return hours
