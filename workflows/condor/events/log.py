"""Read what became of a run's jobs from HTCondor's event logs: each node's `job.log`, or else DAGMan's own.

DAGMan's `*.nodes.log` leaves out transfers and lost connections; `job.log`, which the submit files name, has all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from regiondag.condor.events.attempts import Attempt
from regiondag.condor.events.job import POST_ENDED, SUBMIT, JobFold
from regiondag.condor.events.text import Event, ending_of, node_of, parse_events
from regiondag.run.layout import JOB_LOG, NodeName, RunFolder, dagman_file, parse_node


def read_attempts(run: RunFolder, slug: str | None = None) -> list[Attempt]:
    """Return all tries of all nodes, or of one region's, in the order of their submission.

    There are none where no DAG was ever submitted.
    """
    regions = run.path / "regions"
    logs = list(regions.glob(f"{slug or '*'}/trials/*/{JOB_LOG}"))
    if not logs:  # a run that was generated before jobs had logs of their own, or nothing has been submitted
        logs = [dagman_file(run.study_dag, "nodes.log"), *regions.glob("*/*.nodes.log")]
    found = [attempt for log in logs for attempt in attempts_of(parse_events(_read(log)))]
    wanted = found if slug is None else [attempt for attempt in found if attempt.node.slug == slug]
    return sorted(wanted, key=lambda attempt: (attempt.queued.start, *map(int, attempt.job.split("."))))


def read_settled(run: RunFolder) -> dict[str, dict[int | None, float]]:
    """Return by region the nodes whose POST has succeeded by DAGMan's own logs, and when it last did (Unix time)."""
    logs = [dagman_file(run.study_dag, "nodes.log"), *(run.path / "regions").glob("*/*.nodes.log")]
    found: dict[str, dict[int | None, float]] = {}
    for event in (event for log in logs for event in parse_events(_read(log))):
        if event.code == POST_ENDED and ending_of(event) == (0, None):
            with suppress(ValueError):  # the report's, or another DAG's
                node = parse_node(node_of(event))
                found.setdefault(node.slug, {})[node.number] = event.time
    return found


def _read(log: Path) -> str:
    try:
        return log.read_bytes().decode("utf-8", errors="replace")
    except OSError:  # not submitted, or never alone
        return ""


def attempts_of(events: Iterable[Event]) -> list[Attempt]:
    """Fold the events of one log; jobs that are no node's of a study are left out."""
    jobs: dict[str, JobFold] = {}
    return [job.attempt() for job in _fold(events, jobs)]


def _fold(events: Iterable[Event], jobs: dict[str, JobFold]) -> Iterator[JobFold]:
    newest: dict[NodeName, JobFold] = {}
    for event in events:
        if event.code == SUBMIT:
            if event.job in jobs:
                yield jobs.pop(event.job)
            try:
                job = JobFold(parse_node(node_of(event)), event.job, event.time)
            except ValueError:
                continue
            if job.node in newest:
                newest[job.node].give_up(event.time)
            jobs[event.job] = newest[job.node] = job
        elif event.job in jobs:
            jobs[event.job].take(event)
    yield from jobs.values()
