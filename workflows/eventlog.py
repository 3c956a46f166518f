"""Read what became of a run's jobs from HTCondor's event logs: DAGMan's own, and each region's `jobs.log`.

DAGMan's `*.nodes.log` leaves out transfers and lost connections; `jobs.log`, which the submit files name, has all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from workflows.attempts import Attempt, Hold, Leg, Span
from workflows.eventtext import (
    Event,
    attributes_of,
    brought_back,
    code_of,
    ending_of,
    host_of,
    memory_of,
    node_of,
    parse_events,
    reason_of,
    resources_of,
    slot_of,
)
from workflows.names import JOBS_LOG, STUDY_DAG, NodeName, RunFolder, dagman_file, parse_node

SUBMIT, EXECUTE, EVICTED, TERMINATED, IMAGE_SIZE, SHADOW_EXCEPTION, ABORTED = 0, 1, 4, 5, 6, 7, 9
HELD, RELEASED, DISCONNECTED, RECONNECTED, RECONNECT_FAILED, FILE_TRANSFER = 12, 13, 22, 23, 24, 40

KB_IN_MB = 1024.0

# What is kept of a machine's attributes, by the first name that it has.
FACTS = {
    "gpu": ("GPUs_DeviceName", "CUDADeviceName", "DeviceName"),
    "driver": ("GPUs_DriverVersion", "CUDADriverVersion"),
    "instance": ("EC2InstanceID",),
    "instance_type": ("EC2InstanceType",),
    "life_cycle": ("EC2InstanceLifeCycle",),
}

Key = tuple[NodeName, str, float]  # node, job and submission: another pool may number its jobs alike


def read_attempts(run: RunFolder) -> list[Attempt]:
    """Return all tries of all nodes, in the order of their submission; none where no DAG was ever submitted."""
    regions = run.path / "regions"
    shorter = [dagman_file(run.path / STUDY_DAG, "nodes.log"), *sorted(regions.glob("*/*.nodes.log"))]
    found: dict[Key, Attempt] = {}
    for log in (*shorter, *sorted(regions.glob(f"*/{JOBS_LOG}"))):  # the latter know more, and win
        for attempt in attempts_of(parse_events(_read(log))):
            found[attempt.node, attempt.job, attempt.queued.start] = attempt
    return sorted(found.values(), key=lambda attempt: attempt.queued.start)


def _read(log: Path) -> str:
    try:
        return log.read_bytes().decode("utf-8", errors="replace")
    except OSError:  # not submitted, or never alone
        return ""


def attempts_of(events: Iterable[Event]) -> list[Attempt]:
    """Fold the events of one log; jobs that are no node's of a study are left out."""
    jobs: dict[str, _Job] = {}
    return [job.attempt() for job in _fold(events, jobs)]


def _fold(events: Iterable[Event], jobs: dict[str, _Job]) -> Iterator[_Job]:
    for event in events:
        if event.code == SUBMIT:
            if event.job in jobs:
                yield jobs.pop(event.job)
            try:
                jobs[event.job] = _Job(parse_node(node_of(event)), event.job, Span(event.time))
            except ValueError:
                continue
        elif event.job in jobs:
            jobs[event.job].take(event)
    yield from jobs.values()


