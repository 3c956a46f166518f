"""Decide how many workers there should be, from the queue, the pool and EC2. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regiondag.fleet.checks import Ground
from regiondag.fleet.config import ON_DEMAND, Fleet
from regiondag.fleet.demand import GpuRequest, Worker, count_wanted, fits
from regiondag.fleet.ec2 import Instance

DEFAULT_JOIN_MINUTES = 15  # where fleet.yaml gives workers all the time they want


@dataclass(frozen=True, slots=True)
class Decision:
    """What runs, what is wanted, and what a person should know."""

    running: int
    wanted: int
    summary: str
    notes: tuple[str, ...]

    @property
    def missing(self) -> int:
        """How many workers to start."""
        return max(0, self.wanted - self.running)


@dataclass(frozen=True, slots=True)
class Wish:
    """Workers to start."""

    count: int
    on_demand: int = 0  # so many of them are bought on demand, before the others and whatever `purchase` says


def wish(fleet: Fleet, alive: Sequence[Instance], count: int) -> Wish:
    """Return `count` workers, of them so many on demand as `workers.on_demand` lacks; one that drains is none."""
    there = sum(one.purchase == ON_DEMAND and not one.draining for one in alive)
    return Wish(count, min(count, max(0, fleet.on_demand - there)))


def console(region: str, instance: str) -> str:
    """Return how to learn why a worker did not join; the manager has neither the AWS CLI nor these permissions."""
    return (
        "its console, read on a machine with the AWS CLI and your own credentials, says why: "
        f"aws ec2 get-console-output --latest --output text --region {region} --instance-id {instance} | grep regiondag"
    )


def has_not_joined(instance: Instance, workers: Mapping[str, Worker], join_minutes: int, now: float) -> bool:
    """Return whether an instance should have joined the pool by now, and has not."""
    minutes = join_minutes or DEFAULT_JOIN_MINUTES
    return instance.id not in workers and now - instance.launched > 60 * minutes


def decide(
    fleet: Fleet,
    ground: Ground,
    alive: Sequence[Instance],
    workers: Mapping[str, Worker],
    requests: Sequence[GpuRequest],
    now: float,
) -> Decision:
    """Return how many workers the idle jobs ask for.

    A worker that drains takes no more jobs, and one that should have joined long ago never will: neither can serve
    an idle job, but both run and cost, so they count towards `workers.max`.
    """
    size = ground.size
    fitting = Counter(request.gpus for request in requests if fits(request, size) and not request.refused)
    free, booting, lost, draining = [], 0, [], 0
    for instance in alive:
        worker = workers.get(instance.id)
        if instance.draining or (worker and worker.draining):
            draining += 1
        elif worker:
            free.append(worker.free_gpus)
        elif has_not_joined(instance, workers, fleet.join_minutes, now):
            lost.append(instance.id)
        else:
            booting += 1
            kind = ground.kinds.get(instance.type)
            free.append(kind.size.gpus if kind else size.gpus)
    fewest = min(fleet.minimum + draining, fleet.maximum)
    number = count_wanted(fitting, free, size.gpus, len(alive), fewest, fleet.maximum)
    summary = (
        f"{sum(fitting.values())} idle GPU jobs, {sum(worker.free_gpus for worker in workers.values())} GPUs "
        f"unclaimed, {booting} workers booting, {len(alive)} running: {number} wanted"
    )
    return Decision(len(alive), number, summary, tuple(_notes(fleet, ground, requests, fitting, lost)))


def _notes(
    fleet: Fleet, ground: Ground, requests: Sequence[GpuRequest], fitting: Mapping[int, int], lost: Sequence[str]
) -> list[str]:
    size, notes = ground.size, []
    large = sum(not fits(request, size) for request in requests)
    refused = len(requests) - large - sum(fitting.values())
    if refused:
        notes.append(
            f"{refused} idle GPU jobs match none of the workers that run, even when they are idle: nothing is started "
            "for them. `condor_q -better-analyze JOB` says why"
        )
    if large:
        notes.append(
            f"{large} idle GPU jobs ask for more than every worker of this fleet has ({size.gpus} GPUs, {size.cpus} "
            f"CPUs, {size.memory_mb} MB): nothing is started for them. Larger `instances` would run them"
        )
    if lost:
        notes.append(
            f"running, but never joined the pool: {', '.join(lost)}. Of {lost[0]}: {console(fleet.region, lost[0])}"
        )
    return notes
