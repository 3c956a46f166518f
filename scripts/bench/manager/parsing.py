"""HTCondor's own programs parse a DAG."""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from regiondag.pool.pool import Pool
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.manager import pools


@dataclass(frozen=True)
class Parsed:
    """What a program of HTCondor made of a DAG."""

    seconds: float
    peak_mb: float | None
    nodes: int


def check_dag(pool: Pool, dag: Path, timeout: float) -> Parsed:
    """Parse with condor_dag_checker."""
    argv = ["condor_dag_checker", "-NoJoinNodes", "-Statistics", str(dag)]
    begin = time.perf_counter()
    try:
        done = pool.run(argv, cwd=dag.parent, capture_output=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise NotMeasuredError(f"condor_dag_checker took more than {timeout:.0f} s") from None
    seconds = time.perf_counter() - begin
    nodes = re.search(r"NumNodes = (\d+)", done.stdout)
    if done.returncode or not nodes:
        raise NotMeasuredError(f"condor_dag_checker: {(done.stdout + done.stderr).strip()[-300:]}")
    return Parsed(seconds, None, int(nodes[1]))


def parse_dag(pool: Pool, dag: Path, timeout: float) -> Parsed:
    """Submit with -DumpRescue: condor_dagman itself parses all, writes a rescue DAG and ends without running anything.

    The time is from DAGMan's start to its "Dumping rescue DAG"; the memory is its peak up to there.
    """
    _forget(dag)
    pools.submit(pool, dag, "-DumpRescue")
    seconds, peak = _watch(pool, dag, "Dumping rescue DAG", timeout)
    out = dag.with_name(f"{dag.name}.dagman.out")
    pools.wait_for(lambda: "EXITING WITH STATUS" in _read(out), timeout, "the rescue DAG")
    count = re.search(r"Of (\d+) nodes total", _read(out))
    _forget(dag)
    return Parsed(seconds, peak or None, int(count[1]) if count else 0)


def begin_dag(pool: Pool, dag: Path, timeout: float) -> Parsed:
    """Submit a run's DAG with PRE scripts that only wait, and remove it once they have begun: 25.14 has no -DumpRescue.

    The time is from DAGMan's start to its first PRE script; the memory is its peak up to there.
    """
    _forget(dag)
    out, pre = dag.with_name(f"{dag.name}.dagman.out"), dag.with_name("pre.sh")
    own = pre.read_bytes()
    pre.write_text("#!/bin/sh\nexec sleep 600\n", encoding="utf-8")
    try:
        pools.submit(pool, dag)
        seconds, peak = _watch(pool, dag, "Running PRE script", timeout)
        pool.run(["condor_rm", "-all"], cwd=dag.parent, capture_output=True)
        pools.wait_for(lambda: pools.ENDED in _read(out), timeout, "the DAG's removal")
    finally:
        pre.write_bytes(own)
    count = re.search(r"Dag contains (\d+) total", _read(out))
    _forget(dag)
    return Parsed(seconds, peak or None, int(count[1]) if count else 0)


def _watch(pool: Pool, dag: Path, sign: str, timeout: float) -> tuple[float, float]:
    """Return for how many seconds DAGMan works until `sign` stands in its log, and its peak memory in MB by then."""
    out, peak = dag.with_name(f"{dag.name}.dagman.out"), 0.0
    pools.wait_for(lambda: "STARTING UP" in _read(out), 60, "start of condor_dagman")
    begin = time.perf_counter()

    def seen() -> bool:
        nonlocal peak
        peak = max(peak, _peak_in(dag.parent))
        return sign in _read(out)

    pools.wait_for(seen, timeout, f"parsing by condor_dagman {pools.dotted(pool)}")
    return time.perf_counter() - begin, peak


def _forget(dag: Path) -> None:
    """Remove what HTCondor wrote beside the DAG."""
    for path in dag.parent.glob(f"{dag.name}.*"):
        path.unlink()


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _peak_in(folder: Path) -> float:
    """Return the peak memory in MB of the largest process that works in `folder`, which is DAGMan; 0 without any."""
    peak = 0.0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                found = re.search(r"VmHWM:\s+(\d+)", (process / "status").read_text())
                peak = max(peak, int(found[1]) / 1024 if found else 0.0)
        except OSError:  # it ended, or is somebody else's
            continue
    return peak
