"""Folds the events of one job into what became of it: its starts, holds, transfers, end and what it used."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from regiondag.condor.events.attempts import Attempt, Hold, Span, is_too_small
from regiondag.condor.events.leg import OpenLeg, end_span, machine_facts
from regiondag.condor.events.text import (
    Event,
    attributes_of,
    code_of,
    ending_of,
    has_saved,
    host_of,
    memory_of,
    reason_of,
    resources_of,
    slot_of,
)
from regiondag.run.layout import NodeName

SUBMIT, EXECUTE, EVICTED, TERMINATED, IMAGE_SIZE, SHADOW_EXCEPTION, ABORTED = 0, 1, 4, 5, 6, 7, 9
HELD, RELEASED, POST_ENDED, DISCONNECTED, RECONNECTED, RECONNECT_FAILED, FILE_TRANSFER = 12, 13, 16, 22, 23, 24, 40

KB_IN_MB = 1024.0
# Seconds between the end of a job's last transfer and the job's own end, or an eviction and its cause; logs have whole
# seconds.
AT_ONCE = 2.0


@dataclass(slots=True)
class JobFold:
    """One job, while its events are read."""

    node: NodeName
    job: str
    submitted: float
    ended: float | None = None
    starts: list[OpenLeg] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    exit_code: int | None = None
    signal: int | None = None
    removed: str = ""
    asked: dict[str, float] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)
    transfer_in: list[float] = field(default_factory=list)  # of the leg that is to come
    transfers_known: bool = False
    disconnected: float | None = None
    heard: float = 0.0  # time of the event before
    evicted_at: float | None = None  # if the event before was an eviction

    def take(self, event: Event) -> None:
        """Take one more event in."""
        step = _STEPS.get(event.code)
        if step is not None:
            step(self, event)
            self.heard = event.time
            if event.code != IMAGE_SIZE:  # these come at any time, between an eviction and its cause, too
                self.evicted_at = event.time if event.code == EVICTED else None

    def attempt(self) -> Attempt:
        """Return what is known of the job."""
        return Attempt(
            self.node,
            self.job,
            Span(self.submitted, self.ended),
            tuple(start.leg() for start in self.starts),
            tuple(self.holds),
            self.exit_code,
            self.signal,
            self.removed,
            self.asked,
            self.used,
        )

    @property
    def running(self) -> OpenLeg | None:
        """The leg that has no end yet."""
        return self.starts[-1] if self.starts and self.starts[-1].end is None else None

    def on_execute(self, event: Event) -> None:
        """A leg begins; one that is still open has ended without a word, when the machine was last heard of."""
        self._end_unlogged()
        slot = slot_of(event)
        attributes = attributes_of(event)
        facts = machine_facts(attributes)
        gpus = None
        if re.fullmatch(r"\d{1,18}", attributes.get("GPUs", "")):  # what was asked for is only said when a leg ends
            gpus = float(attributes["GPUs"])
            self.asked.setdefault("gpus", gpus)
        self.starts.append(OpenLeg(host_of(event, slot), slot, facts, event.time, gpus, self.transfer_in))
        self.transfer_in, self.disconnected = [], None

    def split_at_checkpoint(self, time: float) -> None:
        """End the leg where files were sent and the job went on: HTCondor starts it again in its place, unlogged."""
        leg = self.running
        if leg is not None and len(leg.transfer_out) == 2 and time - leg.transfer_out[1] > AT_ONCE:
            leg.close("checkpointed", leg.transfer_out[1])
            self.starts.append(OpenLeg(leg.machine, leg.slot, leg.facts, leg.transfer_out[1], leg.gpus))

    def end_early(self, ending: str, time: float, event: Event) -> None:
        """A leg ends before its job does; what it had done is kept if files came back at its end."""
        self.measure(event)
        self.split_at_checkpoint(time)
        leg = self.running
        if leg is not None:
            came_back = has_saved(event) and (len(leg.transfer_out) == 2 or not self.transfers_known)
            leg.close(ending, time, reason_of(event), kept=came_back)

    def on_evicted(self, event: Event) -> None:
        """The machine wants its slot back, or the job is about to be held or removed.

        Since HTCondor 25.2 a job that may ask for more (retry_request_memory) goes back to the queue without a hold.
        """
        code, subcode = code_of(event)
        too_small = is_too_small(code, subcode)
        self.end_early("held" if too_small else "evicted", event.time, event)
        if too_small:
            self._hold(Span(event.time, event.time), code, subcode, reason_of(event))

    def on_lost(self, event: Event) -> None:
        """The machine, or what watched the job there, has gone; it was there until the connection was lost."""
        self.end_early("lost", event.time if self.disconnected is None else self.disconnected, event)

    def relabel(self, ending: str, reason: str, time: float) -> None:
        """Say why the leg ended that has just been evicted: HTCondor logs the eviction first, then its cause."""
        leg = self.starts[-1] if self.starts else None
        if leg is not None and leg.end is None:
            leg.close(ending, time, reason, kept=False)
        elif leg is not None and leg.ending == "evicted" and self._just_evicted(time):
            leg.ending, leg.reason = ending, leg.reason or reason

    def _just_evicted(self, time: float) -> bool:
        return self.evicted_at is not None and time - self.evicted_at <= AT_ONCE

    def on_held(self, event: Event) -> None:
        """A hold begins."""
        reason = reason_of(event)
        self.relabel("held", reason, event.time)
        self.on_released(event)
        code, subcode = code_of(event)
        if is_too_small(code, subcode) and self._just_evicted(event.time) and self._held_by(code, subcode):
            self.holds.pop()  # the eviction before had been taken for all there is
        self._hold(Span(event.time), code, subcode, reason)

    def _held_by(self, code: int, subcode: int) -> bool:
        return bool(self.holds) and (self.holds[-1].code, self.holds[-1].subcode) == (code, subcode)

    def _hold(self, span: Span, code: int, subcode: int, reason: str) -> None:
        self.holds.append(Hold(span, code, subcode, reason, dict(self.asked)))

    def on_released(self, event: Event) -> None:
        """A hold ends: by a release, or by the job's removal."""
        self._end_hold(event.time)

    def _end_hold(self, time: float) -> None:
        if self.holds and self.holds[-1].held.end is None:
            self.holds[-1] = replace(self.holds[-1], held=replace(self.holds[-1].held, end=time))

    def on_terminated(self, event: Event) -> None:
        """The job has ended by itself."""
        self.measure(event)
        self.exit_code, self.signal = ending_of(event)
        self.split_at_checkpoint(event.time)
        if self.running is not None:
            self.running.close("done", event.time)
        self.ended = event.time

    def on_aborted(self, event: Event) -> None:
        """The job was removed."""
        self.removed = reason_of(event) or "removed"
        self.relabel("removed", self.removed, event.time)
        self.on_released(event)
        self.ended = event.time

    def give_up(self, time: float) -> None:
        """The node has another job now: if this one has not ended, its queue was lost, and nothing will tell of it."""
        if self.ended is not None:
            return
        self._end_unlogged()
        self._end_hold(time)
        self.ended = time

    def _end_unlogged(self) -> None:
        if self.running is not None:
            self.running.close("lost", self.heard, "its end was not logged", kept=False)

    def on_connection(self, event: Event) -> None:
        """The connection to the machine is lost, or there again."""
        self.disconnected = event.time if event.code == DISCONNECTED else None

    def on_transfer(self, event: Event) -> None:
        """A transfer begins or ends; waiting for its turn is part of neither."""
        self.transfers_known = True
        begins, inputs = event.text.startswith("Started"), " input " in event.title
        if begins and inputs:
            self.transfer_in = [event.time]
        elif begins:
            self.split_at_checkpoint(event.time)
            if self.running is not None:
                self.running.transfer_out = [event.time]
        elif event.text.startswith("Finished"):
            leg = self.running
            if leg is not None:  # the start of a job is logged before the end of its transfer, at times
                end_span(leg.transfer_in if inputs else leg.transfer_out, event.time)
            elif inputs:
                end_span(self.transfer_in, event.time)

    def on_image_size(self, event: Event) -> None:
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
    EXECUTE: JobFold.on_execute,
    EVICTED: JobFold.on_evicted,
    TERMINATED: JobFold.on_terminated,
    IMAGE_SIZE: JobFold.on_image_size,
    SHADOW_EXCEPTION: JobFold.on_lost,
    ABORTED: JobFold.on_aborted,
    HELD: JobFold.on_held,
    RELEASED: JobFold.on_released,
    DISCONNECTED: JobFold.on_connection,
    RECONNECTED: JobFold.on_connection,
    RECONNECT_FAILED: JobFold.on_lost,
    FILE_TRANSFER: JobFold.on_transfer,
}
_MEASURED = (
    ("cpus", "cpus", 1.0),
    ("gpus", "gpus", 1.0),
    ("memory_mb", "memory", 1.0),
    ("disk_mb", "disk", KB_IN_MB),
    ("gpu_memory_mb", "gpusmemory", 1.0),
)
