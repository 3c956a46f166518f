"""Submit a DAG, or submit it again after whatever ended it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from nnlib.contract import Status
from nnlib.util.files import write_atomically
from regiondag.condor import client
from regiondag.condor.events.dag_log import DagState, read_dag_log
from regiondag.errors import PoolError, RegiondagError
from regiondag.pool.pool import Pool, describe_other_pools
from regiondag.run.journal import MACHINE, REOPENED, Journal
from regiondag.run.layout import DAGMAN_CRASHED, NodeName, RunFolder, dagman_file, dagman_log

LEAVING = 60.0  # seconds a removed DAGMan gets to write its rescue file and go
# DAGMan refuses logs there, as they may not survive a reboot. It compares letters, so /tmpdata is refused, too.
SLASH_TMP = "/tmp"  # noqa: S108


def submit_dag(
    pool: Pool, run: RunFolder, slugs: Iterable[str], only: str | None = None, *, quietly: bool = False
) -> int:
    """Run condor_submit_dag on the study's DAG, or on that of the region `only`; return its exit code.

    `quietly`: what it prints is shown only where it fails.

    Never lets two DAGMans work on one node: refused while the same DAG, or another one with the same nodes, is in the
    queue.
    """
    refuse_slash_tmp(run.path)
    regions = {slug: run.region(slug).dag for slug in slugs}
    dag = run.study_dag if only is None else regions[only]
    overlapping = regions.values() if only is None else [run.study_dag]
    for other in overlapping:
        before = _wait_until_gone(pool, other)
        if before is not None:  # it crashed if a job of it is left, and the next DAGMan runs that node anew
            _remove_jobs(pool, other, before)
    last = _wait_until_gone(pool, dag)
    if last is not None and (last.exit_code == DAGMAN_CRASHED or last.status == "removed"):
        # Jobs of one that was removed are on their way out. While one is there, what follows would keep the lock of a
        # DAGMan 23.9 that failed an assertion as it was removed, and the next one would lose track of them.
        _remove_jobs(pool, dag, last)
    if last is not None and not _query_left(pool, last):
        # With neither DAGMan nor a job of it in the queue, the lock is that of a DAGMan that crashed. It would make
        # the next one replay the log, and HTCondor 23.9's never ends when the last node is in it.
        dagman_file(dag, "lock").unlink(missing_ok=True)
    reopen_in_rescue_files(run, regions)
    rescued = bool(list_rescue_files(dag))
    # -f overwrites condor_submit_dag's own files of the time before; PRE skips what the journals know
    again = ["-f"] if dagman_file(dag, "condor.sub").exists() and not rescued else []
    done = pool.run(["condor_submit_dag", *again, str(dag)], cwd=dag.parent, capture_output=quietly)
    if quietly and done.returncode != 0:
        print(done.stdout + done.stderr, end="", file=sys.stderr, flush=True)
    return done.returncode


def find_slash_tmp(path: Path, command: str = "regiondag generate study.yaml") -> str:
    """Say that DAGMan would not work in a run, or a folder of runs, and what to type; nothing where it would."""
    real = path.resolve()
    if not str(real).startswith(SLASH_TMP):
        return ""
    seen = "lies in" if real.is_relative_to(SLASH_TMP) else "begins with"
    return f"{real} {seen} {SLASH_TMP}, where DAGMan refuses to work; type: {command} --out ~/runs"


def suggest_submit(run: Path) -> str:
    """Say what to type so that DAGMan works on a run, or why it would not."""
    return find_slash_tmp(run) or f"regiondag submit {run}"


def refuse_slash_tmp(path: Path, command: str = "regiondag generate study.yaml") -> None:
    """Raise RegiondagError for a run, or a folder of runs, in which DAGMan would not work."""
    said = find_slash_tmp(path, command)
    if said:
        raise RegiondagError(said)


def refuse_while_in_progress(pool: Pool | None, run: RunFolder, slugs: Iterable[str]) -> None:
    """Raise RegiondagError while a DAGMan works on the run: by the queue or, without a pool, by its event logs."""
    for dag in run.dags(slugs):
        job = find_unfinished_job(pool, dagman_log(dag))
        if job is None:
            continue
        if pool is None:
            raise RegiondagError(
                f"{run.path} is still in progress by its log: job {job} has not ended, and no pool runs here that "
                "could be asked. Start it (`regiondag pool up`) and try again"
            )
        raise RegiondagError(
            f"{run.path} is still in progress: its DAGMan, job {job}, is in the queue. Try again when it has ended "
            f"(`regiondag status {run.path} --watch`), or end it with `condor_rm {job}`"
        )


def find_unfinished_job(pool: Pool | None, log: Path) -> int | None:
    """Return the job that wrote an event log, unless that has ended or, though its log does not say so, is gone.

    Raises RegiondagError where it is in the queue of another pool.
    """
    state = read_dag_log(log)
    if state is None or state.ended is not None:
        return None
    if pool is None or client.query_status(pool, state.cluster, log) is not None:
        return state.cluster
    _refuse_in_other_pools(pool, state)
    return None


def was_submitted(run: RunFolder, slugs: Iterable[str]) -> bool:
    """Return whether DAGMan ever worked on the run, or on a region of it."""
    dags = run.dags(slugs)
    return any(dagman_log(dag).exists() for dag in dags)


def reopen_in_rescue_files(run: RunFolder, slugs: Iterable[str]) -> None:
    """Make DAGMan's rescue files, which say what is done, forget nodes that are to be run again."""
    slugs = list(slugs)
    dags = run.dags(slugs)
    newest = [files[-1] for dag in dags if (files := list_rescue_files(dag))]
    if not newest:
        return
    again = {f"DONE {node}" for slug in slugs for node in _find_reopened(run, slug)}
    for path in newest if again else []:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if line.strip() not in again]
        if len(kept) < len(lines):
            write_atomically(path, "".join(kept))


