"""How many workers the queue asks for. Pure: what HTCondor and EC2 said goes in, a number comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from regiondag.condor.classads import number_of


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """What one idle job asks for."""

    gpus: int
    cpus: int
    memory_mb: int
    refused: bool = False  # workers of the fleet run, and the job matches none of them even when it is empty
    job: str = field(default="", compare=False)  # its number in the queue


@dataclass(frozen=True, slots=True)
class Worker:
    """One instance as the pool sees it: the sum of its slots."""

    instance: str
    gpus: int
    free_gpus: int
    jobs: int
    draining: bool = False  # it says so itself, also where EC2 and not the fleet asked for it


@dataclass(frozen=True, slots=True)
class WorkerSize:
    """What a worker has, at the least, whichever of the fleet's instance types it is."""

    gpus: int
    cpus: int
    memory_mb: int


# Of an instance's memory: the rest is the kernel's and HTCondor's own.
FOR_JOBS = 0.9


def fits(request: GpuRequest, size: WorkerSize) -> bool:
    """Return whether a job can run on an empty worker."""
    return request.gpus <= size.gpus and request.cpus <= size.cpus and request.memory_mb <= FOR_JOBS * size.memory_mb


def count_missing(requests: Mapping[int, int], free: Iterable[int], each: int) -> int:
    """Return how many workers with `each` GPUs must be added so that every job finds its GPUs.

    `requests` counts jobs by GPUs asked for; a job's GPUs must be on one machine, so they are packed, the largest
    first, into what is `free` on the machines that exist (or boot), then into new ones. That is as few as can be for
    requests of 1, 2, 4 and 8 GPUs, and nearly so for others.
    Requests for more than `each` are not counted.

    >>> missing({1: 5}, [1, 1], 1)
    3
    >>> missing({3: 2, 1: 2}, [2], 4)
    2
    """
    bins = Counter(gpus for gpus in free if gpus > 0)  # how many machines have so many GPUs left
    added = 0
    for gpus in sorted((size for size in requests if 0 < size <= each), reverse=True):
        left = requests[gpus]
        for room in sorted(bins):  # the fullest machine that still has room, so that large gaps stay
            if room < gpus or not bins[room] or not left:
                continue
            left -= _put(bins, room, gpus, left)
        per_worker = each // gpus
        new = -(-left // per_worker)
        added += new
        bins[each] += new
        _put(bins, each, gpus, left)
    return added


def _put(bins: Counter[int], room: int, gpus: int, jobs: int) -> int:
    """Put jobs on the machines with `room` GPUs left; return how many of the jobs found a place."""
    per_machine = room // gpus
    full, rest = divmod(min(jobs, bins[room] * per_machine), per_machine)
    bins[room] -= full + (rest > 0)
    bins[room - per_machine * gpus] += full
    if rest:
        bins[room - rest * gpus] += 1
    return full * per_machine + rest


def count_wanted(
    requests: Mapping[int, int], free: Iterable[int], each: int, running: int, minimum: int, maximum: int
) -> int:
    """Return how many workers there should be: never fewer than run, for idle ones power off by themselves.

    `free` are the GPUs that are unclaimed on each worker, all of them on one that still boots.

    >>> wanted({1: 10}, [1], 1, running=3, minimum=0, maximum=8)
    8
    """
    return max(running, minimum, min(running + count_missing(requests, free, each), maximum))


def sum_slots(ads: Iterable[Any]) -> dict[str, Worker]:
    """Add up the slots of each instance: a partitionable one says what it has and has left, its parts are claims."""
    workers: dict[str, Worker] = {}
    for ad in ads:
        instance = ad.get("EC2InstanceID")
        if not isinstance(instance, str):
            continue
        before = workers.get(instance, Worker(instance, 0, 0, 0))
        claimed = ad.get("State") == "Claimed"
        gpus, kind = number_of(ad, "GPUs"), ad.get("SlotType")
        if kind == "Partitionable":
            total = max(number_of(ad, "TotalSlotGPUs"), gpus)
            now = replace(before, gpus=before.gpus + total, free_gpus=before.free_gpus + gpus)
        elif kind == "Dynamic":
            now = replace(before, jobs=before.jobs + claimed)
        else:
            free = 0 if claimed else gpus
            now = Worker(instance, before.gpus + gpus, before.free_gpus + free, before.jobs + claimed)
        workers[instance] = replace(now, draining=before.draining or drains(ad))
    return workers


def drains(slot: Any) -> bool:
    """Return whether a worker's regiondag-watch has told it to take no more jobs."""
    return "RegiondagDrain" in slot
