"""A region's journal: one JSON object a line, only ever appended to. Everything known of the trials is in it.

Two events matter, and the first of each per trial counts, so that a script DAGMan runs twice changes nothing:
    {"event": "proposed", "trial": 7, "point": {...}}
    {"event": "settled", "trial": 7, "status": "ok", "value": 0.07, ...}
(an outcome that is nobody's last word, such as a fault of the machine, is replaced by a later one)
`"trial": null` is the final training. `{"event": "attempt"}` notes a run that is tried again, and
`{"event": "won", "trial": 7, "of": 24}` whose point the final training gets, after so many outcomes.
`{"event": "stopped", "trial": 7, "reason": ...}`: the region stops at this node until that is "resumed".
`{"event": "cancelled", "trial": 7}`: a person wants it ended; `{"event": "reopened", "trial": 7}`: it is to run again,
and what was settled before is forgotten. Unknown events and keys are passed over: a newer version wrote them.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnlib.contract import check_figures
from workflows.errors import RegiondagError
from workflows.space import Value

# Statuses that say nothing of the hyperparameters: the node may be run again, and its next outcome counts.
OPEN = frozenset({"bad_input", "machine", "removed"})
# Those that count as failures of the hyperparameters.
FAILED = frozenset({"diverged", "removed"})
CANCELLED = "cancelled"  # the reason of a trial that was removed by `regiondag trial cancel`

# How `append` writes the lines that `read_outcomes` does not parse in full.
REOPENED = b'{"event": "reopened"'
STOPPED = b'{"event": "stopped"'
MACHINE = b'"status": "machine"'
_PROPOSED = b'{"event": "proposed"'
_SETTLED = re.compile(
    rb'\{"event": "settled", "time": ([0-9.]+), "trial": ([0-9]+|null), "status": "(\w+)", '
    rb'"reason": "[^"\\]*", "value": (null|-?[0-9.]+(?:e-?[0-9]+)?), '
)
_PROMOTED = (b'"promoted": true}', b'"promoted": false}')


@dataclass(frozen=True, slots=True)
class Proposal:
    """The hyperparameters given to one trial."""

    trial: int
    point: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Settled:
    """How one trial (or the final training: `trial` is None) ended."""

    trial: int | None
    status: str
    reason: str = ""
    value: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    baseline: Mapping[str, float] = field(default_factory=dict)
    standing: Mapping[str, float] = field(default_factory=dict)  # the champion of the run before, on this test set
    curve: tuple[float, ...] = ()  # the trial's metric after each epoch
    best_epoch: int = 0
    seconds: float = 0.0
    result: str = ""  # SHA-256 of the result.json that says this, and on what machine it was trained
    host: str = ""  # where it ended, as HTCondor names it
    job: str = ""  # cluster.proc
    promoted: bool = False  # the last one: see `read_outcomes`

    @property
    def ok(self) -> bool:
        """Whether there is a value to learn from."""
        return self.status == "ok"


@dataclass(frozen=True, slots=True)
class Fault:
    """An attempt of a trial, or of the final training, that was the machine's fault and is followed by another."""

    trial: int | None
    reason: str = ""
    seconds: float = 0.0
    host: str = ""
    job: str = ""
    when: float = 0.0  # Unix time