def list_rescue_files(dag: Path) -> list[Path]:
    """Return what DAGMan left to go on from, the one that it will use last."""
    return sorted(dag.parent.glob(f"{dag.name}.rescue[0-9][0-9][0-9]"))


def _find_reopened(run: RunFolder, slug: str) -> list[NodeName]:
    """Return the nodes that are to be run again: reopened ones, and those that only machines have failed so far.

    With a trial the final training: another one may win.
    """
    path = run.region(slug).journal
    text = path.read_bytes() if path.exists() else b""
    if REOPENED not in text and MACHINE not in text:  # few journals need to be parsed for this
        return []
    history = Journal(path).read_outcomes()
    again = set(history.reopened)
    if history.outcome(None) is None:
        again |= {number for number, settled in history.settled.items() if settled.status == Status.MACHINE}
    return [NodeName(slug, number) for number in (again | {None} if again else again)]


def _query_left(pool: Pool, last: DagState) -> list[client.QueuedJob]:
    """Return the jobs of a DAGMan that are still in the queue."""
    return client.jobs_of(client.query_dags(pool, {last.cluster: last.log})[1])


def _remove_jobs(pool: Pool, dag: Path, last: DagState) -> None:
    """Remove the jobs that a DAGMan left behind: the next one could not read of them in the log it failed over."""
    words = ["condor_rm", "-constraint", f"DAGManJobId == {last.cluster}"]
    deadline = time.monotonic() + LEAVING
    while jobs := _query_left(pool, last):
        pool.run(words, cwd=dag.parent, capture_output=True)
        if time.monotonic() > deadline:
            raise RegiondagError(
                f"jobs {', '.join(job.job for job in jobs)} of DAGMan {last.cluster}, which has ended, are still in "
                f"the queue after {LEAVING:.0f} s; remove them (`condor_rm -constraint '{words[-1]}'`) and try again"
            )
        time.sleep(0.5)


def _wait_until_gone(pool: Pool, dag: Path) -> DagState | None:
    """Return how the job ended that last ran `dag`, once it has left the queue; RegiondagError if it has no mind to."""
    state = read_dag_log(dagman_log(dag))
    if state is None:
        return None
    deadline = time.monotonic() + LEAVING
    while (status := client.query_status(pool, state.cluster, state.log)) is not None:
        if status != "removed":
            raise RegiondagError(
                f"{dag} is in the queue already: job {state.cluster} is {status}. "
                f"`regiondag status` shows it; `condor_rm {state.cluster}` ends it"
            )
        if time.monotonic() > deadline:
            raise RegiondagError(f"job {state.cluster}, removed, still has not left the queue after {LEAVING:.0f} s")
        time.sleep(0.5)
    state = read_dag_log(state.log) or state
    if state.ended is None:
        _refuse_in_other_pools(pool, state)
    return state


def _refuse_in_other_pools(pool: Pool, state: DagState) -> None:
    """Raise RegiondagError if a job whose log has no end is in the queue of another pool that runs here."""
    for other in describe_other_pools(pool):
        with suppress(PoolError):  # one that does not answer
            status = client.query_status(other, state.cluster, state.log)
            if status is not None:
                there = (
                    f"the pool {other.name!r} (--pool {other.name})" if other.kind == "embedded" else "HTCondor here"
                )
                raise RegiondagError(
                    f"job {state.cluster}, which writes {state.log}, is {status} in the queue of {there}, "
                    f"not of the pool {pool.name!r}"
                )
