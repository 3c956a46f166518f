"""What a fleet asks HTCondor: the jobs that want GPUs, and its own workers."""

from __future__ import annotations

from collections.abc import Sequence

from regiondag.condor.classads import ClassAd, number_of, quote_string
from regiondag.condor.client import ask_pool, query_queue, query_slots
from regiondag.condor.matching import match
from regiondag.fleet.demand import GpuRequest, Worker, drains, sum_slots
from regiondag.pool.pool import Pool


def query_gpu_requests(pool: Pool, fleet: str) -> list[GpuRequest]:
    """Return what each idle job in the queue asks for that asks for GPUs, and whether the fleet's workers refuse it."""
    constraint = "JobStatus == 1 && JobUniverse == 5 && (RequestGPUs ?: 0) > 0"
    asked = ["RequestGPUs", "RequestCpus", "RequestMemory"]
    # RequestMemory is usually an expression of what the job used when it ran before.
    used = ["MemoryUsage", "ResidentSetSize", "ImageSize", "ExecutableSize", "DiskUsage"]
    ads = query_queue(pool, constraint, ["ClusterId", "ProcId", "Requirements", *asked, *used])
    # Those that drain refuse every job, and say nothing about the workers that would be started.
    all_slots = query_slots(pool) if ads else []
    slots = [slot for slot in all_slots if slot.get("RegiondagFleet") == fleet and not drains(slot)]
    alike: dict[tuple[object, ...], list[ClassAd]] = {}
    for ad in ads:
        numbers = tuple(number_of(ad, name) for name in asked)
        alike.setdefault((*numbers, str(ad.lookup("Requirements"))), []).append(ad)
    requests = []
    for jobs in alike.values():
        gpus, cpus, memory = (number_of(jobs[0], name) for name in asked)
        refused = bool(slots) and not _matches_any(pool, jobs[0], slots)
        requests += [GpuRequest(gpus, cpus, memory, refused, f"{ad['ClusterId']}.{ad['ProcId']}") for ad in jobs]
    return requests


def _matches_any(pool: Pool, job: ClassAd, slots: Sequence[ClassAd]) -> bool:
    """Return whether a job that is known by its number matches a slot; one that has left the queue does."""
    found = query_queue(pool, f"ClusterId == {job['ClusterId']} && ProcId == {job['ProcId']}", [])
    return not found or bool(match(found[0], slots).matching)


def query_workers(pool: Pool, fleet: str) -> dict[str, Worker]:
    """Return the workers of a fleet that have joined the pool, by EC2 instance."""
    projection = ["Name", "SlotType", "State", "GPUs", "TotalSlotGPUs", "EC2InstanceID", "RegiondagDrain"]
    with ask_pool(pool, "workers") as htcondor2:
        constraint = f"RegiondagFleet =?= {quote_string(fleet)}"
        ads = htcondor2.Collector().query(htcondor2.AdType.Startd, constraint, projection)
    return sum_slots(ads)
