"""What the report's page shows, as data that JSON can hold: columns of figures, texts once each. Pure functions.

A run of 8,200 trials of 30 epochs each is a quarter of a million figures: they are rounded, and stand in columns
rather than in objects, so that the packed page stays small and opens at once. `regiondag study export` has all digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from regiondag.accounting.prices import PriceTable
from regiondag.accounting.usage import EVICTED, Taken, sum_up, take
from regiondag.condor.events.attempts import Attempt, last_machines
from regiondag.report.page_failures import group_failures
from regiondag.report.page_packing import LONGEST_TEXT, Texts, round_value, tenths
from regiondag.report.page_timeline import build_timeline
from regiondag.report.summary import RegionSummary, Summary
from regiondag.run.layout import NodeName
from regiondag.study.space import Choice, Parameter, Value
from regiondag.trials.rows import RegionTrials
from regiondag.util.intervals import half_width
from regiondag.util.text import shorten

CURVE_DIGITS = 4  # of learning curves: less than a pixel of any picture
INTERVAL_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Bill:
    """What a run took: hours, and each region's cost (None: unknown) by slug in a currency, empty if all is free.

    Machines that do not say what they are cost nothing by the table that is built in.
    """

    currency: str = ""
    regions: Mapping[str, float | None] = field(default_factory=dict)
    cost: float | None = None  # of all regions, as far as it is known
    gpu_hours: float | None = None
    lost_hours: float | None = None  # on slots, to evictions and failures


def bill_of(attempts: Sequence[Attempt], prices: PriceTable, now: float) -> Bill:
    """Sum up what the tries of all jobs took and cost."""
    if not attempts:
        return Bill()
    regions: dict[str, list[Taken]] = {}
    taken = take(attempts, {}, prices, now)
    for one in taken:
        regions.setdefault(one.node.slug, []).append(one)
    costs = {slug: sum_up(of_region, (), now).cost for slug, of_region in regions.items()}
    total = sum_up(taken, (), now)
    currency = "" if all(cost == 0 for cost in costs.values()) else prices.currency
    known = [cost for cost in costs.values() if cost is not None]
    lost = total.lost_to_eviction + total.lost_to_failure
    return Bill(currency, costs, sum(known) if known else None, total.gpu_hours, lost)


def page_data(
    summary: Summary, trials: Sequence[RegionTrials], attempts: Sequence[Attempt], bill: Bill, made: float
) -> dict[str, object]:
    """Return all that the page shows; `made` is now, in Unix time. Regions stand in the order of the summary."""
    texts = Texts()
    places = {region.slug: place for place, region in enumerate(summary.regions)}
    attempts = [attempt for attempt in attempts if attempt.node.slug in places]
    machines = last_machines(attempts)
    names = {region.slug: region.region for region in summary.regions}
    return {
        "study": summary.study,
        "run": summary.run,
        "metric": summary.metric,
        "made": round(made),
        "currency": bill.currency,
        "cautions": [shorten(text, LONGEST_TEXT) for text in summary.cautions],
        "cost": round_value(bill.cost),
        "gpu_hours": round_value(bill.gpu_hours),
        "lost_hours": round_value(bill.lost_hours),
        "regions": [
            _region(row, region, names, machines, bill, texts)
            for row, region in zip(summary.regions, trials, strict=True)
        ],
        "evictions": sum(leg.ending in EVICTED for attempt in attempts for leg in attempt.legs),
        "timeline": build_timeline(attempts, places, texts, made),
        "failures": group_failures(summary, trials, attempts, places, machines, texts),
        "texts": texts.all,
    }


# --- regions and trials ------------------------------------------------------------------------------------


def _region(
    row: RegionSummary,
    trials: RegionTrials,
    names: Mapping[str, str],
    machines: Mapping[NodeName, str],
    bill: Bill,
    texts: Texts,
) -> dict[str, object]:
    source = trials.spec.served_by
    return {
        "name": row.region,
        "slug": row.slug,
        "status": row.status,
        "reason": shorten(row.reason, LONGEST_TEXT),
        "metric": trials.spec.metric.name,
        "minimize": trials.spec.metric.minimize,
        "serves": shorten(row.serves, LONGEST_TEXT),
        "searched_by": names.get(source, source),
        "customers": row.customers,
        "test": _figures(row.test),
        "intervals": {name: [round_value(end) for end in ends] for name, ends in row.intervals.items()},
        "floor": _figures(row.compared.get("floor", {})),
        "simple": _figures(row.compared.get("simple", {})),
        "bestsellers": _figures(row.popularity),
        "counts": dict(row.trials),
        "hours": round_value(row.hours),
        "cost": round_value(bill.regions.get(row.slug, 0.0)),  # of a region that no job has been run for
        "space": [_parameter(parameter) for parameter in trials.spec.search.space],
        "trials": _trials(trials, machines, texts),
    }


def _parameter(parameter: Parameter) -> dict[str, object]:
    if isinstance(parameter, Choice):
        return {"name": parameter.name, "options": [_value(option) for option in parameter.options]}
    return {"name": parameter.name, "low": parameter.low, "high": parameter.high, "log": parameter.log}


def _trials(trials: RegionTrials, machines: Mapping[NodeName, str], texts: Texts) -> dict[str, object]:
    rows = trials.rows
    names = [parameter.name for parameter in trials.spec.search.space]
    return {
        "trial": [row.trial for row in rows],
        "status": [texts.number(row.status) for row in rows],
        "value": [round_value(row.value) for row in rows],
        "half": [round_value(half_width(row.stderr, row.customers), INTERVAL_DIGITS) for row in rows],
        "customers": [row.customers for row in rows],
        "floor": [round_value(row.floor) for row in rows],
        "points": [[_value(row.hyperparameters.get(name)) for row in rows] for name in names],
        "best_epoch": [row.best_epoch for row in rows],
        "seconds": [tenths(row.seconds) for row in rows],
        "settled": [None if row.settled is None else round(row.settled) for row in rows],
        "machine": [texts.number(machines.get(NodeName(row.slug, row.trial), "")) for row in rows],
        "reason": [texts.number(row.reason) for row in rows],
        "curves": [[round_value(value, CURVE_DIGITS) for value in row.curve] for row in rows],
        "won": next((row.trial for row in rows if row.won), None),
    }


def _figures(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: round_value(value) for name, value in metrics.items()}


def _value(value: Value | None) -> Value | None:
    return round_value(value) if isinstance(value, float) else value
