"""What became of a run's jobs, try by try, as HTCondor's event logs tell it. Data and pure functions only.

A node's job may be tried more than once (DAGMan's RETRY, a DAG submitted again): each try is a job of its own. A try
may start on machine after machine: each start is a leg, and ends with the job's own end, an eviction, a hold, a
checkpoint or the loss of its machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from regiondag.run.layout import NodeName

# HTCondor's codes of holds by the worker's or the manager's rules, and its own; and their subcodes.
RESOURCE_HOLDS = frozenset({21, 26, 34})
NO_MEMORY, NO_DISK = 102, 104


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of Unix time; `end` is None while it lasts."""

    start: float
    end: float | None = None

    def seconds(self, now: float) -> float:
        """Return how long it lasted, up to `now` where it still does."""
        return max((now if self.end is None else self.end) - self.start, 0.0)


@dataclass(frozen=True, slots=True)
class Leg:
    """One start of a job on a machine, from the match to its end there.

    `ending` is done, evicted, held, checkpointed, lost (machine or starter vanished), removed, or empty while it runs.
    `kept` says whether what it had trained came back: a checkpoint, or the result.
    """

    machine: str  # host name
    slot: str  # such as slot1_2@host
    running: Span  # from EXECUTE to its end
    transfer_in: Span | None = None
    transfer_out: Span | None = None
    ending: str = ""
    reason: str = ""
    kept: bool = True
    facts: Mapping[str, str] = field(default_factory=dict)  # of the machine: GPU, driver, instance type, life cycle
    gpus: float | None = None  # that its slot had; None where the log does not say it


@dataclass(frozen=True, slots=True)
class Hold:
    """A time in which the job was held, with HTCondor's codes and its reason."""

    held: Span
    code: int
    subcode: int
    reason: str
    asked: Mapping[str, float] = field(default_factory=dict)  # what the job had asked for by then, see `Attempt`


def is_too_small(code: int, subcode: int) -> bool:
    """Return whether a hold, or an eviction, with these codes is for memory or disk."""
    return code in RESOURCE_HOLDS and subcode in (NO_MEMORY, NO_DISK)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One job of a node, from its submission until it left the queue."""

    node: NodeName
    job: str  # cluster.proc
    queued: Span  # from SUBMIT to TERMINATED or ABORTED
    legs: tuple[Leg, ...] = ()
    holds: tuple[Hold, ...] = ()
    exit_code: int | None = None
    signal: int | None = None
    removed: str = ""  # the reason, if it was removed
    asked: Mapping[str, float] = field(default_factory=dict)  # cpus, gpus, memory_mb, disk_mb
    used: Mapping[str, float] = field(default_factory=dict)  # the same, as HTCondor measured them, and gpu_memory_mb


def gpus_of(attempt: Attempt, leg: Leg) -> float:
    """Return how many GPUs a leg had; a job that makes do with fewer may have had another number in each."""
    return attempt.asked.get("gpus", 0.0) if leg.gpus is None else leg.gpus


def last_machines(attempts: Iterable[Attempt]) -> dict[NodeName, str]:
    """Return the machine on which each node's job was last."""
    return {attempt.node: leg.machine for attempt in attempts for leg in attempt.legs}