@dataclass(slots=True)
class _Job:
    """One job, while its events are read."""

    node: NodeName
    job: str
    queued: Span
    legs: list[Leg] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    exit_code: int | None = None
    signal: int | None = None
    removed: str = ""
    asked: dict[str, float] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)
    transfer_in: Span | None = None  # of the leg that is to come
    disconnected: float | None = None
    last: tuple[int, float] = (SUBMIT, 0.0)  # code and time of the event before

    def take(self, event: Event) -> None:
        """Take one more event in."""
        step = _STEPS.get(event.code)
        if step is not None:
            step(self, event)
            self.last = (event.code, event.time)

    def attempt(self) -> Attempt:
        """Return what is known of the job."""
        return Attempt(
            self.node,
            self.job,
            self.queued,
            tuple(self.legs),
            tuple(self.holds),
            self.exit_code,
            self.signal,
            self.removed,
            self.asked,
            self.used,
        )

    @property
    def running(self) -> Leg | None:
        """The leg that has no end yet."""
        return self.legs[-1] if self.legs and self.legs[-1].running.end is None else None

    def executes(self, event: Event) -> None:
        """A leg begins; one that is still open has ended without a word, when the machine was last heard of."""
        self.end_leg("lost", self.last[1], "its end was not logged", kept=False)
        facts = _facts(attributes_of(event))
        leg = Leg(host_of(event), slot_of(event), Span(event.time), self.transfer_in, facts=facts)
        self.legs.append(leg)
        self.transfer_in, self.disconnected = None, None

    def end_leg(self, ending: str, time: float, reason: str = "", *, kept: bool = True) -> None:
        """Close the leg that is open, if there is one."""
        leg = self.running
        if leg is None:
            return
        self.legs[-1] = replace(
            leg,
            running=replace(leg.running, end=time),
            transfer_in=_ended(leg.transfer_in, time),
            transfer_out=_ended(leg.transfer_out, time),
            ending=ending,
            reason=reason,
            kept=kept,
        )

    def evicted(self, event: Event) -> None:
        """A leg ends before its job does."""
        self.measure(event)
        self.end_leg("evicted", event.time, reason_of(event), kept=brought_back(event))

    def relabel(self, ending: str, reason: str, time: float) -> None:
        """Say why the leg ended that has just been evicted: HTCondor logs the eviction first, then its cause."""
        self.end_leg(ending, time, reason, kept=False)
        if self.legs and self.last[0] == EVICTED and self.legs[-1].ending == "evicted":
            self.legs[-1] = replace(self.legs[-1], ending=ending, reason=self.legs[-1].reason or reason)

    def held(self, event: Event) -> None:
        """A hold begins."""
        reason = reason_of(event)
        self.relabel("held", reason, event.time)
        self.release(event)
        self.holds.append(Hold(Span(event.time), *code_of(event), reason))

    def release(self, event: Event) -> None:
        """A hold ends: by a release, or by the job's removal."""
        if self.holds and self.holds[-1].held.end is None:
            self.holds[-1] = replace(self.holds[-1], held=replace(self.holds[-1].held, end=event.time))

    def terminated(self, event: Event) -> None:
        """The job has ended by itself."""
        self.measure(event)
        self.exit_code, self.signal = ending_of(event)
        self.end_leg("done", event.time)
        self.queued = replace(self.queued, end=event.time)

    def aborted(self, event: Event) -> None:
        """The job was removed."""
        self.removed = reason_of(event) or "removed"
        self.relabel("removed", self.removed, event.time)
        self.release(event)
        self.queued = replace(self.queued, end=event.time)

    def lost(self, event: Event) -> None:
        """The machine, or what watched the job there, has gone; it was there until the connection was lost."""
        self.measure(event)
        until = event.time if self.disconnected is None else self.disconnected
        self.end_leg("lost", until, reason_of(event) or event.title, kept=brought_back(event))

    def connection(self, event: Event) -> None:
        """The connection to the machine is lost, or there again."""
        self.disconnected = event.time if event.code == DISCONNECTED else None

    def transfers(self, event: Event) -> None:
        """A transfer begins or ends; waiting for its turn is part of neither."""
        words, leg = event.title.split(), self.running
        if words[:1] == ["Started"]:
            if "input" in words:
                self.transfer_in = Span(event.time)
            elif leg is not None:
                self.legs[-1] = replace(leg, transfer_out=Span(event.time))
        elif words[:1] == ["Finished"]:
            if "input" not in words:
                if leg is not None:
                    self.legs[-1] = replace(leg, transfer_out=_ended(leg.transfer_out, event.time))
            elif leg is None:
                self.transfer_in = _ended(self.transfer_in, event.time)
            else:  # the start is logged before the end of the transfer, at times
                self.legs[-1] = replace(leg, transfer_in=_ended(leg.transfer_in, event.time))

    def image_size(self, event: Event) -> None:
        """The job's memory was measured."""
        memory = memory_of(event)
        if memory is not None:
            self.used["memory_mb"] = max(memory, self.used.get("memory_mb", 0.0))

    def measure(self, event: Event) -> None:
        """Take in what a leg used: the most of all legs counts."""
        resources = resources_of(event)
        for name, known, factor in _MEASURED:
            found = resources.get(known)
            if found is None:
                continue
            if found.asked is not None and name != "gpu_memory_mb":
                self.asked[name] = found.asked / factor
            if found.used is not None:
                self.used[name] = max(found.used / factor, self.used.get(name, 0.0))


_STEPS = {
    EXECUTE: _Job.executes,
    EVICTED: _Job.evicted,
    TERMINATED: _Job.terminated,
    IMAGE_SIZE: _Job.image_size,
    SHADOW_EXCEPTION: _Job.lost,
    ABORTED: _Job.aborted,
    HELD: _Job.held,
    RELEASED: _Job.release,
    DISCONNECTED: _Job.connection,
    RECONNECTED: _Job.connection,
    RECONNECT_FAILED: _Job.lost,
    FILE_TRANSFER: _Job.transfers,
}
_MEASURED = (
    ("cpus", "cpus", 1.0),
    ("gpus", "gpus", 1.0),
    ("memory_mb", "memory", 1.0),
    ("disk_mb", "disk", KB_IN_MB),
    ("gpu_memory_mb", "gpusmemory", 1.0),
)


def _ended(span: Span | None, time: float) -> Span | None:
    """Return a span with an end, unless it has one or there is none."""
    return replace(span, end=time) if span is not None and span.end is None else span


def _facts(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return what is known of the machine, in our own words."""
    chosen = {fact: [attributes[name] for name in names if attributes.get(name)] for fact, names in FACTS.items()}
    return {fact: values[0] for fact, values in chosen.items() if values}
