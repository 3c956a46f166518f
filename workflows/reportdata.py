"""What the report's page shows, as data that JSON can hold: columns of figures, texts once each. Pure functions.

A run of 8,200 trials of 30 epochs each is a quarter of a million figures: they are rounded, and stand in columns
rather than in objects, so that the packed page stays small and opens at once. `regiondag study export` has all digits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workflows.attempts import Attempt, Leg, Span
from workflows.names import NodeName
from workflows.pricetable import PriceTable
from workflows.report import RegionSummary, Summary
from workflows.space import Choice, Parameter, Value
from workflows.trialtable import RegionTrials, TrialRow
from workflows.usage import EVICTED, Taken, sum_up, take

DIGITS = 6  # of values and hyperparameters
CURVE_DIGITS = 4  # of learning curves: less than a pixel of any picture
LONGEST_CAUSE = 240  # characters of a failure's cause
HELD_ROWS = 6  # of the timeline, for jobs that are held at the same time
TRAINING, INPUT, OUTPUT, LOST, IDLE, HELD = range(6)  # phases of the timeline; page.js knows them by these numbers
SETTLED_WELL = frozenset({"ok", "pruned", "running"})

LONGEST_TEXT = (
    2000  # characters of any one text: a compiler's whole output, of each of 8,000 trials, opens in no browser
)

# Digests and numbers of GPUs first, of which figures are a part.
_NUMBER = re.compile(
    r"\b(?=[0-9a-f-]*\d)[0-9a-f]{8,}(?:-[0-9a-f]{4,})*\b|0x[0-9a-fA-F]+|\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?"
)


class Texts:
    """Every text once; columns hold its number."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {"": 0}

    def number(self, text: str) -> int:
        """Return the text's place in `all`."""
        return self.known.setdefault(shortened(text, LONGEST_TEXT), len(self.known))

    @property
    def all(self) -> list[str]:
        """All texts, in the order of their numbers."""
        return list(self.known)


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
) -> dict[str, Any]:
    """Return all that the page shows; `made` is now, in Unix time. Regions stand in the order of the summary."""
    texts = Texts()
    places = {region.slug: place for place, region in enumerate(summary.regions)}
    attempts = [attempt for attempt in attempts if attempt.node.slug in places]
    machines = last_machines(attempts)
    return {
        "study": summary.study,
        "run": summary.run,
        "metric": summary.metric,
        "made": round(made),
        "currency": bill.currency,
        "cost": rounded(bill.cost),
        "gpu_hours": rounded(bill.gpu_hours),
        "lost_hours": rounded(bill.lost_hours),
        "regions": [
            _region(row, region, machines, bill, texts) for row, region in zip(summary.regions, trials, strict=True)
        ],
        "evictions": sum(leg.ending in EVICTED for attempt in attempts for leg in attempt.legs),
        "timeline": timeline(attempts, places, texts, made),
        "failures": failures(summary, trials, attempts, texts),
        "texts": texts.all,
    }


def last_machines(attempts: Iterable[Attempt]) -> dict[NodeName, str]:
    """Return the machine on which each node's job was last."""
    return {attempt.node: leg.machine for attempt in attempts for leg in attempt.legs}


# --- regions and trials ------------------------------------------------------------------------------------


