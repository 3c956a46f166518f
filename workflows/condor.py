"""Ask HTCondor: slots, queue, event logs, matching. The only module that imports the bindings."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflows.clauses import split_conjunction
from workflows.errors import PoolError
from workflows.fleet.demand import Request, Worker, drains, number_of, sum_slots
from workflows.pool import Pool
from workflows.submit_syntax import classad_string

JOB_STATUS = {1: "idle", 2: "running", 3: "removed", 4: "completed", 5: "held", 6: "transferring", 7: "suspended"}
OF_LOG = ["Iwd", "UserLog"]
PROJECTION = ["DAGNodeName", "JobStatus", "HoldReason", "EnteredCurrentStatus", "ClusterId", "ProcId", "RemoteHost"]
PROJECTION += ["JobPrio", "NumJobStarts", "DAGManJobId", *OF_LOG]
LATER = 7 * 24 * 3600  # seconds after which a rule that waits for time to pass has done so
DEMANDS = ["Requirements", "RequestGPUs", "RequestCpus", "RequestMemory", "RequestDisk"]

ClassAd = Any  # classad2.ClassAd; the bindings have no type information


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """One job of a DAG that is in the queue."""

    node: str
    job: str  # cluster.proc
    status: str
    hold_reason: str
    since: float  # Unix time of its current status
    machine: str
    priority: int = 0
    starts: int = 0

    @property
    def cluster(self) -> int:
        """The first part of its number."""
        return int(self.job.partition(".")[0])


@dataclass(frozen=True, slots=True)
class Held:
    """What is known of a hold: its code, the rule that removes the job, and whether another one releases it."""

    code: int
    removal: str = ""
    released: str = ""  # now, later, or empty
    subcode: int = 0


@dataclass(frozen=True, slots=True)
class Clause:
    """One part of a job's requirements, and how many slots meet it."""

    text: str
    met_by: int


@dataclass(frozen=True, slots=True)
class Match:
    """What a job finds in a pool."""

    slots: int
    matching: tuple[str, ...]  # names of the slots where job and machine accept each other
    clauses: tuple[Clause, ...]
    refused_by_slot: tuple[str, ...]  # slots the job accepts, but whose own START expression says no


def bindings(pool: Pool | None) -> Any:
    """Import htcondor2 with the configuration of `pool`; without a pool, for reading files alone."""
    config = None if pool is None or pool.client_config is None else str(pool.client_config)
    known = config is None or os.environ.get("CONDOR_CONFIG") == config
    if not known:
        os.environ["CONDOR_CONFIG"] = str(config)
    try:
        import htcondor2
    except ImportError as error:
        raise PoolError(
            f"HTCondor's Python bindings cannot be imported ({error}); to install them: "
            f"{sys.executable} -m pip install htcondor"
        ) from error
    if not known:
        htcondor2.reload_config()  # it was read when the bindings were first imported, perhaps for no pool at all
    return htcondor2


@contextmanager
def _asking(pool: Pool, what: str) -> Iterator[Any]:
    module = bindings(pool)
    try:
        yield module
    except (module.HTCondorException, OSError, IndexError) as error:
        raise PoolError(
            f"pool {pool.name!r} does not answer ({what}): {error}; `regiondag pool status` says whether it runs"
        ) from error


def query_slots(pool: Pool) -> list[ClassAd]:
    """Return the ads of all slots, each with all that it has when nothing runs on it."""
    return [_as_if_free(ad) for ad in _query_slots(pool)]


def query_slots_now(pool: Pool) -> tuple[list[ClassAd], list[ClassAd]]:
    """Return the same ads, and those of the slots that are free now, with what is free of them."""
    import classad2

    ads = _query_slots(pool)
    whole = [_as_if_free(classad2.ClassAd(repr(ad))) for ad in ads]
    return whole, [ad for ad in ads if ad.get("State") != "Claimed"]


def _query_slots(pool: Pool) -> list[ClassAd]:
    with _asking(pool, "slots") as htcondor2:
        ads = htcondor2.Collector().query(htcondor2.AdType.Startd)
    return [ad for ad in ads if ad.get("SlotType") != "Dynamic"]


def query_jobs(pool: Pool, dagman_cluster: int, node: str = "") -> list[QueuedJob]:
    """Return the jobs of one DAG, or of one of its nodes, that are in the queue now."""
    of_node = f" && DAGNodeName == {classad_string(node)}" if node else ""
    return jobs_of(_query_queue(pool, f"DAGManJobId == {dagman_cluster}{of_node}", PROJECTION))


