"""A region's journal: one JSON object a line, only ever appended to. Everything known of the trials is in it.

Two events matter, and the first of each per trial counts, so that a script DAGMan runs twice changes nothing:
    {"event": "proposed", "trial": 7, "point": {...}}
    {"event": "settled", "trial": 7, "status": "ok", "value": 0.07, ...}
(an outcome that is nobody's last word, such as a fault of the machine, is replaced by a later one)
`"trial": null` is the final training. `{"event": "attempt"}` notes a run that is tried again, and
`{"event": "won", "trial": 7, "of": 24}` whose point the final training gets, after so many outcomes.
`{"event": "expected", "trial": 8, "gain": 0.0002, "low": 0.0, "high": 0.001, "stderr": 0.004}`: what the model hoped
for when it proposed; `"left"` is the same after the last trial.
`{"event": "stopped", "trial": 7, "reason": ...}`: the region stops at this node until that is "resumed".
`{"event": "cancelled", "trial": 7}`: a person wants it ended; `{"event": "reopened", "trial": 7}`: it is to run again,
and what was settled before is forgotten. `{"event": "search", "space": {...}, ...}`: what `regiondag.Search` was given,
in journals without a run. `{"event": "repaired", "lines": 2}`: so many lines of it were made anew from other records.
Unknown events and keys are passed over: a newer version wrote them.

`"after"` is a digest of the line before, so that a line that is removed, changed, doubled or moved is noticed.
`"run"` is the id of the run and region that it was written for, by region.json: a line, or a whole journal, of another
one is noticed even where each line follows the one before. It stands in each line, not only in the first one's digest,
so that a line that was copied says so itself, whoever made the digests anew.
Journals of earlier versions begin with lines without `"after"`, and have no `"run"`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from nnlib.contract import Recipe, Status, check_figures, recipe_of
from nnlib.util.files import append_lines, locked, read_last_line
from regiondag.errors import RegiondagError
from regiondag.run.history import CANCELLED, ExpectedGain, Fault, History, Proposal, TrialOutcome
from regiondag.run.layout import REGION_FILE
from regiondag.run.region_spec import read_run_id
from regiondag.study.families import POPULARITY

# How `append` writes the lines that `read_outcomes` does not parse in full.
REOPENED = b'{"event": "reopened"'
STOPPED = b'{"event": "stopped"'
MACHINE = b'"status": "%b"' % Status.MACHINE.encode()
_PROPOSED = b'{"event": "proposed"'
_NUMBER = rb"(null|-?[0-9.]+(?:e-?[0-9]+)?)"
_SETTLED = re.compile(
    rb'\{"event": "settled", "time": ([0-9.]+), (?:"after": "[0-9a-f]{16}", )?(?:"run": "([0-9a-f]*)", )?'
    rb'"trial": ([0-9]+), '
    rb'"status": "(\w+)", "reason": "[^"\\]*", '
    rb'"value": %b, "metrics": \{[^{}]*\}, "stderr": %b, "customers": ([0-9]+), ' % (_NUMBER, _NUMBER)
)
_SECONDS = re.compile(rb'"curve": \[[^\[\]]*\], "best_epoch": [0-9]+, "seconds": ([0-9.]+(?:e-?[0-9]+)?), ')
_POPULAR = b'"recipe": {"family": "%b"' % POPULARITY.encode()
_COMPARED, _END = b'"compared": ', b', "promoted": false}'  # of a trial: nothing else is ever promoted
STATUSES = {status.encode(): status for status in Status}
BEGINNING = "0" * 16  # what the first line is after


class Journal:
    """Appends to one region's journal under a lock, and reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def run_id(self) -> str:
        """What its lines have as `run`; empty: nothing."""
        return read_run_id(self.path.with_name(REGION_FILE))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the region's lock: PRE and POST of several nodes run at the same time."""
        with locked(self.path.with_suffix(".lock")):
            yield

    def append(self, event: str, **values: object) -> None:
        """Add one line and wait until it is on disk. Call it under `locked`."""
        self.append_all([(event, values)])

    def append_all(self, events: Iterable[tuple[str, Mapping[str, object]]]) -> None:
        """Add some lines and wait until they are on disk. Call it under `locked`."""
        records = ({"event": event, "time": round(time.time(), 3), **values} for event, values in events)
        text = chain(records, self.run_id, digest_of_line(read_last_line(self.path) or b""))
        append_lines(self.path, text)  # what a crash tore off is said again by the script run again

    def note_stop(self, trial: int | None, reason: str) -> None:
        """Note that the region stops at a node. Call it under `locked`."""
        if self.read().stopped.get(trial) != reason:
            self.append("stopped", trial=trial, reason=reason)

    def note_cancelled(self, trial: int) -> None:
        """Note that a cancelled trial ends before it has a job. Call it under `locked`."""
        self.append("settled", **asdict(TrialOutcome(trial, Status.REMOVED, CANCELLED)))

    def note_resumed(self, trial: int | None) -> None:
        """Note that a node at which the region had stopped goes on. Call it under `locked`."""
        if STOPPED in self._read_from(0) and trial in self.read().stopped:
            self.append("resumed", trial=trial)

    def read(self, whole: bool = True) -> History:
        """Fold the journal. A torn last line is passed over; anything else that is no record is an error.

        Without the `whole` of it trials that went well have values, standard errors, customers and seconds alone, which
        takes a third of the time.
        """
        history = History()
        self.read_on(history, whole)
        return history

    def read_on(self, history: History, whole: bool = True) -> None:
        """Fold in what was appended since `history` was read."""
        before, size = history.folded
        text = self._read_from(size)
        lines = text.split(b"\n")[:-1]
        for number, line in enumerate(_parse_all(lines) if whole else lines, start=before + 1):
            outcome, when, run = (None, 0.0, "") if whole or isinstance(line, dict) else _glance_at_success(line)
            if outcome:
                history.settle(outcome, when)
                history.strangers += [number] * (run != self.run_id)
            else:
                self.fold(history, number, line)
        history.folded = before + len(lines), size + text.rfind(b"\n") + 1

    def read_before(self, trial: int, others: Container[int] = ()) -> tuple[History, list[int], float]:
        """Fold the journal as it was when a trial was proposed.

        Return also which of `others` were proposed in the same breath, itself among them, and when; nothing and 0 for a
        trial that was not proposed: then all of the journal is before it.
        """
        lines = list(_parse_all(self.lines()))
        proposed = [_proposed(line) for line in lines]
        at = proposed.index(trial) if trial in proposed else len(lines)
        first = end = at
        while first > 0 and proposed[first - 1] is not None and proposed[first - 1] in others:
            first -= 1
        while end < len(lines) and (end == at or (proposed[end] is not None and proposed[end] in others)):
            end += 1
        history = History()
        for number, line in enumerate(lines[:first], start=1):
            self.fold(history, number, line)
        together = [number for number in proposed[first:end] if number is not None]
        return history, together, time_of(lines[at]) if at < len(lines) else 0.0

    def read_outcomes(self) -> History:
        """Fold the journal without proposals, and of trials without metrics and reasons, the final one in full.

        Parsing all of the JSON would take longer: `status` looks at 100,000 trials in two seconds. Lines that are not
        as `append` writes them are parsed. Of recipes only popularity is known as such.
        """
        history, own = History(), b'"run": "%b", ' % self.run_id.encode() if self.run_id else b""
        for number, line in enumerate(self.lines(), start=1):
            outcome, when, run = _glance(line)
            if outcome:
                history.settle(outcome, when)
                history.strangers += [number] * (run != self.run_id)
            elif not line.startswith(_PROPOSED):
                self.fold(history, number, line)
            elif own not in line:
                history.strangers.append(number)
        return history

    def lines(self) -> list[bytes]:
        """Return its whole lines; the last one, if it is torn, is left out."""
        return self._read_from(0).split(b"\n")[:-1]

    def _read_from(self, begin: int) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(begin)
                return file.read()
        except FileNotFoundError:
            return b""

    def fold(self, history: History, number: int, line: bytes | dict[str, Any]) -> None:
        """Take line `number` in; RegiondagError where it is no record."""
        try:
            record = json.loads(line) if isinstance(line, bytes) else line
            event = record.pop("event")
            when = float(record.pop("time", 0.0))
            record.pop("after", None)
            if record.pop("run", "") != self.run_id:
                history.strangers.append(number)
            if event == "proposed":
                history.proposals.setdefault(record["trial"], Proposal(**_drop_unknown(Proposal, record)))
            elif event == "settled":
                check_figures(record)
                record["status"] = Status(record["status"])
                record["curve"] = tuple(record.get("curve", ()))
                record["recipe"] = recipe_of(record["recipe"]) if record.get("recipe") else None
                history.settle(TrialOutcome(**_drop_unknown(TrialOutcome, record)), when)
            elif event == "search":
                history.search = record
            elif event == "won":
                history.won = _check_number(record["trial"]), _check_number(record["of"])
            elif event == "expected":
                history.left = history.gains[_check_number(record["trial"])] = _gain_of(record)
            elif event == "left":
                history.left = _gain_of(record)
            elif event == "declined":
                history.declined[_check_number(record["trial"])] = str(record["reason"])
            elif event == "stopped":
                history.stopped[_check_trial(record["trial"])] = str(record["reason"])
            elif event == "resumed":
                history.stopped.pop(_check_trial(record["trial"]), None)
            elif event == "cancelled":
                history.cancelled.add(_check_number(record["trial"]))
            elif event == "reopened":
                history.reopen(_check_trial(record["trial"]))
            elif event == "attempt":
                record["seconds"] = float(record.get("seconds", 0.0))
                history.faults.append(Fault(**_drop_unknown(Fault, record | {"when": when})))
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise RegiondagError(
                f"{self.path}:{number}: not a line of a journal ({error}); was the file edited? "
                "Remove the line, or restore the file"
            ) from error


