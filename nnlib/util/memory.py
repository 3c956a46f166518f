"""How much memory this process may still take: what the machine has free, or less where its control group says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
UNKNOWN = 4 << 30  # assumed where nothing can be asked


def available_bytes() -> int:
    """Return how many bytes can be taken without swapping and without being killed for it."""
    return max(0, min([_of_machine(), *_of_groups()]))


def show_bytes(count: float) -> str:
    """Return a number of bytes for people, such as `1.5 GiB`."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _of_machine() -> int:
    try:
        for line in (PROC / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (OSError, ValueError):
        return UNKNOWN


def _of_groups() -> Iterator[int]:
    """Yield what each control group that limits this process leaves, of version 1 or 2, up to the root."""
    try:
        lines = (PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            yield from _left(GROUPS, group, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root = GROUPS / "memory"
            yield from _left(root, group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _left(root: Path, group: str, limit: str, used: str, reclaimable: str) -> Iterator[int]:
    folder = root / group.lstrip("/")
    for place in (folder, *folder.parents):
        if not place.is_relative_to(root):
            return
        try:
            most = int((place / limit).read_text())  # "max" is no number: no limit here
            statistics = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
            yield most - int((place / used).read_text()) + int(statistics.get(reclaimable, 0))
        except (OSError, ValueError):
            continue
