"""Find and read the daemons' logs of a pool."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from regiondag.errors import PoolError, UsageError
from regiondag.pool.pool import Pool, pool_folder

# HTCondor names two logs otherwise than their daemons.
LOG_NAMES = {"schedd": "SchedLog", "startd": "StartLog"}


def find_log_folder(name: str, installed: Pool | None) -> Path:
    """Return the folder of the logs of the embedded pool `name`, or of the installed one if given."""
    if installed:
        return Path(installed.run(["condor_config_val", "LOG"], capture_output=True).stdout.strip())
    folder = pool_folder(name) / "var/log/condor"
    if not folder.is_dir():
        raise PoolError(f"no pool called {name!r} was ever started here, so there are no logs")
    return folder


def find_log(folder: Path, daemon: str) -> Path:
    """Return the log of `daemon`: schedd, SchedLog and schedlog all mean the schedd's."""
    logs = {path.name.lower(): path for path in folder.iterdir() if "Log" in path.name and path.suffix != ".old"}
    wanted = daemon.lower().removeprefix("condor_")
    for key in (LOG_NAMES.get(wanted, "").lower(), f"{wanted}log", wanted, f"starterlog.{wanted}"):
        if key in logs:
            return logs[key]
    there = ", ".join(sorted(path.name for path in logs.values())) or "none yet"
    raise UsageError(f"no log of {daemon!r} in {folder}; there are: {there}")


def read(path: Path, count: int, follow: bool, interval: float = 0.3) -> Iterator[str]:
    """Yield the last `count` lines, then new ones for ever if `follow`; a rotated log is taken up again."""
    log = path.open(encoding="utf-8", errors="replace")
    try:
        yield from (line.rstrip("\n") for line in deque(log, maxlen=count))
        while follow:
            line = log.readline()
            if line:
                yield line.rstrip("\n")
            elif path.exists() and path.stat().st_ino != Path(f"/proc/self/fd/{log.fileno()}").stat().st_ino:
                log.close()
                log = path.open(encoding="utf-8", errors="replace")
            else:
                time.sleep(interval)
    finally:
        log.close()