def chain(records: Iterable[Mapping[str, object]], run_id: str, after: str = BEGINNING) -> str:
    """Return records, each with event and time, as lines of a journal that follow a line with the digest `after`."""
    lines, own = [], {"run": run_id} if run_id else {}
    for record in records:
        head = {"event": record["event"], "time": record["time"], "after": after, **own}
        line = json.dumps(head | {**record, **head}, ensure_ascii=False, allow_nan=False)
        lines.append(f"{line}\n")
        after = digest_of_line(line.encode())
    return "".join(lines)


def digest_of_line(line: bytes) -> str:
    """Return what the next line says of a line, given without its line break; an empty one is that of no line."""
    return hashlib.sha256(line).hexdigest()[:16] if line else BEGINNING


def find_breaks(lines: Sequence[bytes]) -> list[int]:
    """Return the numbers, from 1 on, of lines that do not follow the line before them."""
    found, before, chained = [], b"", False
    for number, line in enumerate(lines, start=1):
        after = _record_of(line).get("after")
        if after is None:
            broken = chained  # only an earlier version wrote such lines, and it came first
        else:
            broken, chained = after != digest_of_line(before), True
        found += [number] * broken
        before = line
    return found


def _glance(line: bytes) -> tuple[TrialOutcome | None, float, str]:
    """Return a trial's outcome, when it was settled, and of what run, without parsing its line; None for any other."""
    head = _SETTLED.match(line)
    if not head or head[4] not in STATUSES or not line.endswith(_END):
        return None, 0.0, ""
    when, run, trial, status, value, stderr, customers = head.groups(b"")
    compared = line[line.rfind(_COMPARED) + len(_COMPARED) : -len(_END)]
    try:
        outcome = TrialOutcome(
            trial=int(trial),
            status=STATUSES[status],
            value=None if value == b"null" else float(value),
            stderr=None if stderr == b"null" else float(stderr),
            customers=int(customers),
            recipe=Recipe(POPULARITY) if _POPULAR in line else None,
            compared={} if compared == b"{}" else json.loads(compared.decode()),
        )
    except (RecursionError, ValueError):  # whoever parses all of it says what is wrong
        return None, 0.0, ""
    return outcome, float(when), run.decode()


