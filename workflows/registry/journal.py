"""The registry's journal: a line a step, written before the step is done.

    {"event": "promoted", "time": 1795.5, "by": "ada", "moves": {"germany": "20261124-033000"}}

A step is one line, of one region or of all of them, so that it is there whole or not at all; a torn last line is passed
over, and cut off by whoever writes next. Events: `promoted` and `rolled back` (`current` moves), `registered` (a
version came that no one serves: its region is pinned, or has a newer one), `pinned`, `unpinned`, `removed`. Unknown
events and keys are passed over: a newer version wrote them.
"""

from __future__ import annotations

import json
import os
import pwd
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnlib.util.files import append_lines, read_last_line
from regiondag.errors import RegiondagError

PROMOTED, ROLLED_BACK, REGISTERED = "promoted", "rolled back", "registered"
PINNED, UNPINNED, REMOVED = "pinned", "unpinned", "removed"
MOVES = (PROMOTED, ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Step:
    """What was done, when and by whom: of each region the version that it was done with."""

    event: str
    time: float
    by: str
    moves: Mapping[str, str]  # slug -> version


@dataclass(slots=True)
class Past:
    """What the journal says of a region."""

    current: str | None = None  # the version that serves
    since: float = 0.0
    by: str = ""  # who put it there
    event: str = ""  # and how
    served: dict[str, None] = field(default_factory=dict)  # versions that have served, the first one first
    known: set[str] = field(default_factory=set)  # all that came into the registry
    pinned: Step | None = None


def read_steps(path: Path) -> list[Step]:
    """Return all steps; RegiondagError for a line that is none."""
    try:
        *lines, _torn = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    return [_parse(path, number, line) for number, line in enumerate(lines, start=1)]


def read_last_step(path: Path, block: int = 1 << 16) -> Step | None:
    """Return the last whole line's step, read from the end: what may have been cut off is that one alone."""
    line = read_last_line(path, block)
    return None if line is None else _parse(path, "last", line)


def fold(steps: Iterable[Step]) -> dict[str, Past]:
    """Return by slug what became of each region."""
    found: dict[str, Past] = {}
    for step in steps:
        for slug, version in step.moves.items():
            past = found.setdefault(slug, Past())
            if step.event in MOVES:
                past.current, past.since, past.by, past.event = version, step.time, step.by, step.event
                past.served[version] = None
                if past.pinned:
                    past.pinned = Step(PINNED, past.pinned.time, past.pinned.by, {slug: version})
            elif step.event == PINNED:
                past.pinned = step
            elif step.event == UNPINNED:
                past.pinned = None
            if step.event == REMOVED:
                past.served.pop(version, None)
            else:
                past.known.add(version)
    return found


def append_step(path: Path, event: str, moves: Mapping[str, str]) -> None:
    """Add one step, and wait until it is on the disk. Call it under the registry's lock."""
    record = {"event": event, "time": round(time.time(), 3), "by": who_am_i(), "moves": dict(moves)}
    append_lines(path, json.dumps(record, ensure_ascii=False) + "\n")


def who_am_i() -> str:
    """Return the user's name, or number where that has none here."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _parse(path: Path, number: int | str, line: bytes) -> Step:
    try:
        record: Any = json.loads(line)
        moves = {str(slug): _check_text(version) for slug, version in record["moves"].items()}
        return Step(_check_text(record["event"]), float(record["time"]), _check_text(record["by"]), moves)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError, OverflowError) as error:
        raise RegiondagError(
            f"{path}:{number}: not a line of a registry's journal ({error}); was the file edited? "
            "Remove the line, or restore the file"
        ) from error


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"seen {value!r}, legal: a text")
    return value
