"""Memory that a control group of the kernel's does not give: below the group in which this program runs itself."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.campaign.files import OFTEN, PATIENCE, Inject
from tests.campaign.running import Running, Seen, wait_until
from tests.campaign.schedule import Fault

ROOT = Path("/sys/fs/cgroup")
LIMIT = 65536  # bytes that it may get beyond what it has, which stays with the group it comes from


def killed_by_cgroup(find: Callable[[Running], list[Seen]]) -> Inject:
    """Move a process into a group that gives it almost no more memory; the kernel kills it when it asks."""

    def inject(study: Running, fault: Fault) -> str | None:
        time.sleep(fault.amount)
        found = wait_until(lambda: find(study), PATIENCE, OFTEN)
        if not isinstance(found, list) or not found:
            return None
        seen = sorted(found, key=lambda one: one.pid)[int(fault.target * len(found))]
        with group(f"faults-{seen.pid}") as place, contextlib.suppress(OSError):
            limit_file(place).write_text(str(LIMIT))
            (place / "cgroup.procs").write_text(str(seen.pid))
            wait_until(lambda: not (place / "cgroup.procs").read_text(), PATIENCE, OFTEN)
            if kills(place):
                return f"pid {seen.pid} {' '.join(seen.words[2:3])}"
        return None

    return inject


@contextlib.contextmanager
def group(name: str) -> Iterator[Path]:
    """Make a memory group below our own; what is still in it at the end goes back to ours."""
    own = own_group(Path("/proc/self/cgroup").read_text(encoding="utf-8"))
    place = own / name
    place.mkdir()
    try:
        yield place
    finally:
        for pid in (place / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (own / "cgroup.procs").write_text(pid)
        wait_until(lambda: not (place / "cgroup.procs").read_text(), PATIENCE)
        place.rmdir()


def own_group(listing: str, root: Path = ROOT) -> Path:
    """Return the folder of the group that /proc/PID/cgroup names for memory: version 1's, else version 2's."""
    lines = [line.split(":", 2) for line in listing.splitlines()]
    paths = {names: path for _, names, path in lines}
    old = next((path for names, path in paths.items() if "memory" in names.split(",")), None)
    return root / "memory" / old.lstrip("/") if old is not None else root / paths[""].lstrip("/")


def limit_file(place: Path) -> Path:
    """Return the file that holds the group's limit."""
    old = place / "memory.limit_in_bytes"
    return old if old.exists() else place / "memory.max"


def kills(place: Path) -> int:
    """Return how many processes of the group the kernel has killed for want of memory."""
    old = place / "memory.oom_control"
    text = (old if old.exists() else place / "memory.events").read_text()
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill ")), 0)


def usable() -> bool:
    """Return whether groups with a limit of memory can be made below ours."""
    try:
        with group(f"faults-{os.getpid()}") as place:
            return limit_file(place).exists()
    except OSError:
        return False
