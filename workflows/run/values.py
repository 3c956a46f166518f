"""Points and values of a journal without the rest: what PRE reads of the journals of other regions.

A line of an outcome has 2 kB, of which another region's model is told one number.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field

from nnlib.contract import ENDED_WELL, Status
from regiondag.errors import RegiondagError
from regiondag.run.history import OPEN, SILENT, History
from regiondag.run.journal import STATUSES, Journal, time_of
from regiondag.study.space import Point

# How `Journal.append` writes lines.
_POINT = re.compile(rb'\{"event": "proposed", "time": [0-9.]+, "trial": ([0-9]+), "point": ')
_VALUE = re.compile(
    rb'\{"event": "settled", "time": [0-9.]+, "trial": ([0-9]+), "status": "(\w+)", "reason": "[^"\\]*", '
    rb'"value": (null|-?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]{1,2})?), '
)
_ENDS = b"}\n"
BLOCK = 1 << 16  # bytes that are read at a time


@dataclass(slots=True)
class Values:
    """What a journal says of points and values alone."""

    points: dict[int, bytes | Point] = field(default_factory=dict)  # by trial; the line where nobody has asked yet
    told: dict[int, float | None] = field(default_factory=dict)  # by trial: its value; None of one that failed
    open: set[int] = field(default_factory=set)  # trials that ended with what is nobody's last word

    def point(self, trial: int) -> Point:
        """Return the point of a trial; RegiondagError where its line holds none."""
        known = self.points[trial]
        if isinstance(known, bytes):
            try:
                point = json.loads(known)["point"]
            except (KeyError, RecursionError, ValueError):
                point = None
            if not isinstance(point, dict):
                raise RegiondagError(f"trial {trial}: not a line of a journal: {known[:80]!r}")
            known = self.points[trial] = point
        return known

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


def read_values(journal: Journal, until: float | None = None) -> Values:
    """Fold the journal as far as points and values go, in a twentieth of the time.

    Of the others' journals PRE needs no more, and there may be forty of them. What a line says after the value is
    not looked at; lines that are not as `append` writes them are parsed. With `until` (Unix time) as it was then.
    """
    values = Values()
    points, told = values.points, values.told
    with suppress(FileNotFoundError), journal.path.open("rb", BLOCK) as file:
        for number, line in enumerate(file, start=1):
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
                points.setdefault(int(proposed[1]), line)
                continue
            if line.endswith(b"\n"):  # else it is torn
                _fold_odd(journal, values, number, line)
    return values


def _fold_odd(journal: Journal, values: Values, number: int, line: bytes) -> None:
    """Fold a line that is neither a usual proposal nor a usual outcome."""
    history = History()
    journal.fold(history, number, line[:-1])
    for trial in history.reopened:
        if trial is not None:
            values.reopen(trial)
    for trial, proposal in history.proposals.items():
        values.points.setdefault(trial, proposal.point)
    for trial, outcome in history.settled.items():
        values.settle(trial, outcome.status, outcome.value)
