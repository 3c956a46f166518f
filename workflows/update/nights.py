"""Which nights were missed: times at which no update began, and updates that brought no run.

The job itself looks when it runs: back at the times that it missed, and at what becomes of tonight. Whoever wants to
hear of a job that runs no more lets another machine's cron ask: `regiondag notify STUDY --missed`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nnlib.util.files import write_atomically
from regiondag.errors import RegiondagError
from regiondag.notify.deliver import read_settings, send_all
from regiondag.notify.message import note_missed
from regiondag.run.layout import RunFolder
from regiondag.study.notify import MISSED, Notify
from regiondag.update.crontab import list_times

LATE = 2 * 3600  # seconds: the job may begin an hour after its time, and clocks are put forward and back
LONGEST_LOOK = 100 * 86400  # seconds that are looked back
MOST_SHOWN = 10
EARLIEST = 0.0

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Nights:
    """What is known of a study's nights: `since` when all is told, and what could not be told."""

    schedule: str = ""
    since: float = EARLIEST
    offset: int = 0  # seconds of the job's time zone from UTC
    untold: tuple[str, ...] = ()


def read_nights(path: Path) -> Nights:
    """Return what is known; nothing where the file is missing or damaged: then no night is taken for missed."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        untold = tuple(map(str, raw["untold"]))
        return Nights(str(raw["schedule"]), float(raw["since"]), int(raw["offset"]), untold)
    except (OSError, ValueError, KeyError, TypeError):
        return Nights()


def write_nights(path: Path, nights: Nights) -> None:
    """Keep what is known."""
    write_atomically(path, json.dumps(asdict(nights), indent=1) + "\n")


def find_missed(nights: Nights, now: float) -> list[str]:
    """Return the times, in the job's own zone, at which an update should have begun since all was told."""
    start = max(nights.since, now - LONGEST_LOOK)
    if not nights.schedule or nights.since <= EARLIEST or now - LATE <= start:
        return []
    try:
        times = list_times(nights.schedule, _local(start + LATE, nights), _local(now - LATE, nights))
    except ValueError:
        return []
    return [f"{when:%Y-%m-%d %H:%M}" for when in times]


def _local(when: float, nights: Nights) -> datetime:
    return datetime.fromtimestamp(when, UTC).replace(tzinfo=None) + timedelta(seconds=nights.offset)


def say_missed(times: Sequence[str]) -> list[str]:
    """Return what is said of these times."""
    if not times:
        return []
    shown = ", ".join(times[-MOST_SHOWN:]) + (
        f" and {len(times) - MOST_SHOWN} before" if len(times) > MOST_SHOWN else ""
    )
    return [f"no update began at {shown}: HTCondor was down then, or the nightly job was not in its queue or was held."]


def run_night(
    path: Path, schedule: str, study: str, find: Callable[[], Notify | None], last: RunFolder | None,
    work: Callable[[], int], tell: Tell,
) -> int:  # fmt: skip
    """Do tonight's update, and tell of it if it brings no run, and of nights before it that were missed.

    `find` finds whom to tell; `last` is the run of the night before.
    """
    now = time.time()
    before = read_nights(path)
    reasons = [*before.untold, *say_missed(find_missed(before, now)), *_say_lost(last)]
    nights = Nights(schedule, now, int(time.localtime(now).tm_gmtoff), tuple(reasons))
    write_nights(path, nights)
    try:
        code = work()
    except Exception as error:
        reasons.append(f"tonight no run was made: {error}")
        raise
    else:
        if code:
            reasons.append(f"tonight's update ended with exit code {code}")
        return code
    finally:
        write_nights(path, replace(nights, untold=tuple(tell_missed(find, study, reasons, tell))))


def _say_lost(last: RunFolder | None) -> list[str]:
    """Say that the last run never came to its last node, which tells how runs end."""
    if last is None or not last.notify.exists() or last.notified.exists():
        return []
    return [f"{last.path.name} never came to its end: DAGMan was removed, crashed or still works on it."]


def tell_missed(find: Callable[[], Notify | None], study: str, reasons: Sequence[str], tell: Tell) -> list[str]:
    """Tell why there was no run; return what nobody could be told of, for the next time."""
    if not reasons:
        return []
    try:
        settings = find()
    except RegiondagError as error:
        tell(f"notify: {error}")
        return list(reasons)
    if settings is None or MISSED not in settings.events or not settings.channels:
        return []
    answers = send_all(settings, note_missed(study, reasons, time.time()))
    for channel, (sent, answer) in answers.items():
        tell(f"notify: {channel}: {answer if sent else f'NOT sent: {answer}'}")
    return [] if any(sent for sent, _ in answers.values()) else list(reasons)


def find_settings(load: Callable[[], Notify], last: RunFolder | None) -> Notify | None:
    """Return whom study.yaml names or, where that cannot be read tonight, whom the last run's did."""
    try:
        return load()
    except RegiondagError:
        if last is None:
            raise
        return read_settings(last)
