"""What HTCondor knows of a run and the run does not: then the run as a whole was put back from an older copy.

A job's event log, in its trial's folder, has its submission and its end; HTCondor has both besides, in its queue and
its history, where a job's `Iwd` names that folder. Jobs of runs of earlier versions say the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from regiondag.condor import client
from regiondag.condor.classads import ClassAd, number_of
from regiondag.condor.events.log import read_attempts
from regiondag.errors import PoolError
from regiondag.pool.pool import Pool
from regiondag.run.layout import RunFolder
from regiondag.run.manifest import RunManifest
from regiondag.util.text import list_some

SLACK = 60.0  # seconds in which a job may be in the queue, and not yet in its log
ADVICE = (
    "put a newer copy of the run in its place; without one type `regiondag submit {run}`, which trains again what it "
    "lacks; what serves is safe"
)


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job of a run by HTCondor: its number, when it was submitted, and when it left the queue (Unix times)."""

    job: str
    submitted: float
    left: float | None  # None: it has not


def ask_for_jobs(pool: Pool, run: RunFolder, manifest: RunManifest) -> list[KnownJob]:
    """Return the jobs of a run's nodes that are in the queue or in HTCondor's history, as far as that goes.

    PoolError where that cannot be asked, or where the run lies elsewhere than its jobs say.
    """
    if Path(manifest.run).resolve() != run.path.resolve():
        raise PoolError(f"HTCondor knows jobs by their folders, and this run was made as {manifest.run}")
    queued, over = client.query_jobs_below(pool, f"{manifest.run}/regions/", since=_created(manifest))
    return [*_read(queued, left=False), *_read(over, left=True)]


def find_forgotten(jobs: Iterable[KnownJob], known: Mapping[str, bool], now: float) -> list[KnownJob]:
    """Return the jobs that a run does not know, or not the end of; `known` says by job whether its end is.

    >>> job = KnownJob("7.0", 100.0, 160.0)
    >>> [find_forgotten([job], known, 500.0) == [job] for known in ({}, {"7.0": False}, {"7.0": True})]
    [True, True, False]
    """
    return [
        job
        for job in jobs
        if (job.job not in known and job.submitted < now - SLACK)
        or (job.left is not None and job.left < now - SLACK and not known.get(job.job, False))
    ]


def read_known(run: RunFolder, recorded: Iterable[str]) -> dict[str, bool]:
    """Return by job whether its end is known, by event logs; `recorded` are jobs that the journals say have ended."""
    known = {attempt.job: attempt.queued.end is not None for attempt in read_attempts(run)}
    return known | dict.fromkeys(filter(None, recorded), True)


def describe_forgotten(forgotten: Sequence[KnownJob]) -> str:
    """Say in words what HTCondor knows and the run does not."""
    some = list_some([job.job for job in forgotten])
    last = max(job.left or job.submitted for job in forgotten)
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(last))
    what = f"{len(forgotten)} jobs" if len(forgotten) > 1 else "a job"
    return f"HTCondor knows {what} of it ({some}), the last at {when}, of which its own logs do not know: it is older"


def _created(manifest: RunManifest) -> float:
    try:
        return datetime.fromisoformat(manifest.created).timestamp()
    except ValueError:  # of an earlier version
        return 0.0


def _read(ads: Iterable[ClassAd], *, left: bool) -> Iterator[KnownJob]:
    for ad in ads:
        ended = float(number_of(ad, "EnteredCurrentStatus")) if left else None
        yield KnownJob(f"{ad['ClusterId']}.{ad['ProcId']}", float(number_of(ad, "QDate")), ended)
