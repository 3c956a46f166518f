"""Tell how a run ended, once: what arrived is noted beside the run, and what did not is in the next run's message."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from nnlib.util.files import locked, write_atomically
from regiondag.errors import RegiondagError
from regiondag.notify.message import Message, add_undelivered, digest_run
from regiondag.notify.send import NotSentError, send
from regiondag.run.champions import earlier_runs
from regiondag.run.layout import RunFolder
from regiondag.study.notify import Notify, notify_from_json

if TYPE_CHECKING:
    from regiondag.report.summary import Summary

MOST_NOTED = 100  # messages of a run


@dataclass(slots=True)
class Noted:
    """What became of a run's messages."""

    sent: dict[str, list[str]] = field(default_factory=dict)  # channel -> ids
    failed: dict[str, str] = field(default_factory=dict)  # "channel, title" -> why
    passed_on: list[str] = field(default_factory=list)  # names of earlier runs whose failures have been told


def read_settings(run: RunFolder) -> Notify | None:
    """Return whom to tell; None where nobody is. RegiondagError for a damaged file."""
    try:
        return notify_from_json(run.notify.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RegiondagError(f"{run.notify} is damaged: {error}; nobody is told of this run") from error


def read_noted(run: RunFolder) -> Noted:
    """Return what became of a run's messages; nothing where the file is damaged: at worst one arrives twice."""
    try:
        raw = json.loads(run.notified.read_text(encoding="utf-8"))
        sent = {str(channel): list(map(str, ids)) for channel, ids in raw["sent"].items()}
        failed = {str(name): str(why) for name, why in raw["failed"].items()}
        return Noted(sent, failed, list(map(str, raw["passed_on"])))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Noted()


def tell_end(run: RunFolder, summary: Summary, done: bool, now: float) -> Iterator[str]:
    """Tell how a run's DAG ended; yield what to note in manager.log. Done twice, what arrived is not sent again."""
    settings = read_settings(run)
    if settings is None:
        return
    from regiondag.report.markdown import say_headline

    message = digest_run(summary, settings, say_headline(summary), run.path.name, done, now)
    with locked(run.notified.with_suffix(".lock")):
        noted = read_noted(run)
        if message is None:
            _write_noted(run, noted)  # that it came to its end, for whoever misses it
            yield "notify: nothing to tell that anybody asked for"
            return
        older = _undelivered(run, summary.study, noted)
        failures = noted.failed | {name: why for one in older for name, why in read_noted(one).failed.items()}
        said = list(deliver(settings, add_undelivered(message, failures), noted))
        if any(message.id in ids for ids in noted.sent.values()):
            noted.passed_on = [*noted.passed_on, *(one.path.name for one in older)][-MOST_NOTED:]
        _write_noted(run, noted)
    yield from said


def _write_noted(run: RunFolder, noted: Noted) -> None:
    write_atomically(run.notified, json.dumps(asdict(noted), indent=1, ensure_ascii=False) + "\n")


def _undelivered(run: RunFolder, study: str, noted: Noted) -> list[RunFolder]:
    """Return the run before this one, if not all of its messages arrived and that has not been told."""
    before = [one for one in earlier_runs(run.path.parent, study) if one.path.name < run.path.name][:1]
    return [one for one in before if read_noted(one).failed and one.path.name not in noted.passed_on]


def deliver(
    settings: Notify, message: Message, noted: Noted, way: Callable[[str, Notify, Message], str] = send
) -> Iterator[str]:
    """Send a message by every channel by which it has not arrived, note what came of it, and yield that in words."""
    for channel in settings.channels:
        ids, name = noted.sent.setdefault(channel, []), f"{channel}, {message.title}"
        if message.id in ids:
            yield f"notify: {channel}: told before"
            continue
        try:
            answer = way(channel, settings, message)
        except NotSentError as error:
            noted.failed[name] = str(error)
            yield f"notify: {channel}: NOT sent: {error}"
            continue
        noted.failed.pop(name, None)
        ids.append(message.id)
        del ids[:-MOST_NOTED]
        yield f"notify: {channel}: {answer}"


def send_all(settings: Notify, message: Message, channels: Sequence[str] = ()) -> dict[str, tuple[bool, str]]:
    """Send a message by some channels, or all; return of each whether it went, and what came back."""
    found: dict[str, tuple[bool, str]] = {}
    for channel in channels or settings.channels:
        try:
            found[channel] = True, send(channel, settings, message)
        except NotSentError as error:
            found[channel] = False, str(error)
    return found
