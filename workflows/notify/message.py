"""What people are told: a few events of a run, as one message. Pure functions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from regiondag.run.region_state import RegionOutcome
from regiondag.study.notify import BUDGET, CHAMPION, FAILED, FINISHED, FROZEN, MISSED, Notify
from regiondag.util.text import list_some, shorten, spell_out

if TYPE_CHECKING:
    from regiondag.report.summary import RegionSummary, Summary

LONGEST_LINE, MOST_LINES = 500, 60  # of an event's text
MOST_NAMES = 8
LONGEST_TITLE = 120


@dataclass(frozen=True, slots=True)
class Event:
    """One thing to tell; its first line says it, the others say more."""

    event: str
    lines: tuple[str, ...]
    regions: tuple[str, ...] = ()  # all that it is about


@dataclass(frozen=True, slots=True)
class Message:
    """One digest. The same thing told twice has the same `id`, by which a receiver drops it."""

    id: str
    study: str
    run: str  # name of the run directory; nothing where there is none
    time: float
    title: str
    events: tuple[Event, ...]

    @property
    def text(self) -> str:
        """All of it, for people."""
        return "\n".join(line for event in self.events for line in event.lines) + "\n"

    def to_json(self) -> str:
        """Return what commands and webhooks get; `text` is what chats show."""
        return json.dumps(asdict(self) | {"text": f"{self.title}\n{self.text}"}, ensure_ascii=False)


def make_message(study: str, run: str, title: str, events: Sequence[Event], now: float) -> Message:
    """Return a message, bounded and on lines that steer nothing."""
    tidy = tuple(
        Event(
            event.event,
            tuple(_tidy(line, LONGEST_LINE) for line in event.lines[:MOST_LINES]),
            tuple(_tidy(name, LONGEST_LINE) for name in event.regions[:1000]),
        )
        for event in events
    )
    said = json.dumps([run or study, [asdict(event) for event in tidy]], sort_keys=True)
    return Message(
        f"{run or study}-{hashlib.sha256(said.encode()).hexdigest()[:12]}",
        study,
        run,
        round(now, 3),
        _tidy(title, LONGEST_TITLE),
        tidy,
    )


def _tidy(text: str, longest: int) -> str:
    return shorten(spell_out(" ".join(text.split())), longest)


def digest_run(
    summary: Summary, settings: Notify, sentences: Sequence[str], run: str, done: bool, now: float
) -> Message | None:
    """Return what there is to tell of a run whose DAG has ended; None for nothing that anybody wants to hear.

    `sentences` are the report's own; `done` is whether all regions of the DAG have what serves them.
    """
    events = [event for event in _events(summary, settings, sentences, run, done) if event.event in settings.events]
    if not events:
        return None
    short = [event.lines[0].rstrip(".") for event in events]
    return make_message(summary.study, run, f"{summary.study}: {'; '.join(short)}", events, now)


def _events(summary: Summary, settings: Notify, sentences: Sequence[str], run: str, done: bool) -> list[Event]:
    regions = [region for region in summary.regions if not region.stands_for_all]
    found = [
        Event(FINISHED, (f"run {run} is finished.", *sentences)) if done else _failure(summary, sentences, run),
        _about(CHAMPION, "got another champion", [r for r in regions if r.status == RegionOutcome.PROMOTED]),
        _about(FROZEN, "kept a pinned champion", [region for region in regions if region.pinned]),
    ]
    cost, budget, currency = summary.bill.cost, settings.budget, summary.bill.currency
    if cost is not None and budget is not None and cost > budget:
        found.append(
            Event(
                BUDGET, (f"it cost {cost:,.2f} {currency}, the budget of a run is {budget:,.2f}.".replace("  ", " "),)
            )
        )
    return [event for event in found if event is not None]


def _failure(summary: Summary, sentences: Sequence[str], run: str) -> Event:
    """Return what is said of a DAG that did not reach its end; regions that share a reason share a line."""
    reasons: dict[str, list[str]] = {}
    for region in summary.regions:
        if not region.finished:
            reasons.setdefault(region.reason or str(region.status), []).append(region.region)
    names = tuple(region.region for region in summary.regions if not region.finished)
    first = f"run {run} failed: {_count(len(names))} without a champion." if names else f"run {run} failed."
    lines = (f"{list_some(of, MOST_NAMES)}: {reason}" for reason, of in reasons.items())
    return Event(FAILED, (first, *lines, *sentences, f"regiondag explain {summary.run}"), names)


def _about(event: str, what: str, regions: Sequence[RegionSummary]) -> Event | None:
    if not regions:
        return None
    names = tuple(region.region for region in regions)
    serving = {region.region: region.serves for region in regions[:MOST_NAMES] if region.serves}
    lines = (f"{name}: {recipe}" for name, recipe in serving.items())
    return Event(event, (f"{_count(len(names))} {what}: {list_some(names, MOST_NAMES)}.", *lines), names)


def note_missed(study: str, reasons: Sequence[str], now: float) -> Message:
    """Return what is said of a night that brought no run."""
    return make_message(study, "", f"{study}: night missed", [Event(MISSED, tuple(reasons))], now)


def note_test(study: str, now: float) -> Message:
    """Return a message that says nothing but that it arrived; each is one of its own."""
    stamp = f"this is a test, sent at {now:.0f}; nothing has happened."
    return make_message(study, "", f"{study}: a test of notify", [Event("test", (stamp,))], now)


def add_undelivered(message: Message, failures: Mapping[str, str]) -> Message:
    """Return a message that also says which earlier ones did not arrive, by their ids; its own id stays."""
    if not failures:
        return message
    lines = tuple(f"did not arrive: {name}: {why}" for name, why in failures.items())
    events = (*message.events, Event("undelivered", tuple(_tidy(line, LONGEST_LINE) for line in lines[:MOST_LINES])))
    return Message(message.id, message.study, message.run, message.time, message.title, events)


def _count(number: int) -> str:
    return "1 region" if number == 1 else f"{number:,} regions"