def query_dags(pool: Pool, logs: Mapping[int, Path], *, whole: bool = False) -> tuple[list[ClassAd], list[ClassAd]]:
    """Return the ads of the DAGMans that are in the queue with these numbers and event logs, and of all their jobs.

    They hold what `jobs_of` needs or, `whole`, all.
    """
    constraint = " || ".join(f"ClusterId == {cluster} || DAGManJobId == {cluster}" for cluster in logs)
    ads = _query_queue(pool, constraint, [] if whole else PROJECTION) if logs else []
    dagmans = [ad for ad in ads if ad["ClusterId"] in logs]
    ours = [ad for ad in dagmans if _writes(ad, logs[ad["ClusterId"]])]
    others = {ad["ClusterId"] for ad in dagmans} - {ad["ClusterId"] for ad in ours}
    return ours, [ad for ad in ads if ad["ClusterId"] not in logs and ad.get("DAGManJobId") not in others]


def _writes(ad: ClassAd, log: Path) -> bool:
    """Return whether a job writes this event log: every pool, and a queue that was made anew, counts from 1."""
    return os.path.realpath(Path(str(ad.get("Iwd", ""))) / str(ad.get("UserLog", ""))) == os.path.realpath(log)


def jobs_of(ads: Iterable[ClassAd]) -> list[QueuedJob]:
    """Read the ads of jobs."""
    return [
        QueuedJob(
            node=str(ad.get("DAGNodeName", "")),
            job=f"{ad['ClusterId']}.{ad['ProcId']}",
            status=JOB_STATUS.get(ad["JobStatus"], "unknown"),
            hold_reason=str(ad.get("HoldReason", "")) if ad["JobStatus"] == 5 else "",
            since=float(ad.get("EnteredCurrentStatus", 0)),
            machine=str(ad.get("RemoteHost", "")),
            priority=number_of(ad, "JobPrio"),
            starts=number_of(ad, "NumJobStarts"),
        )
        for ad in ads
    ]


def holds_of(ads: Iterable[ClassAd]) -> dict[str, Held]:
    """Return what the whole ads of jobs say of holds, by node."""
    return {str(ad.get("DAGNodeName", "")): held_of(ad) for ad in ads if ad["JobStatus"] == 5}


def held_of(ad: ClassAd) -> Held:
    """Read the ad of a held job. Whether its rule releases it `later` is tried out on a hold that has lasted."""
    code, subcode = number_of(ad, "HoldReasonCode"), number_of(ad, "HoldReasonSubCode")
    released, since = "", number_of(ad, "EnteredCurrentStatus")
    if "PeriodicRelease" in ad and ad.eval("PeriodicRelease") is True:
        released = "now"
    elif "PeriodicRelease" in ad:
        ad["EnteredCurrentStatus"] = since - LATER
        released = "later" if ad.eval("PeriodicRelease") is True else ""
        ad["EnteredCurrentStatus"] = since
    return Held(code, rule_of(ad, "PeriodicRemove"), released, subcode)


def rule_of(ad: ClassAd, name: str) -> str:
    """Return a rule of a job as HTCondor writes it; empty where there is none."""
    return str(ad.lookup(name)) if name in ad else ""


def idle_kinds(ads: Iterable[ClassAd]) -> list[tuple[ClassAd, tuple[str, ...]]]:
    """Return the whole ad of one idle job of each kind, and the nodes of that kind."""
    kinds: dict[tuple[str, ...], list[ClassAd]] = {}
    for ad in ads:
        if ad["JobStatus"] == 1:
            kinds.setdefault(tuple(str(ad.lookup(name)) for name in DEMANDS if name in ad), []).append(ad)
    return [(alike[0], tuple(str(ad.get("DAGNodeName", "")) for ad in alike)) for alike in kinds.values()]


def with_requirements(ad: ClassAd, clauses: Iterable[str]) -> ClassAd:
    """Return a copy of a job's ad that requires these clauses alone."""
    import classad2

    changed = classad2.ClassAd(repr(ad))
    changed["Requirements"] = classad2.ExprTree(" && ".join(f"({clause})" for clause in clauses) or "true")
    return changed


def query_status(pool: Pool, cluster: int, log: Path) -> str | None:
    """Return the status of the job with this number and event log, or None when it is not in the queue."""
    ads = _query_queue(pool, f"ClusterId == {cluster}", ["JobStatus", *OF_LOG])
    return next((JOB_STATUS.get(ad["JobStatus"], "unknown") for ad in ads if _writes(ad, log)), None)


