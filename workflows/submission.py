"""Submit a DAG, or submit it again after whatever ended it."""

from __future__ import annotations

import time
from pathlib import Path

from workflows import condor
from workflows.errors import RegiondagError
from workflows.pool import Pool

LEAVING = 60.0  # seconds a removed DAGMan gets to write its rescue file and go


def submit_dag(pool: Pool, dag: Path) -> int:
    """Run condor_submit_dag; return its exit code. Never lets two DAGMans work on one DAG."""
    beside = [dag.with_name(f"{dag.name}.{suffix}") for suffix in ("dagman.log", "lock", "condor.sub")]
    log, lock, condor_sub = beside
    state = condor.read_dag_log(pool, log)
    if state is not None:
        _wait_until_gone(pool, dag, state.cluster)
        # With neither DAGMan nor a job of it in the queue, the lock is that of a DAGMan that crashed. It would make
        # the next one replay the log, and HTCondor 23.9's never ends when the last node is in it.
        if not condor.query_jobs(pool, state.cluster):
            lock.unlink(missing_ok=True)
    rescued = any(dag.parent.glob(f"{dag.name}.rescue[0-9]*"))
    # -f overwrites condor_submit_dag's own files of the time before; PRE skips what the journals know
    again = ["-f"] if condor_sub.exists() and not rescued else []
    return pool.run(["condor_submit_dag", *again, str(dag)], cwd=dag.parent).returncode


def _wait_until_gone(pool: Pool, dag: Path, cluster: int) -> None:
    deadline = time.monotonic() + LEAVING
    while (status := condor.query_status(pool, cluster)) is not None:
        if status != "removed":
            raise RegiondagError(
                f"{dag} is in the queue already: job {cluster} is {status}. "
                f"`regiondag status` shows it; `condor_rm {cluster}` ends it"
            )
        if time.monotonic() > deadline:
            raise RegiondagError(f"job {cluster}, removed, still has not left the queue after {LEAVING:.0f} s")
        time.sleep(0.5)
