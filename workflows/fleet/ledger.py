"""What a fleet's instances have cost: by the day (UTC) and since `fleet up`. A small file of the manager, always whole.

Each instance is counted from its launch to the present look, at the price of the hour that holds then, and the file
says until when: whoever looks next, and be it another process after a reboot, goes on from there. What ended between
two looks is counted to the moment that EC2 names, and else to the look that misses it: too much rather than too little.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from nnlib.util.files import locked, write_atomically
from regiondag.errors import RegiondagError
from regiondag.fleet.ec2 import Instance
from regiondag.util.user_dirs import make_dir, state_dir

HOUR = 3600.0
DAY = 86400.0
LEAST_SECONDS = 60.0  # EC2 charges a minute at the least
DAYS_KEPT = 31
FREE = ("stopped", "terminated")


@dataclass(frozen=True, slots=True)
class Counted:
    """How far an instance is counted; `until` in seconds since 1970, `rate` in dollars for an hour."""

    until: float
    rate: float
    over: bool = False  # it has ended, and nothing more will come


@dataclass(frozen=True, slots=True)
class Ledger:
    """Dollars spent."""

    run: float = 0.0  # since `fleet up` found nothing of the fleet
    days: Mapping[str, float] = field(default_factory=dict)  # 2026-11-28: ...
    instances: Mapping[str, Counted] = field(default_factory=dict)

    def today(self, now: float) -> float:
        """Return what the day of `now` has cost so far."""
        return self.days.get(day_of(now), 0.0)


def day_of(now: float) -> str:
    """Return the day, as AWS bills it.

    >>> day_of(0.0)
    '1970-01-01'
    """
    return datetime.fromtimestamp(now, UTC).date().isoformat()


def count(ledger: Ledger, seen: Sequence[Instance], rates: Mapping[str, float], now: float) -> Ledger:
    """Return the ledger after a look at all instances that EC2 still lists, those that have ended included.

    `rates`: what an hour of each costs now, by its id. The same look twice adds nothing.
    """
    days, run, counted = dict(ledger.days), ledger.run, {}
    here = {one.id for one in seen}
    vanished = [(name, one) for name, one in ledger.instances.items() if name not in here and not one.over]
    spans = [(one.until, now, one.rate) for _, one in vanished]
    for one in seen:
        before = ledger.instances.get(one.id)
        rate = rates.get(one.id, before.rate if before else 0.0)
        if before and before.over:
            counted[one.id] = before
            continue
        # An instance that was stopped and started again has a new launch; what it did before is counted.
        start = max(before.until, one.launched) if before else one.launched
        end = _end(one, start, now, known=before is not None)
        spans.append((start, end, rate))
        counted[one.id] = Counted(max(start, end), rate, one.state == "terminated")
    for start, end, rate in spans:
        for day, seconds in _by_day(start, end):
            days[day] = days.get(day, 0.0) + rate * seconds / HOUR
        run += rate * max(0.0, end - start) / HOUR
    kept = dict(sorted(days.items())[-DAYS_KEPT:])
    return Ledger(run, kept, counted)


def find_unseen(before: Ledger, seen: Sequence[Instance], now: float) -> list[str]:
    """Return a sentence for each instance that ended so long ago that EC2 does not say when."""
    here = {one.id for one in seen}
    return [
        f"{name} ended while nobody looked, {(now - one.until) / HOUR:.1f} hours or less ago; that is counted, "
        f"{show_dollars(one.rate * (now - one.until) / HOUR)}. `regiondag fleet scale --watch` counts to the minute"
        for name, one in before.instances.items()
        if name not in here and not one.over and now - one.until > HOUR
    ]


def show_dollars(amount: float) -> str:
    """Return an amount for people.

    >>> show_dollars(1234.5)
    '$1234.50'
    """
    return f"${amount:.2f}"


def _end(one: Instance, start: float, now: float, known: bool) -> float:
    """Return until when an instance is counted at a look."""
    if one.state == "stopped":
        return start if known else start + LEAST_SECONDS
    end = now if one.state not in FREE else min(now, one.ended or now)
    return end if known else max(end, start + LEAST_SECONDS)


def _by_day(start: float, end: float) -> Iterator[tuple[str, float]]:
    """Yield the days of a span of time, and the seconds of it that lie in each."""
    while start < end:
        midnight = (math.floor(start / DAY) + 1) * DAY
        yield day_of(start), min(midnight, end) - start
        start = midnight


# --- the file ----------------------------------------------------------------------------------------------


def ledger_path(region: str, name: str) -> Path:
    """Return where the ledger of a fleet lies."""
    return state_dir() / "fleets" / f"{region}.{name}.json"


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the ledger: two commands that look at the same time count one after the other."""
    make_dir(path.parent)
    with locked(path.with_suffix(".lock")):
        yield


def read_ledger(path: Path) -> Ledger:
    """Return the ledger, an empty one where there is none yet; RegiondagError if it is something else."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        instances = {name: Counted(_money(one["until"]), _money(one["rate"]), one["over"] is True)
                     for name, one in raw["instances"].items()}  # fmt: skip
        days = {datetime.fromisoformat(day).date().isoformat(): _money(spent) for day, spent in raw["days"].items()}
        return Ledger(_money(raw["run"]), days, instances)
    except FileNotFoundError:
        return Ledger()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RegiondagError(
            f"{path}: it says what the fleet has spent, and cannot be read ({type(error).__name__}: {error}); nothing "
            "is started before it can. Bring it back from a backup, or remove it: then only instances that EC2 still "
            "lists are counted"
        ) from None


def _money(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is no amount")
    return float(value)


def write_ledger(path: Path, ledger: Ledger) -> None:
    """Write the ledger so that it is the old or the new one, whatever happens."""
    write_atomically(path, json.dumps(asdict(ledger), indent=1) + "\n")


def begin_run(ledger: Ledger) -> Ledger:
    """Return the ledger of a fleet that is made anew: what ended before stays counted, in its day."""
    return replace(ledger, run=0.0)