def query_gpu_requests(pool: Pool, fleet: str) -> list[Request]:
    """Return what each idle job in the queue asks for that asks for GPUs, and whether the fleet's workers refuse it."""
    constraint = "JobStatus == 1 && JobUniverse == 5 && (RequestGPUs ?: 0) > 0"
    asked = ["RequestGPUs", "RequestCpus", "RequestMemory"]
    # RequestMemory is usually an expression of what the job used when it ran before.
    used = ["MemoryUsage", "ResidentSetSize", "ImageSize", "ExecutableSize", "DiskUsage"]
    ads = _query_queue(pool, constraint, ["ClusterId", "ProcId", "Requirements", *asked, *used])
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
        requests += [Request(gpus, cpus, memory, refused, f"{ad['ClusterId']}.{ad['ProcId']}") for ad in jobs]
    return requests


def _matches_any(pool: Pool, job: ClassAd, slots: Sequence[ClassAd]) -> bool:
    """Return whether a job that is known by its number matches a slot; one that has left the queue does."""
    found = _query_queue(pool, f"ClusterId == {job['ClusterId']} && ProcId == {job['ProcId']}", [])
    return not found or bool(match(found[0], slots).matching)


def query_workers(pool: Pool, fleet: str) -> dict[str, Worker]:
    """Return the workers of a fleet that have joined the pool, by EC2 instance."""
    import classad2

    projection = ["Name", "SlotType", "State", "GPUs", "TotalSlotGPUs", "EC2InstanceID", "RegiondagDrain"]
    with _asking(pool, "workers") as htcondor2:
        constraint = f"RegiondagFleet =?= {classad2.quote(fleet)}"
        ads = htcondor2.Collector().query(htcondor2.AdType.Startd, constraint, projection)
    return sum_slots(ads)


def _query_queue(pool: Pool, constraint: str, projection: list[str]) -> list[ClassAd]:
    with _asking(pool, "queue") as htcondor2:
        if pool.kind == "embedded":  # seen from outside its root folder it has no "local" schedd, but only this one
            schedd = htcondor2.Schedd(htcondor2.Collector().locateAll(htcondor2.DaemonType.Schedd)[0])
        else:
            schedd = htcondor2.Schedd()
        return list(schedd.query(constraint=constraint, projection=projection))


def parse_ad(text: str) -> ClassAd | None:
    """Parse the first job's ad from what `condor_submit -dry-run -` prints, if there is one."""
    import classad2

    assignments = [line for line in text.splitlines() if re.match(r"[A-Za-z_]\w*\s*=", line)]
    ad = classad2.parseOne("\n".join(assignments), classad2.ParserType.Old) if assignments else {}
    return ad if "Requirements" in ad else None


def offers_gpus(slot: ClassAd) -> bool:
    """Return whether a slot says HAS_GPU of itself."""
    return "HAS_GPU" in slot and slot.eval("HAS_GPU") is True


def match(job: ClassAd, slots: Sequence[ClassAd]) -> Match:
    """Match one job against all slots, as the negotiator would, and count each clause by itself."""
    import classad2

    accepted = [slot for slot in slots if _holds(job.lookup("Requirements"), job, slot)]
    agreed = [job.symmetricMatch(slot) for slot in accepted]  # ads are compared by all that is in them: slowly
    clauses = []
    for text in split_conjunction(str(job.lookup("Requirements"))):
        expression = classad2.ExprTree(text)
        clauses.append(Clause(text, sum(_holds(expression, job, slot) for slot in slots)))
    matching = itertools.compress(accepted, agreed)
    refused = itertools.compress(accepted, (not agrees for agrees in agreed))
    return Match(len(slots), _names(matching), tuple(clauses), _names(refused))


def _holds(expression: Any, job: ClassAd, slot: ClassAd) -> bool:
    return expression.eval(job, slot) is True


def _names(slots: Iterable[ClassAd]) -> tuple[str, ...]:
    return tuple(str(slot.get("Name", "?")) for slot in slots)


def _as_if_free(slot: ClassAd) -> ClassAd:
    """Undo what running jobs took of a partitionable slot: the question is whether a job could ever match."""
    for resource in ("Cpus", "Memory", "Disk", "GPUs"):
        total = slot.get(f"TotalSlot{resource}")
        if total is not None:
            slot[resource] = total
    return slot
