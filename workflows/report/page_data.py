"""What the report's page shows, as data that JSON can hold: columns of figures, texts once each. Pure functions.

A run of 8,200 trials of 30 epochs each is a quarter of a million figures: they are rounded, and stand in columns
rather than in objects, so that the packed page stays small and opens at once. `regiondag study export` has all digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType

from regiondag.accounting.usage import EVICTED
from regiondag.condor.events.attempts import Attempt, last_machines
from regiondag.report.bill import Bill
from regiondag.report.headline import (
    gains_of,
    judge,
    main_words,
    other_verdicts,
    say_against,
    say_cost,
    show_hours,
)
from regiondag.report.page_failures import group_failures
from regiondag.report.page_packing import LONGEST_TEXT, Texts, round_value, tenths
from regiondag.report.page_timeline import build_timeline
from regiondag.report.summary import RegionSummary, Summary
from regiondag.run.layout import NodeName
from regiondag.run.live import Live
from regiondag.run.region_state import RegionOutcome, say_left
from regiondag.run.trial_recipes import FLOOR
from regiondag.study.families import name_floors
from regiondag.study.space import Choice, Parameter, Value
from regiondag.trials.dependence import PartialDependence
from regiondag.trials.rows import RegionTrials
from regiondag.util.intervals import half_width
from regiondag.util.text import shorten

CURVE_DIGITS = 4  # of learning curves: less than a pixel of any picture
INTERVAL_DIGITS = 3
MOST_EXAMPLES = 240  # pictures on the page, of all regions together: 2.2 MB at most


def page_data(
    summary: Summary,
    trials: Sequence[RegionTrials],
    attempts: Sequence[Attempt],
    made: float,
    *,
    live: Mapping[NodeName, Live] = MappingProxyType({}),
    refresh: float | None = None,
    depends: Mapping[str, Sequence[PartialDependence]] = MappingProxyType({}),
) -> tuple[dict[str, object], dict[str, object]]:
    """Return what the page shows at once, and what it unpacks when a detail is opened; `made` is now, in Unix time.

    Regions stand in the order of the summary. `refresh`: seconds until the page looks for a newer one. `depends` is by
    slug, of some regions.
    """
    places = {region.slug: place for place, region in enumerate(summary.regions)}
    names = {region.slug: region.region for region in summary.regions}
    attempts = [attempt for attempt in attempts if attempt.node.slug in places]
    bill = summary.bill
    first = {
        "study": summary.study,
        "run": summary.run,
        "metric": summary.metric,
        "made": round(made),
        "refresh": refresh,
        "ended": not any(region.status == RegionOutcome.UNFINISHED for region in summary.regions),
        "headline": _headline(summary),
        "currency": bill.currency,
        "cost": round_value(bill.cost),
        "gpu_hours": round_value(bill.gpu_hours),
        "lost_hours": round_value(bill.lost_hours),
        "evictions": sum(leg.ending in EVICTED for attempt in attempts for leg in attempt.legs) if attempts else None,
        "floor_name": name_floors(row.floor_name for row in summary.regions if FLOOR in row.compared),
        "live": [_live(one, places[node.slug]) for node, one in live.items() if node.slug in places],
        "regions": [
            _region(row, region, names, bill, row.metric or summary.metric)
            for row, region in zip(summary.regions, trials, strict=True)
        ],
    }
    if summary.asked == "pictures":
        first["asked"] = "picture"
    texts, machines = Texts(), last_machines(attempts)
    details: dict[str, object] = {
        "trials": [_trials(region, machines, texts) for region in trials],
        "depends": [[_dependence(one) for one in depends.get(region.spec.slug, ())] for region in trials],
        "timeline": build_timeline(attempts, places, texts, made),
        "failures": group_failures(summary, trials, attempts, places, machines, texts),
        "texts": texts.all,
    }
    confusions = [region.confusion for region in summary.regions]
    if any(confusions):
        most = MOST_EXAMPLES // sum(map(bool, confusions))
        details["confusions"] = [one and asdict(replace(one, examples=one.examples[:most])) for one in confusions]
    return first, details


def _headline(summary: Summary) -> dict[str, object]:
    headline = summary.headline
    told = (say_against(headline, summary.asked), headline.all_customers)
    main = main_words(headline)
    return {
        "counts": [
            [verdict, word, headline.counts.get(verdict, 0)]
            for verdict, word in {**main, **{other: other for other in other_verdicts(headline)}}.items()
        ],
        "main": len(main),
        "sentences": [shorten(text, LONGEST_TEXT) for text in told if text],
        "took": say_cost(headline),
        "hours": show_hours(headline.hours),
        "needs": [[shorten(need.text, LONGEST_TEXT), list(need.regions)] for need in headline.needs],
    }


def _live(one: Live, place: int) -> dict[str, object]:
    return {
        "region": place,
        "trial": one.node.number,
        "epoch": one.epoch,
        "epochs": one.epochs,
        "loss": round_value(one.loss),
        "value": round_value(one.value),
        "curve": [round_value(value, CURVE_DIGITS) for value in one.curve],
        "left": tenths(one.seconds_left),
        "at": tenths(one.at),
        "doing": one.doing,
    }


# --- regions and trials ------------------------------------------------------------------------------------


def _region(
    row: RegionSummary, trials: RegionTrials, names: Mapping[str, str], bill: Bill, metric: str
) -> dict[str, object]:
    source = trials.spec.served_by
    verdict, against = judge(row, metric)
    known = {"program": True} if row.of_program else {}
    return known | {
        "name": row.region,
        "slug": row.slug,
        "status": row.status,
        "verdict": verdict,
        "against": against,
        "whole": row.stands_for_all,
        "reason": shorten(row.reason, LONGEST_TEXT),
        "metric": trials.spec.metric.name,
        "minimize": trials.spec.metric.minimize,
        "serves": shorten(row.serves, LONGEST_TEXT),
        "incumbent": shorten(row.incumbent, LONGEST_TEXT),
        "searched_by": names.get(source, source),
        "customers": row.customers,
        "test": _figures(row.test),
        "intervals": {name: [round_value(end) for end in ends] for name, ends in row.intervals.items()},
        "gains": {
            name: [*map(round_value, (gain.value, gain.low, gain.high)), gain.paired]
            for name, gain in gains_of(row, metric).items()
        },
        "floor": _figures(row.compared.get(FLOOR, {})),
        "floor_name": row.floor_name,
        "simple": _figures(row.compared.get("simple", {})),
        "bestsellers": _figures(row.popularity),
        "left": say_left(row.left) if row.left else "",
        "counts": dict(row.trials),
        "proposed": len(trials.rows),
        "hours": round_value(row.hours),
        "cost": round_value(bill.regions.get(row.slug, 0.0)),  # of a region that no job has been run for
        "space": [_parameter(parameter) for parameter in trials.spec.search.space],
    }


def _parameter(parameter: Parameter) -> dict[str, object]:
    if isinstance(parameter, Choice):
        options = [_value(option) for option in parameter.options]
        return {"name": parameter.name, "options": options} | ({"ordered": True} if parameter.ordered else {})
    return {"name": parameter.name, "low": parameter.low, "high": parameter.high, "log": parameter.log}


def _trials(trials: RegionTrials, machines: Mapping[NodeName, str], texts: Texts) -> dict[str, object]:
    rows = trials.rows
    names = [parameter.name for parameter in trials.spec.search.space]
    # Of how many values a program's figure is the mean is not known here, and so no interval.
    errors = [None if row.customers else round_value(row.stderr, INTERVAL_DIGITS) for row in rows]
    return ({"error": errors} if any(error is not None for error in errors) else {}) | {
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


def _dependence(one: PartialDependence) -> dict[str, object]:
    figures = {"mean": one.means, "low": one.lows, "high": one.highs}
    rounded = {name: [round_value(value, CURVE_DIGITS) for value in values] for name, values in figures.items()}
    return {"name": one.hyperparameter, "values": [_value(value) for value in one.values], **rounded}


def _figures(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: round_value(value) for name, value in metrics.items()}


def _value(value: Value | None) -> Value | None:
    return round_value(value) if isinstance(value, float) else value
