"""What `scale --watch` keeps in mind from look to look, so that it does not pay for ever for what never works. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from regiondag.fleet.demand import GpuRequest, Worker, WorkerSize, fits
from regiondag.fleet.ec2 import Instance
from regiondag.fleet.scale import console

IN_A_ROW = 2  # one machine may be broken (a failed self-test refuses every job); two say that it is not the machine


@dataclass(frozen=True, slots=True)
class Memory:
    """What the looks until now have shown."""

    joined: frozenset[str] = frozenset()  # instances that have been in the pool
    waiting: tuple[str, ...] = ()  # instances that run and have not been, the oldest first
    gone: tuple[str, ...] = ()  # instances that ended without having been, since the last one joined
    refusals: Mapping[str, frozenset[str]] = field(default_factory=dict)  # idle job: the workers that refused it


@dataclass(frozen=True, slots=True)
class Advice:
    """What follows from it for this look."""

    requests: tuple[GpuRequest, ...]  # those that are worth a worker, or that a worker which runs refuses
    halt: bool  # start nothing, whatever is wanted
    notes: tuple[str, ...]


def remember(
    before: Memory, alive: Sequence[Instance], workers: Mapping[str, Worker], requests: Sequence[GpuRequest]
) -> Memory:
    """Return what is known after one more look. An instance that was asked to drain has not failed to join."""
    joined = before.joined | workers.keys()
    here = {one.id for one in alive}
    no_matter = joined | {one.id for one in alive if one.draining}
    known = dict.fromkeys((*before.gone, *before.waiting, *(one.id for one in alive)))
    never = [one for one in known if one not in no_matter]
    gone = () if joined > before.joined else tuple(one for one in never if one not in here)
    waiting = tuple(one for one in never if one in here)
    return Memory(joined, waiting, gone, _refusals(before.refusals, workers, requests))


def _refusals(
    before: Mapping[str, frozenset[str]], workers: Mapping[str, Worker], requests: Sequence[GpuRequest]
) -> dict[str, frozenset[str]]:
    asked = frozenset(worker.instance for worker in workers.values() if not worker.draining)
    if not asked:  # nobody was there to refuse or accept; jobs that have left the queue are forgotten
        return {request.job: before[request.job] for request in requests if request.job in before}
    return {request.job: before.get(request.job, frozenset()) | asked for request in requests if request.refused}


def advise(memory: Memory, requests: Sequence[GpuRequest], size: WorkerSize, region: str) -> Advice:
    """Return which requests are worth a worker, and whether workers are worth starting at all."""

    def is_given_up(request: GpuRequest) -> bool:
        refused_by = memory.refusals.get(request.job, frozenset())
        return not request.refused and fits(request, size) and len(refused_by) >= IN_A_ROW

    worth = tuple(request for request in requests if not is_given_up(request))
    halt = len(memory.gone) >= IN_A_ROW
    notes = []
    if halt:
        notes.append(
            f"the last {len(memory.gone)} workers that ended had never joined the pool, so no more are started until "
            f"one joins: {console(region, memory.gone[-1])}; correct it, then start the watch again"
        )
    if len(worth) < len(requests):
        notes.append(
            f"{len(requests) - len(worth)} idle GPU jobs were refused by {IN_A_ROW} or more workers that have ended "
            "since, so none is started for them: correct the jobs and submit them anew, or the fleet and start the "
            "watch again"
        )
    return Advice(worth, halt, tuple(notes))
