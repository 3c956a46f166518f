"""What a pool offers and what it does, for people and as JSON."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass

from regiondag.errors import PoolError
from regiondag.pool.pool import ROOT, Pool, read_state

# In this order in the lines that parse_slot reads.
SLOT_ATTRIBUTES = (
    *("Name", "SlotType", "State", "NumDynamicSlots"),
    *("TotalSlotCpus", "TotalSlotMemory", "TotalSlotGPUs", "HAS_GPU"),
)
JOB_STATUS = {1: "idle", 2: "running", 3: "removed", 4: "completed", 5: "held", 6: "transferring", 7: "suspended"}
COUNTED = ("idle", "running", "held")  # what people act on


@dataclass(frozen=True)
class PoolSlot:
    """One slot as the collector knows it; a partitionable one counts the claims carved from it."""

    name: str
    partitionable: bool
    claims: int
    cpus: int
    memory_mb: int
    gpus: int
    has_gpu: bool


@dataclass(frozen=True)
class PoolStatus:
    """A pool at one moment."""

    name: str
    kind: str
    version: str
    address: str
    since: float | None
    simulated_gpus: int
    slots: tuple[PoolSlot, ...]
    jobs: dict[str, int]


def look(pool: Pool) -> PoolStatus:
    """Ask the pool's collector and schedd."""
    state = read_state(pool.name) if pool.kind == "embedded" else None
    slots = map(parse_slot, _output(pool, "condor_status", "-af:t", *SLOT_ATTRIBUTES).splitlines())
    jobs = _output(pool, "condor_q", "-allusers", "-af", "JobStatus").split()
    return PoolStatus(
        name=pool.name,
        kind=pool.kind,
        version=".".join(map(str, pool.version)),
        address=f"127.0.0.1:{state.port}" if state else _output(pool, "condor_config_val", "COLLECTOR_HOST").strip(),
        since=state.since if state else None,
        simulated_gpus=pool.simulated_gpus,
        slots=tuple(slot for slot in slots if slot is not None),
        jobs=count_jobs(jobs),
    )


def parse_slot(line: str) -> PoolSlot | None:
    """Return the slot of one line of attributes, None for one that was carved from a partitionable slot."""
    name, kind, state, claims, cpus, memory, gpus, has_gpu = line.split("\t")
    if kind == "Dynamic":
        return None
    return PoolSlot(
        name=name,
        partitionable=kind == "Partitionable",
        claims=_number(claims) if kind == "Partitionable" else int(state == "Claimed"),
        cpus=_number(cpus),
        memory_mb=_number(memory),
        gpus=_number(gpus),
        has_gpu=has_gpu == "true",
    )


def _number(text: str) -> int:
    """Return the number of an attribute that may be `undefined`."""
    return int(float(text)) if text != "undefined" else 0


def count_jobs(states: list[str]) -> dict[str, int]:
    """Count jobs, given by HTCondor's numbers, by the statuses people act on."""
    return {name: states.count(str(number)) for number, name in JOB_STATUS.items() if name in COUNTED}


def as_json(status: PoolStatus) -> str:
    """Return one JSON object."""
    return json.dumps(dataclasses.asdict(status), indent=1)


def as_text(status: PoolStatus) -> str:
    """Return a few lines for people."""
    since = f", up since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(status.since))}" if status.since else ""
    lines = [f"pool {status.name} ({status.kind}): HTCondor {status.version} at {status.address}{since}"]
    for slot in status.slots:
        lines.append(f"  {slot.name:<20} {slot.cpus} CPUs, {slot.memory_mb} MB, {_gpus(slot, status)}, {_claims(slot)}")
    if not status.slots:
        lines.append("  no slots: no job can run (regiondag pool logs startd)")
    lines.append("jobs: " + ", ".join(f"{count} {name}" for name, count in status.jobs.items()))
    return "\n".join(lines)


def _gpus(slot: PoolSlot, status: PoolStatus) -> str:
    if not slot.gpus:
        return "no GPU"
    kind = "simulated " if status.simulated_gpus else ""
    return f"{slot.gpus} {kind}GPU{'s' if slot.gpus > 1 else ''}"


def _claims(slot: PoolSlot) -> str:
    if slot.partitionable:
        return f"{slot.claims} claims" if slot.claims else "unclaimed"
    return "claimed" if slot.claims else "unclaimed"


def _output(pool: Pool, *argv: str) -> str:
    done = pool.run(argv, cwd=ROOT, capture_output=True)
    if done.returncode != 0:
        raise PoolError(
            f"the pool {pool.name!r} runs but {argv[0]} failed: {done.stderr.strip() or done.stdout.strip()}\n"
            "see: regiondag pool logs master"
        )
    return done.stdout
