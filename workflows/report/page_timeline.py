"""The page's timeline: what each slot did, as bars in columns. Pure functions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from regiondag.condor.events.attempts import Attempt, Leg, Span
from regiondag.report.page_packing import Texts, hold_name, tenths

HELD_ROWS = 6  # of the timeline, for jobs that are held at the same time
TRAINING, INPUT, OUTPUT, LOST, IDLE, HELD = range(6)  # phases of the timeline; timeline.js knows them by these numbers


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


def build_timeline(
    attempts: Sequence[Attempt], places: Mapping[str, int], texts: Texts, now: float
) -> dict[str, object]:
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
        bars.append(
            Bar(f"held jobs {row + 1}", HELD, start, end, attempt, hold_name(hold.code, hold.subcode), hold.reason)
        )
    return bars


def _ends(span: Span, now: float) -> tuple[float, float]:
    return span.start, span.start + span.seconds(now)


def _slot_order(slot: str) -> tuple[object, ...]:
    """Machines by name, and their slots by number: slot1_2 before slot1_10."""
    name, _, machine = slot.partition("@")
    return (_numbers(machine), _numbers(name))


def _numbers(text: str) -> tuple[tuple[str, int], ...]:
    return tuple((word, int(number or 0)) for word, number in re.findall(r"(\D+|^)(\d{0,15})", text))
