"""When a run began: `limits.deadline` counts from its first trial, however often its DAGs are submitted."""

from __future__ import annotations

import json

from nnlib.util.files import write_once
from regiondag.run.layout import RunFolder


def read_start(run: RunFolder) -> float | None:
    """Return when the run's first trial was prepared, in Unix time; None before that.

    A file that a crash of the machine has emptied was written at that time, too.
    """
    try:
        return float(json.loads(run.started.read_bytes())["started"])
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError):
        return run.started.stat().st_mtime


def has_expired(run: RunFolder, deadline: int, now: float) -> bool:
    """Return whether a run has had its `deadline` in seconds (0: none), which begins with its first trial."""
    return bool(deadline) and (start := read_start(run)) is not None and now >= start + deadline


def note_start(run: RunFolder, now: float) -> float:
    """Return the same, having written `now` down where nothing is yet."""
    if not run.started.exists():
        write_once(run.started, json.dumps({"started": now}) + "\n")
    known = read_start(run)
    return now if known is None else known