@dataclass(slots=True)
class History:
    """A journal, read: each trial's proposal, outcome and attempts that were repeated."""

    proposals: dict[int, Proposal] = field(default_factory=dict)
    settled: dict[int, Settled] = field(default_factory=dict)
    settled_at: dict[int, float] = field(default_factory=dict)  # Unix time
    won: tuple[int, int] | None = None  # which trial's point the final training gets, and of how many outcomes
    final: Settled | None = None
    faults: list[Fault] = field(default_factory=list)
    repeated_seconds: float = 0.0  # of trials' outcomes that a later one replaced
    repeated_final_seconds: float = 0.0  # the same of the final training
    stopped: dict[int | None, str] = field(default_factory=dict)  # nodes at which the region stopped, and why
    cancelled: set[int] = field(default_factory=set)
    reopened: set[int | None] = field(default_factory=set)  # and not settled since

    @property
    def attempts(self) -> int:
        """Number of attempts that were repeated."""
        return len(self.faults)

    @property
    def attempt_seconds(self) -> float:
        """Seconds that were trained and had to be trained again, or settled anew."""
        return self.repeated_seconds + self.repeated_final_seconds + sum(fault.seconds for fault in self.faults)

    def faults_of(self, trial: int | None) -> list[Fault]:
        """Return the attempts of one trial, or of the final training, that were repeated."""
        return [fault for fault in self.faults if fault.trial == trial]

    def settle(self, settled: Settled, when: float = 0.0) -> None:
        """Take an outcome in. The first one counts, unless a run of the same node again may turn out better."""
        self.reopened.discard(settled.trial)
        self.stopped.pop(settled.trial, None)
        if settled.trial is None:
            if self.final is None or not self.final.ok:
                self.repeated_final_seconds += self.final.seconds if self.final else 0.0
                self.final = settled
        elif self.outcome(settled.trial) is None:
            before = self.settled.get(settled.trial)
            self.repeated_seconds += before.seconds if before else 0.0  # what is run again was trained for all the same
            self.settled[settled.trial] = settled
            self.settled_at[settled.trial] = when

    def reopen(self, trial: int | None) -> None:
        """Forget how a trial, or the final training, ended: it is to be run again."""
        self.reopened.add(trial)
        self.stopped.pop(trial, None)
        if trial is None:
            self.repeated_final_seconds += self.final.seconds if self.final else 0.0
            self.final = None
            return
        before = self.settled.pop(trial, None)
        self.settled_at.pop(trial, None)
        self.cancelled.discard(trial)
        self.repeated_seconds += before.seconds if before else 0.0
        self.won = self.won and (self.won[0], -1)  # another one may win then, whatever the number of outcomes

    def known(self, trial: int | None) -> Settled | None:
        """Return how a trial, or the final training, ended last; that may be nobody's last word."""
        return self.final if trial is None else self.settled.get(trial)

    def outcome(self, trial: int | None) -> Settled | None:
        """Return what is known for good of a trial, or of the final training."""
        if trial is None:
            return self.final if self.final and self.final.ok else None
        known = self.settled.get(trial)
        return known if known and known.status not in OPEN else None

    @property
    def ended(self) -> int:
        """Number of trials of which the outcome is known for good."""
        return sum(self.outcome(trial) is not None for trial in self.settled)

    @property
    def any_ok(self) -> bool:
        """Whether a trial has succeeded."""
        return any(settled.ok for settled in self.settled.values())

    def best(self, minimize: bool) -> Settled | None:
        """Return the best successful trial, the earliest of equals."""
        sign = 1.0 if minimize else -1.0
        done = [(sign * s.value, trial) for trial, s in self.settled.items() if s.ok and s.value is not None]
        return self.settled[min(done)[1]] if done else None

    def winner(self, minimize: bool) -> Settled | None:
        """Return the trial whose point the final training has, or else would have by the values alone."""
        return (self.settled.get(self.won[0]) if self.won else None) or self.best(minimize)