def _region(
    row: RegionSummary, trials: RegionTrials, machines: Mapping[NodeName, str], bill: Bill, texts: Texts
) -> dict[str, Any]:
    return {
        "name": row.region,
        "slug": row.slug,
        "status": row.status,
        "reason": shortened(row.reason, LONGEST_TEXT),
        "metric": trials.spec.metric.name,
        "minimize": trials.spec.metric.minimize,
        "hyperparameters": {name: _value(value) for name, value in row.hyperparameters.items()},
        "test": _figures(row.test),
        "popularity": _figures(row.popularity),
        "standing": _figures(row.standing),
        "last": _figures(row.last),
        "counts": dict(row.trials),
        "hours": rounded(row.hours),
        "cost": rounded(bill.regions.get(row.slug, 0.0)),  # of a region that no job has been run for
        "space": [_parameter(parameter) for parameter in trials.spec.search.space],
        "trials": _trials(trials, machines, texts),
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    if isinstance(parameter, Choice):
        return {"name": parameter.name, "options": [_value(option) for option in parameter.options]}
    return {"name": parameter.name, "low": parameter.low, "high": parameter.high, "log": parameter.log}


def _trials(trials: RegionTrials, machines: Mapping[NodeName, str], texts: Texts) -> dict[str, Any]:
    rows = trials.rows
    names = [parameter.name for parameter in trials.spec.search.space]
    return {
        "trial": [row.trial for row in rows],
        "status": [texts.number(row.status) for row in rows],
        "value": [rounded(row.value) for row in rows],
        "points": [[_value(row.hyperparameters.get(name)) for row in rows] for name in names],
        "best_epoch": [row.best_epoch for row in rows],
        "seconds": [tenths(row.seconds) for row in rows],
        "settled": [None if row.settled is None else round(row.settled) for row in rows],
        "machine": [texts.number(machines.get(NodeName(row.slug, row.trial), "")) for row in rows],
        "reason": [texts.number(row.reason) for row in rows],
        "curves": [[rounded(value, CURVE_DIGITS) for value in row.curve] for row in rows],
        "won": next((row.trial for row in rows if row.won), None),
    }


def _figures(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: rounded(value) for name, value in metrics.items()}


def _value(value: Value | None) -> Value | None:
    return rounded(value) if isinstance(value, float) else value


def rounded(value: float | None, digits: int = DIGITS) -> float | None:
    """Return a value with some digits; None for none, and for what JSON cannot hold.

    >>> rounded(0.123456789), rounded(float("nan"))
    (0.123457, None)
    """
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")


def tenths(seconds: float | None) -> float | None:
    """Return seconds to a tenth."""
    return None if seconds is None or not math.isfinite(seconds) else round(seconds, 1)


# --- the timeline ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bar:
    """One stretch of a row of the timeline, with the try of a job that it belongs to."""

    row: str
    phase: int
    start: float
    end: float
    attempt: Attempt | None = None
    ending: str = ""
    reason: str = ""


def timeline(
    attempts: Sequence[Attempt], places: Mapping[str, int], texts: Texts, now: float
) -> dict[str, list[Any] | float]:
    """Return the bars of all slots as columns; times are seconds after `start`."""
    bars = [bar for attempt in attempts for leg in attempt.legs for bar in leg_bars(attempt, leg, now)]
    slots: dict[str, list[Bar]] = {}
    for bar in bars:
        slots.setdefault(bar.row, []).append(bar)
    bars += [idle for busy in slots.values() for idle in idle_bars(busy)]
    rows = sorted(slots, key=_slot_order)
    held = held_bars(attempts, now)
    rows += sorted({bar.row for bar in held})
    bars += held
    number = {row: place for place, row in enumerate(rows)}
    bars.sort(key=lambda bar: (number[bar.row], bar.start, bar.end))
    start = min((bar.start for bar in bars), default=0.0)
    nodes = [bar.attempt.node if bar.attempt else None for bar in bars]
    return {
        "start": start,
        "rows": rows,
        "row": [number[bar.row] for bar in bars],
        "phase": [bar.phase for bar in bars],
        "from": [tenths(bar.start - start) for bar in bars],
        "seconds": [tenths(bar.end - bar.start) for bar in bars],
        "region": [places[node.slug] if node else -1 for node in nodes],
        "trial": [node.number if node else None for node in nodes],
        "ending": [texts.number(bar.ending) for bar in bars],
        "reason": [texts.number(bar.reason) for bar in bars],
    }


def leg_bars(attempt: Attempt, leg: Leg, now: float) -> list[Bar]:
    """Return what a start of a job did on its slot: data in, training, data out. Training that was lost is LOST."""
    start, end = _ends(leg.running, now)
    found = []
    for phase, span in ((INPUT, leg.transfer_in), (OUTPUT, leg.transfer_out)):
        if span is None:
            continue
        first, last = _ends(span, now)
        found.append(Bar(leg.slot, phase, first, last, attempt))
        if phase == INPUT:
            start = min(max(start, last), max(end, last))
        else:
            end = max(min(end, first), start)
    ending = leg.ending or "running"
    found.append(Bar(leg.slot, TRAINING if leg.kept else LOST, start, max(end, start), attempt, ending, leg.reason))
    return found


def idle_bars(bars: Iterable[Bar]) -> list[Bar]:
    """Return the times between the bars of one slot in which nothing ran there."""
    idle: list[Bar] = []
    busy_until = math.inf
    for bar in sorted(bars, key=lambda bar: bar.start):
        if bar.start > busy_until:
            idle.append(Bar(bar.row, IDLE, busy_until, bar.start))
        busy_until = bar.end if busy_until == math.inf else max(busy_until, bar.end)
    return idle


def held_bars(attempts: Iterable[Attempt], now: float) -> list[Bar]:
    """Return the times in which jobs were held, in as many rows as are held at the same time; six at most."""
    holds = sorted(
        ((*_ends(hold.held, now), hold, attempt) for attempt in attempts for hold in attempt.holds),
        key=lambda found: found[:2],
    )
    busy_until: list[float] = []
    bars = []
    for start, end, hold, attempt in holds:
        free = next((row for row, until in enumerate(busy_until) if until <= start), len(busy_until))
        if free == len(busy_until) and free < HELD_ROWS:
            busy_until.append(end)
        row = min(free, HELD_ROWS - 1)
        busy_until[row] = max(busy_until[row], end)
        bars.append(Bar(f"held jobs {row + 1}", HELD, start, end, attempt, _hold(hold.code, hold.subcode), hold.reason))
    return bars


def _ends(span: Span, now: float) -> tuple[float, float]:
    return span.start, span.start + span.seconds(now)


def _slot_order(slot: str) -> tuple[object, ...]:
    """Machines by name, and their slots by number: slot1_2 before slot1_10."""
    name, _, machine = slot.partition("@")
    return (_numbers(machine), _numbers(name))


def _numbers(text: str) -> tuple[tuple[str, int], ...]:
    return tuple((word, int(number or 0)) for word, number in re.findall(r"(\D+|^)(\d{0,15})", text))


def _hold(code: int, subcode: int) -> str:
    return f"held (code {code}.{subcode})"


# --- failures ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that went wrong with a trial, the final training (None) or a region as a whole (-1)."""

    kind: str
    reason: str
    slug: str
    trial: int | None
    machine: str


def failures(
    summary: Summary, trials: Sequence[RegionTrials], attempts: Sequence[Attempt], texts: Texts
) -> list[dict[str, Any]]:
    """Return what went wrong, grouped by its cause, the most frequent first."""
    places = {region.slug: place for place, region in enumerate(summary.regions)}
    groups: dict[tuple[str, str], list[Incident]] = {}
    faults = {(region.spec.slug, job): reason for region in trials for job, reason in region.faults.items()}
    for incident in [*_of_regions(summary), *_of_trials(trials, attempts), *_of_attempts(attempts, faults)]:
        groups.setdefault((incident.kind, cause(incident.reason)), []).append(incident)
    return [
        {
            "kind": kind,
            "cause": text,
            "region": [places[incident.slug] for incident in found],
            "trial": [incident.trial for incident in found],
            "machine": [texts.number(incident.machine) for incident in found],
            "reason": [texts.number(incident.reason) for incident in found],
        }
        for (kind, text), found in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def cause(reason: str) -> str:
    """Return a reason without what is different each time: its numbers.

    >>> cause("the loss is nan in epoch 17 (batch 3e-4)"), cause("sha256 is 3f9ab2c1d4e5, not feedface0123")
    ('the loss is nan in epoch # (batch #)', 'sha# is #, not #')
    """
    return shortened(_NUMBER.sub("#", " ".join(reason.split())), LONGEST_CAUSE)


def shortened(text: str, most: int) -> str:
    """Return at most so many characters of a text."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _of_regions(summary: Summary) -> list[Incident]:
    failed = [region for region in summary.regions if region.status == "failed"]
    return [Incident("region failed", region.reason, region.slug, -1, "") for region in failed]


def _of_trials(trials: Iterable[RegionTrials], attempts: Iterable[Attempt]) -> list[Incident]:
    machines = last_machines(attempts)
    failed: list[TrialRow] = [row for region in trials for row in region.rows if row.status not in SETTLED_WELL]
    return [
        Incident(
            f"trial {row.status}", row.reason, row.slug, row.trial, machines.get(NodeName(row.slug, row.trial), "")
        )
        for row in failed
    ]


def _of_attempts(attempts: Sequence[Attempt], faults: Mapping[tuple[str, str], str]) -> list[Incident]:
    """Return evictions, lost machines, holds, and tries that were followed by another, for the reason in `faults`."""
    last = {attempt.node: attempt for attempt in attempts}
    found = []
    for attempt in attempts:
        slug, trial = attempt.node.slug, attempt.node.number
        machine = attempt.legs[-1].machine if attempt.legs else ""
        found += [
            Incident(f"job {leg.ending}", leg.reason, slug, trial, leg.machine)
            for leg in attempt.legs
            if leg.ending in EVICTED
        ]
        found += [
            Incident(f"job {_hold(hold.code, hold.subcode)}", hold.reason, slug, trial, machine)
            for hold in attempt.holds
        ]
        if last[attempt.node] is not attempt and (attempt.exit_code or attempt.signal or attempt.removed):
            reason = faults.get((slug, attempt.job), "") or attempt.removed
            found.append(Incident(f"job tried again after {_end_of(attempt)}", reason, slug, trial, machine))
    return found


def _end_of(attempt: Attempt) -> str:
    if attempt.exit_code:
        return f"exit code {attempt.exit_code}"
    return f"signal {attempt.signal}" if attempt.signal else "its removal"
