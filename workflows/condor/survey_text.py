"""A survey of a pool for people: a line for each question, and what a study needs that the pool lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from regiondag.condor.access_point import AccessPoint, say_intervals
from regiondag.condor.survey import NEEDED_PYTHON, GpuKind, Survey, SystemKind
from regiondag.util.text import list_some, shorten

SHOWN = 8
SIF = (
    "no job with container_image = X.sif matches {count} of them: Debian's HTCondor lacks what it finds HasSIF out by; "
    "their administrator can set HasSIF = True and STARTD_ATTRS = $(STARTD_ATTRS) HasSIF; trainer.container needs none"
)
DEFAULT_OF_SCHEDULER = "TotalSchedulerJobsRunning < 500"  # START_SCHEDULER_UNIVERSE, as nobody has changed it


def describe(found: Survey, access: AccessPoint) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for each of them."""
    yield "pool", f"{found.pool}: HTCondor {found.access_point} here, {found.collector or '?'} of the collector"
    yield "machines", _machines(found)
    if found.machines:
        yield "HTCondor", _counts(found.startds)
        yield "systems", "; ".join(map(_system, found.systems))
        yield "Python", _pythons(found)
        yield "GPUs", "; ".join(map(_gpu, found.gpus[:SHOWN])) or "none"
        for machine, why in found.sick_gpus.items():
            yield "sick GPUs", f"{machine} does not offer {shorten(why, 200)}"
        yield "URLs", _counts(found.plugins) or "no machine gets files by their URLs"
        yield "containers", _containers(found)
    yield "progress", _progress(access)
    limits = {name: value for name, value in access.limits.items() if value != DEFAULT_OF_SCHEDULER}
    yield "limits", "; ".join(f"{name} = {shorten(value, 120)}" for name, value in limits.items()) or "none"
    for rule in access.rules:
        text = f"{rule.name}: {rule.expression}" + (f": {reason}" if (reason := rule.reason.strip('"')) else "")
        yield ("warns" if rule.warns else "refuses"), f"jobs that do not meet {text}"
    if access.transforms:
        yield "changes", f"jobs as they come: {list_some(access.transforms, SHOWN)}"


def _machines(found: Survey) -> str:
    if not found.machines:
        return "none now; a pool that starts machines as jobs wait for them says nothing of them before"
    slots = f"{found.slots:,} slots" if found.slots > 1 else "1 slot"
    return (
        f"{found.machines:,}, with {slots} ({found.partitionable:,} partitionable): {found.cpus:,} cores, "
        f"{_gb(found.memory_mb)} memory; most in one slot: {found.largest_cpus:,} cores, "
        f"{_gb(found.largest_memory_mb)} memory, {_gb(found.largest_disk_mb)} disk"
    )


def _system(kind: SystemKind) -> str:
    return f"{kind.name} on {kind.machines:,}"


def _pythons(found: Survey) -> str:
    parts = [f"{kind.python} comes with {kind.name.split(' ')[0]}" for kind in found.systems if kind.python]
    old = [kind for kind in found.systems if is_old(kind)]
    if old:
        own = f"so one of their own on {sum_of(old):,} machines, or job.python: bundle"
        parts.append(f"jobs need {'.'.join(map(str, NEEDED_PYTHON))}, {own}")
    parts += [f"{name} = {value}" for name, value in found.pythons.items()]
    return "; ".join(dict.fromkeys(parts)) or "ads do not say"


def is_old(kind: SystemKind) -> bool:
    """Whether the Python that a system brings cannot run jobs."""
    return bool(kind.python) and tuple(map(int, kind.python.split("."))) < NEEDED_PYTHON


def sum_of(kinds: Sequence[SystemKind]) -> int:
    """Return how many machines they are."""
    return sum(kind.machines for kind in kinds)


def _gpu(kind: GpuKind) -> str:
    facts = [f"capability {kind.capability}" * bool(kind.capability), _gb(kind.memory_mb) * bool(kind.memory_mb)]
    facts += [f"CUDA {kind.cuda}" * bool(kind.cuda), "simulated" * kind.simulated]
    machines = "1 machine" if kind.machines == 1 else f"{kind.machines:,} machines"
    return f"{kind.gpus:,} {kind.name} on {machines} ({', '.join(filter(None, facts)) or 'no more is said'})"


def _containers(found: Survey) -> str:
    text = _counts(found.containers) or "no machine runs them"
    return text + (f"; {SIF.format(count=f'{found.without_sif:,}')}" if found.without_sif else "")


def _progress(access: AccessPoint) -> str:
    if None in access.intervals.values():
        return "the two intervals are not known"
    of = f" ({access.asked_worker} says so)" if access.asked_worker else " (as set here; a worker was not asked)"
    said = ", ".join(f"{name} = {seconds}" for name, seconds in access.intervals.items())
    return f"{said}{of}; {say_intervals([str(s) for s in access.intervals.values()]) or 'quick enough'}"


def _counts(counts: Mapping[str, int]) -> str:
    """Return names with the numbers of machines, those of one number together."""
    together = {count: [name for name in sorted(counts) if counts[name] == count] for count in counts.values()}
    return "; ".join(
        f"{list_some(together[count], 2 * SHOWN)} on {count:,}" for count in sorted(together, reverse=True)
    )


def _gb(megabytes: int) -> str:
    return f"{megabytes / 1024:,.0f} GB" if megabytes >= 10240 else f"{megabytes:,} MB"
