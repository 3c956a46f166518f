"""Points and values of a journal without the rest: what PRE reads of the journals of other regions.

A line of an outcome has 2 kB, of which another region's model is told one number.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from nnlib.contract import ENDED_WELL, Status
from regiondag.errors import RegiondagError
from regiondag.run.history import OPEN, SILENT, History
from regiondag.run.journal import STATUSES, Journal, time_of
from regiondag.study.space import Point

# How `Journal.append` writes lines.
_HEAD = rb'"time": [0-9.]+, (?:"after": "[0-9a-f]{16}", )?(?:"run": "[0-9a-f]*", )?"trial": ([0-9]+), '
_POINT = re.compile(rb'\{"event": "proposed", %b"point": ' % _HEAD)
_VALUE = re.compile(
    rb'\{"event": "settled", %b"status": "(\w+)", "reason": "[^"\\]*", '
    rb'"value": (null|-?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]{1,2})?), ' % _HEAD
)
_ENDS = b"}\n"
BLOCK, LINE = 1 << 16, 1 << 10  # bytes that are read at a time: of all lines, of one


@dataclass(slots=True)
class Values:
    """What a journal says of points and values alone."""

    journal: Path
    places: dict[int, int] = field(default_factory=dict)  # by trial: where in the journal the line of its point begins
    told: dict[int, float | None] = field(default_factory=dict)  # by trial: its value; None of one that failed
    open: set[int] = field(default_factory=set)  # trials that ended with what is nobody's last word
    lines: int = 0
    last: int = 0  # where the last line begins
    folded: int = 0  # where it ends
    parsed: dict[int, Point] = field(default_factory=dict)  # by trial: points that were asked for

    def point(self, trial: int) -> Point:
        """Return the point of a trial; RegiondagError where its line holds none."""
        if trial not in self.parsed:
            with self.journal.open("rb", LINE) as file:
                file.seek(self.places[trial])
                line = file.readline()
            try:
                point = json.loads(line)["point"]
            except (KeyError, RecursionError, ValueError):
                point = None
            if not isinstance(point, dict):
                raise RegiondagError(f"trial {trial}: not a line of a journal: {line[:80]!r}")
            self.parsed[trial] = point
        return self.parsed[trial]

    def settle(self, trial: int, status: Status, value: float | None) -> None:
        """Take an outcome in, as `History` does."""
        if trial in self.open or trial not in self.told:
            self.reopen(trial)
            if status in OPEN:
                self.open.add(trial)
            if status not in SILENT:
                self.told[trial] = value if status in ENDED_WELL else None

    def reopen(self, trial: int) -> None:
        """Forget how a trial ended."""
        self.told.pop(trial, None)
        self.open.discard(trial)


def read_values(journal: Journal, until: float | None = None, values: Values | None = None) -> Values:
    """Fold the journal as far as points and values go, in a twentieth of the time.

    Of the others' journals PRE needs no more, and there may be forty of them. What a line says after the value is
    not looked at; lines that are not as `append` writes them are parsed. With `until` (Unix time) as it was then; after
    `values`, which are returned, that of the lines after them.
    """
    values = values or Values(journal.path)
    places, told = values.places, values.told
    with suppress(FileNotFoundError), journal.path.open("rb", BLOCK) as file:
        file.seek(values.folded)
        for line in file:
            if not line.endswith(b"\n"):  # it is torn
                break
            values.lines += 1
            values.last, values.folded = values.folded, values.folded + len(line)
            if until is not None and time_of(line) > until:
                continue
            if (ended := _VALUE.match(line)) and line.endswith(_ENDS):
                trial, status, value = int(ended[1]), STATUSES.get(ended[2]), ended[3]
                if status is Status.OK and trial not in told and trial not in values.open and value != b"null":
                    told[trial] = float(value)
                    continue
                if status is not None:
                    values.settle(trial, status, None if value == b"null" else float(value))
                    continue
            elif (proposed := _POINT.match(line)) and line.endswith(_ENDS):
                places.setdefault(int(proposed[1]), values.last)
                continue
            _fold_odd(journal, values, line)
    return values


def _fold_odd(journal: Journal, values: Values, line: bytes) -> None:
    """Fold a line that is neither a usual proposal nor a usual outcome."""
    history = History()
    journal.fold(history, values.lines, line[:-1])
    for trial in history.reopened:
        if trial is not None:
            values.reopen(trial)
    for trial in history.proposals:
        values.places.setdefault(trial, values.last)
    for trial, outcome in history.settled.items():
        values.settle(trial, outcome.status, outcome.value)