class Journal:
    """Appends to one region's journal under a lock, and reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the region's lock: PRE and POST of several nodes run at the same time."""
        with self.path.with_suffix(".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def append(self, event: str, **values: Any) -> None:
        """Add one line and wait until it is on disk. Call it under `locked`."""
        self.append_all([(event, values)])

    def append_all(self, events: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Add some lines and wait until they are on disk. Call it under `locked`."""
        records = ({"event": event, "time": round(time.time(), 3), **values} for event, values in events)
        lines = [json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records]
        with self.path.open("ab") as file:
            file.truncate(_end_of_last_line(self.path))  # what a crash tore off is said again by the script run again
            file.write("".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())

    def note_stop(self, trial: int | None, reason: str) -> None:
        """Note that the region stops at a node. Call it under `locked`."""
        if self.read().stopped.get(trial) != reason:
            self.append("stopped", trial=trial, reason=reason)

    def note_resumed(self, trial: int | None) -> None:
        """Note that a node at which the region had stopped goes on. Call it under `locked`."""
        if any(line.startswith(STOPPED) for line in self._lines()) and trial in self.read().stopped:
            self.append("resumed", trial=trial)

    def read(self) -> History:
        """Fold the journal. A torn last line is passed over; anything else that is no record is an error."""
        history = History()
        for number, line in enumerate(_parsed(self._lines()), start=1):
            self._fold(history, number, line)
        return history

    def read_outcomes(self) -> History:
        """Fold the journal without proposals, metrics and reasons: `status` looks at 100,000 trials in two seconds.

        Parsing all of the JSON would take longer; lines that do not begin as `append` writes them are parsed.
        """
        history = History()
        for number, line in enumerate(self._lines(), start=1):
            head = _SETTLED.match(line)
            if head and line.endswith(_PROMOTED):
                when, trial, status, value = head.groups()
                outcome = Settled(
                    trial=None if trial == b"null" else int(trial),
                    status=status.decode(),
                    value=None if value == b"null" else float(value),
                    promoted=line.endswith(_PROMOTED[0]),
                )
                history.settle(outcome, float(when))
            elif not line.startswith(_PROPOSED):
                self._fold(history, number, line)
        return history

    def _lines(self) -> list[bytes]:
        try:
            *lines, _torn = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        return lines

    def _fold(self, history: History, number: int, line: bytes | dict[str, Any]) -> None:
        try:
            record = json.loads(line) if isinstance(line, bytes) else line
            event = record.pop("event")
            when = float(record.pop("time", 0.0))
            if event == "proposed":
                history.proposals.setdefault(record["trial"], Proposal(**_known(Proposal, record)))
            elif event == "settled":
                check_figures(record)
                record["curve"] = tuple(record.get("curve", ()))
                history.settle(Settled(**_known(Settled, record)), when)
            elif event == "won":
                history.won = _number(record["trial"]), _number(record["of"])
            elif event == "stopped":
                history.stopped[_trial(record["trial"])] = str(record["reason"])
            elif event == "resumed":
                history.stopped.pop(_trial(record["trial"]), None)
            elif event == "cancelled":
                history.cancelled.add(_number(record["trial"]))
            elif event == "reopened":
                history.reopen(_trial(record["trial"]))
            elif event == "attempt":
                record["seconds"] = float(record.get("seconds", 0.0))
                history.faults.append(Fault(**_known(Fault, record | {"when": when})))
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise RegiondagError(
                f"{self.path}:{number}: not a line of a journal ({error}); was the file edited? "
                "Remove the line, or restore the file"
            ) from error


def _parsed(lines: list[bytes]) -> Sequence[bytes | dict[str, Any]]:
    """Parse all lines at once, in a quarter of the time; they come back as they are unless each is one object."""
    try:
        records: list[dict[str, Any]] = json.loads(b"[" + b",".join(lines) + b"]")
    except (ValueError, RecursionError):
        return lines
    whole = len(records) == len(lines) and all(line[:1] + line[-1:] == b"{}" for line in lines)
    return records if whole else lines


def _known(kind: type[Any], record: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a later version may have added to a record."""
    if record.keys() <= kind.__dataclass_fields__.keys():
        return record
    return {name: value for name, value in record.items() if name in kind.__dataclass_fields__}


def _trial(value: Any) -> int | None:
    return None if value is None else _number(value)


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"seen {value!r}, legal: a whole number")
    return value


def _end_of_last_line(path: Path, block: int = 1 << 16) -> int:
    """Return the number of bytes up to and including the last line break, looked for from the end."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(end - block, 0)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0
