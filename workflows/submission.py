"""Submit a DAG, or submit it again after whatever ended it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from workflows import condor
from workflows.errors import RegiondagError
from workflows.names import RunFolder, dagman_file
from workflows.pool import Pool

LEAVING = 60.0  # seconds a removed DAGMan gets to write its rescue file and go
SLASH_TMP = Path("/tmp")  # noqa: S108 (DAGMan refuses logs there, as they may not survive a reboot)


def submit_dag(pool: Pool, run: RunFolder, slugs: Iterable[str], only: str | None = None) -> int:
    """Run condor_submit_dag on the study's DAG, or on that of the region `only`; return its exit code.

    Never lets two DAGMans work on one node: refused while the same DAG, or another one with the same nodes, is in the
    queue.
    """
    if run.path.is_relative_to(SLASH_TMP):
        raise RegiondagError(f"{run.path} lies in /tmp, where DAGMan refuses to work; generate it elsewhere (--out)")
    regions = {slug: run.region(slug).dag for slug in slugs}
    dag = run.study_dag if only is None else regions[only]
    overlapping = regions.values() if only is None else [run.study_dag]
    for other in overlapping:
        _wait_until_gone(pool, other)
    last = _wait_until_gone(pool, dag)
    if last is not None and not condor.query_jobs(pool, last):
        # With neither DAGMan nor a job of it in the queue, the lock is that of a DAGMan that crashed. It would make
        # the next one replay the log, and HTCondor 23.9's never ends when the last node is in it.
        dagman_file(dag, "lock").unlink(missing_ok=True)
    rescued = any(dag.parent.glob(f"{dag.name}.rescue[0-9]*"))
    # -f overwrites condor_submit_dag's own files of the time before; PRE skips what the journals know
    again = ["-f"] if dagman_file(dag, "condor.sub").exists() and not rescued else []
    return pool.run(["condor_submit_dag", *again, str(dag)], cwd=dag.parent).returncode


def _wait_until_gone(pool: Pool, dag: Path) -> int | None:
    """Return the cluster that last ran `dag`, once it has left the queue; RegiondagError if it has no mind to."""
    state = condor.read_dag_log(pool, dagman_file(dag, "dagman.log"))
    if state is None:
        return None
    deadline = time.monotonic() + LEAVING
    while (status := condor.query_status(pool, state.cluster)) is not None:
        if status != "removed":
            raise RegiondagError(
                f"{dag} is in the queue already: job {state.cluster} is {status}. "
                f"`regiondag status` shows it; `condor_rm {state.cluster}` ends it"
            )
        if time.monotonic() > deadline:
            raise RegiondagError(f"job {state.cluster}, removed, still has not left the queue after {LEAVING:.0f} s")
        time.sleep(0.5)
    return state.cluster