def _glance_at_success(line: bytes) -> tuple[TrialOutcome | None, float, str]:
    """Return what counts of a trial that went well, when it was settled, and of what run; None for any other line."""
    head = _SETTLED.match(line)
    end = _SECONDS.search(line, head.end()) if head and head[4] == b"ok" and line.endswith(_END) else None
    if not head or not end:
        return None, 0.0, ""
    when, run, trial, _, value, stderr, customers = head.groups(b"")
    try:
        outcome = TrialOutcome(
            trial=int(trial),
            status=Status.OK,
            value=None if value == b"null" else _finite(value),
            stderr=None if stderr == b"null" else _finite(stderr),
            customers=int(customers),
            seconds=_finite(end[1]),
        )
    except ValueError:  # whoever parses all of it says what is wrong
        return None, 0.0, ""
    return outcome, float(when), run.decode()


def _finite(text: bytes) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"seen {number}, legal: a finite number")
    return number


def _parse_all(lines: list[bytes]) -> Sequence[bytes | dict[str, Any]]:
    """Parse all lines at once, in a quarter of the time; they come back as they are unless each is one object."""
    try:
        records: list[dict[str, Any]] = json.loads(b"[" + b",".join(lines) + b"]")
    except (ValueError, RecursionError):
        return lines
    whole = len(records) == len(lines) and all(line[:1] + line[-1:] == b"{}" for line in lines)
    return records if whole else lines


def time_of(line: bytes | dict[str, Any]) -> float:
    """Return when a line was written; 0 where it does not say."""
    when = _record_of(line).get("time", 0.0)
    return float(when) if isinstance(when, int | float) else 0.0


def _proposed(line: bytes | dict[str, Any]) -> int | None:
    """Return the trial that a line proposes; None where it proposes none."""
    record = _record_of(line)
    trial = record.get("trial") if record.get("event") == "proposed" else None
    return trial if isinstance(trial, int) else None


def _record_of(line: bytes | dict[str, Any]) -> dict[str, Any]:
    """Return a line as a record; an empty one for what is none, of which `Journal` says so when it is folded."""
    try:
        record = json.loads(line) if isinstance(line, bytes) else line
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _drop_unknown(kind: type[Any], record: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a later version may have added to a record."""
    if record.keys() <= kind.__dataclass_fields__.keys():
        return record
    return {name: value for name, value in record.items() if name in kind.__dataclass_fields__}


def _gain_of(record: Mapping[str, Any]) -> ExpectedGain:
    """Read what was expected; runs of earlier versions say nothing of its interval."""
    figures = {name: record.get(name) for name in ("stderr", "low", "high")}
    known = {name: None if value is None else float(value) for name, value in figures.items()}
    return ExpectedGain(float(record["gain"]), **known, of=_check_number(record.get("of", 0)))


def _check_trial(value: Any) -> int | None:
    return None if value is None else _check_number(value)


def _check_number(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"seen {value!r}, legal: a whole number")
    return value
