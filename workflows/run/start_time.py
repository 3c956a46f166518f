"""When a run began: `limits.deadline` counts from its first trial, however often its DAGs are submitted.

The manager's clock may be set while a run goes on. The machine also counts the seconds since its boot, which nobody
sets: by them a beginning is told in today's time, as long as the machine has not been booted since.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from nnlib.util.files import write_once
from regiondag.run.layout import RunFolder

SET = 60.0  # seconds between two clocks of one machine, beyond which one was set; less is drift
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def read_start(run: RunFolder) -> float | None:
    """Return when the run's first trial was prepared, in Unix time by the clock as it is now; None before that.

    A file that a crash of the machine has emptied was written at that time, too.
    """
    try:
        raw = json.loads(run.started.read_bytes())
        return float(raw["started"]) + _jump_since(raw)
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError):
        return run.started.stat().st_mtime


def read_jump(run: RunFolder) -> float:
    """Return by how many seconds the clock was set since a run with a deadline began; 0 where that is not known."""
    try:
        return _jump_since(json.loads(run.started.read_bytes()))
    except (OSError, KeyError, TypeError, ValueError):
        return 0.0


def has_expired(run: RunFolder, deadline: int, now: float) -> bool:
    """Return whether a run has had its `deadline` in seconds (0: none), which begins with its first trial."""
    return bool(deadline) and (start := read_start(run)) is not None and now >= start + deadline


def note_start(run: RunFolder, now: float) -> float:
    """Return the same, having written `now` down where nothing is yet."""
    if not run.started.exists():
        facts = {"started": now, "boot": _boot(), "since_boot": round(_since_boot(), 3)}
        write_once(run.started, json.dumps(facts) + "\n")
    known = read_start(run)
    return now if known is None else known


def _jump_since(raw: dict[str, Any]) -> float:
    """Return how much more the clock has advanced than the seconds since the boot."""
    if not raw.get("boot") or raw["boot"] != _boot():
        return 0.0
    jump = time.time() - float(raw["started"]) - (_since_boot() - float(raw["since_boot"]))
    return jump if abs(jump) > SET else 0.0


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # counts on while the machine sleeps


def _boot() -> str:
    """Return what names this boot of the machine; nothing on a system that does not say it."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
