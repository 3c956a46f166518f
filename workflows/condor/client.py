"""Ask HTCondor: slots, queue, event logs, matching. The only module that imports the bindings."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnlib.progress import ATTRIBUTES as LIVE
from regiondag.condor.classads import ClassAd, copy_ad, number_of, parse_expression
from regiondag.condor.quoting import classad_string
from regiondag.errors import PoolError
from regiondag.pool.pool import Pool
from regiondag.pool.rootfs import parse_version
from regiondag.pool.status import JOB_STATUS

OF_LOG = ["Iwd", "UserLog"]
PROJECTION = ["DAGNodeName", "JobStatus", "HoldReason", "EnteredCurrentStatus", "ClusterId", "ProcId", "RemoteHost"]
PROJECTION += ["JobPrio", "NumJobStarts", "DAGManJobId", *OF_LOG, *LIVE]
LATER = 7 * 24 * 3600  # seconds after which a rule that waits for time to pass has done so
DEMANDS = ["Requirements", "RequestGPUs", "RequestCpus", "RequestMemory", "RequestDisk"]


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
    if pool is not None and pool.kind == "installed" and parse_version(htcondor2.version())[0] != pool.version[0]:
        # Bindings of 25.14 and daemons of 23.9 do not agree on how a user of the same machine shows who he is. They are
        # asked questions only; whoever answers may still insist on knowing.
        for name in ("AUTHENTICATION", "ENCRYPTION", "INTEGRITY"):
            htcondor2.param[f"SEC_CLIENT_{name}"] = "OPTIONAL"
    return htcondor2


@contextmanager
def ask_pool(pool: Pool, what: str) -> Iterator[Any]:
    """Give htcondor2 for a question; PoolError when the pool does not answer it."""
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
    ads = _query_slots(pool)
    whole = [_as_if_free(copy_ad(ad)) for ad in ads]
    return whole, [ad for ad in ads if ad.get("State") != "Claimed"]


def _query_slots(pool: Pool) -> list[ClassAd]:
    with ask_pool(pool, "slots") as htcondor2:
        ads = htcondor2.Collector().query(htcondor2.AdType.Startd)
    return [ad for ad in ads if ad.get("SlotType") != "Dynamic"]


def query_daemons(pool: Pool, kind: str, projection: list[str]) -> list[ClassAd]:
    """Return what the daemons of a kind, such as Schedd, say of themselves to the collector."""
    with ask_pool(pool, kind) as htcondor2:
        return list(htcondor2.Collector().query(getattr(htcondor2.AdType, kind), projection=projection))


def query_some_slots(pool: Pool, constraint: str, projection: list[str]) -> list[ClassAd]:
    """Return the ads of slots with some of their attributes, which a pool of thousands of machines asks for.

    An empty projection means all of them.
    """
    with ask_pool(pool, "slots") as htcondor2:
        ads = htcondor2.Collector().query(htcondor2.AdType.Startd, constraint=constraint, projection=projection)
    return [_as_if_free(ad) for ad in ads]


def query_jobs(pool: Pool, dagman_cluster: int, node: str = "") -> list[QueuedJob]:
    """Return the jobs of one DAG, or of one of its nodes, that are in the queue now."""
    of_node = f" && DAGNodeName == {classad_string(node)}" if node else ""
    return jobs_of(query_queue(pool, f"DAGManJobId == {dagman_cluster}{of_node}", PROJECTION))


def query_dags(pool: Pool, logs: Mapping[int, Path], *, whole: bool = False) -> tuple[list[ClassAd], list[ClassAd]]:
    """Return the ads of the DAGMans that are in the queue with these numbers and event logs, and of all their jobs.

    They hold what `jobs_of` needs or, `whole`, all.
    """
    constraint = " || ".join(f"ClusterId == {cluster} || DAGManJobId == {cluster}" for cluster in logs)
    ads = query_queue(pool, constraint, [] if whole else PROJECTION) if logs else []
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


def query_status(pool: Pool, cluster: int, log: Path) -> str | None:
    """Return the status of the job with this number and event log, or None when it is not in the queue."""
    ads = query_queue(pool, f"ClusterId == {cluster}", ["JobStatus", *OF_LOG])
    return next((JOB_STATUS.get(ad["JobStatus"], "unknown") for ad in ads if _writes(ad, log)), None)


def query_jobs_below(pool: Pool, folder: str, since: float) -> tuple[list[ClassAd], list[ClassAd]]:
    """Return when jobs of trials came and went that start in folders that begin so: those in the queue, those over.

    HTCondor's history is read back to `since` (Unix time), as far as it has not been rotated away.
    """
    ours = f"RegiondagTrial =!= undefined && substr(Iwd, 0, {len(folder.encode())}) == {classad_string(folder)}"
    projection = ["ClusterId", "ProcId", "QDate", "EnteredCurrentStatus"]
    over = query_history(pool, ours, projection, since)  # first: a job that ends meanwhile is in neither, not in both
    return query_queue(pool, ours, projection), over


def query_left(pool: Pool, cluster: int, log: Path, since: float) -> float | None:
    """Return when the job with this number and event log left the queue (Unix time); None: not, by the history."""
    ads = query_history(pool, f"ClusterId == {cluster}", ["EnteredCurrentStatus", *OF_LOG], since)
    return next((float(number_of(ad, "EnteredCurrentStatus")) for ad in ads if _writes(ad, log)), None)


def query_history(pool: Pool, constraint: str, projection: list[str], since: float) -> list[ClassAd]:
    """Return the ads of jobs that left the queue, the last one first, back to one that had left it by `since`."""
    with ask_pool(pool, "history") as htcondor2:
        until = f"EnteredCurrentStatus < {int(since)}"
        return list(_find_schedd(pool, htcondor2).history(constraint, projection, since=until))


def query_queue(pool: Pool, constraint: str, projection: list[str]) -> list[ClassAd]:
    """Return the ads of jobs in the queue; an empty projection means all of their attributes."""
    with ask_pool(pool, "queue") as htcondor2:
        return list(_find_schedd(pool, htcondor2).query(constraint=constraint, projection=projection))


def _find_schedd(pool: Pool, htcondor2: Any) -> Any:
    if pool.kind == "embedded":  # seen from outside its root folder it has no "local" schedd, but only this one
        return htcondor2.Schedd(htcondor2.Collector().locateAll(htcondor2.DaemonType.Schedd)[0])
    return htcondor2.Schedd()


def _as_if_free(slot: ClassAd) -> ClassAd:
    """Undo what running jobs took of a partitionable slot: the question is whether a job could ever match."""
    for resource in ("Cpus", "Memory", "Disk", "GPUs"):
        total = slot.get(f"TotalSlot{resource}")
        if total is not None:
            slot[resource] = total
    ids = str(slot.get("AssignedGPUs") or "")  # of all its GPUs, each of which has an ad of its own
    if ids and "AvailableGPUs" in slot:
        names = (f"GPUs_{one.strip().replace('-', '_')}" for one in ids.split(","))
        slot["AvailableGPUs"] = parse_expression(f"{{ {', '.join(name for name in names if name in slot)} }}")
    return slot
