"""What the jobs of the next run should ask for, by what those of this one used. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from regiondag.condor.events.attempts import NO_DISK, NO_MEMORY, RESOURCE_HOLDS, Attempt

HEAD_ROOM = 1.25
CUT_OFF = 1.5  # where jobs were held for memory or disk, and none got on with more, nobody knows how much they need
STEP = 64.0  # MB
OTHERS = 2.0  # a region that needs more than so many times the median gets lines of its own

SIZES = {"memory": ("memory_mb", NO_MEMORY), "disk": ("disk_mb", NO_DISK)}


@dataclass(frozen=True, slots=True)
class Quantity:
    """One resource of a region's jobs, in MB: asked for, the most that one used, and what to ask for."""

    asked: float
    peak: float
    suggested: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """All of a region; what was not measured is None. GPU memory cannot be asked for, but tells what GPU will do."""

    memory: Quantity | None
    disk: Quantity | None
    gpu_memory: float | None


def measure(attempts: Sequence[Attempt]) -> Sizes:
    """Return what the jobs of a region asked for and used."""
    found = {name: _size(attempts, key, subcode) for name, (key, subcode) in SIZES.items()}
    gpu = [attempt.used["gpu_memory_mb"] for attempt in attempts if "gpu_memory_mb" in attempt.used]
    return Sizes(found["memory"], found["disk"], max(gpu, default=None))


def _size(attempts: Sequence[Attempt], key: str, subcode: int) -> Quantity | None:
    used = [attempt.used[key] for attempt in attempts if attempt.used.get(key)]
    asked = [attempt.asked[key] for attempt in attempts if attempt.asked.get(key)]
    if not used or not asked:
        return None
    peak = max(used)
    too_small = [
        hold.asked.get(key, attempt.asked.get(key, 0.0))
        for attempt in attempts
        for hold in attempt.holds
        if hold.code in RESOURCE_HOLDS and hold.subcode == subcode
    ]
    if too_small:
        good = [attempt.asked.get(key, 0.0) for attempt in attempts if attempt.exit_code == 0]
        enough = max((size for size in good if size > max(too_small)), default=None)
        need = max(peak, max(asked)) * CUT_OFF if enough is None else max(peak, enough)
    else:
        need = peak * HEAD_ROOM
    return Quantity(max(asked), peak, math.ceil(need / STEP) * STEP)


def study_lines(regions: Mapping[str, Sizes]) -> list[str]:
    """Return the lines of study.yaml for these regions, by name: `job` for all, and overrides where one needs more.

    >>> size = lambda mb: Sizes(Quantity(4096.0, mb / 1.25, mb), None, None)
    >>> study_lines({"Malta": size(512.0), "Germany": size(512.0), "United Kingdom": size(2048.0)})
    ['job: {memory: 512MB}', 'regions:', '  - {name: "United Kingdom", job: {memory: 2048MB}}']
    """
    common: dict[str, float] = {}
    own: dict[str, dict[str, float]] = {}
    for resource in SIZES:
        needs = {name: size.suggested for name, sizes in regions.items() if (size := getattr(sizes, resource))}
        if not needs:
            continue
        limit = OTHERS * statistics.median(needs.values())
        common[resource] = max(need for need in needs.values() if need <= limit)
        for name, need in needs.items():
            if need > limit:
                own.setdefault(name, {})[resource] = need
    lines = [f"job: {_job(common)}"] if common else []
    return (
        lines
        + ["regions:"] * bool(own)
        + [f"  - {{name: {_text(name)}, job: {_job(job)}}}" for name, job in own.items()]
    )


def _job(sizes: Mapping[str, float]) -> str:
    return "{" + ", ".join(f"{name}: {size:.0f}MB" for name, size in sizes.items()) + "}"


def _text(name: str) -> str:
    """Return a name as a double-quoted YAML text."""
    return '"' + "".join(map(_character, name)) + '"'


def _character(one: str) -> str:
    if one in '"\\':
        return f"\\{one}"
    return one if one.isprintable() else f"\\U{ord(one):08x}"


def find_largest(sizes: Iterable[Sizes]) -> float | None:
    """Return the most GPU memory that any job used, in MB."""
    return max((one.gpu_memory for one in sizes if one.gpu_memory is not None), default=None)
