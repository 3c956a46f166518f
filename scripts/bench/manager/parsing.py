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
    out = dag.with_name(f"{dag.name}.dagman.out")
    pools.submit(pool, dag, "-DumpRescue")
    pools.wait_for(lambda: "STARTING UP" in _read(out), 60, "start of condor_dagman")
    begin = time.perf_counter()
    peak = 0.0

    def parsed() -> bool:
        nonlocal peak
        peak = max(peak, _dagman_peak(dag.parent))
        return "Dumping rescue DAG" in _read(out)

    pools.wait_for(parsed, timeout, f"parsing by condor_dagman {pools.dotted(pool)}")
    seconds = time.perf_counter() - begin
    pools.wait_for(lambda: "EXITING WITH STATUS" in _read(out), timeout, "the rescue DAG")
    count = re.search(r"Of (\d+) nodes total", _read(out))
    _forget(dag)
    return Parsed(seconds, peak or None, int(count[1]) if count else 0)


def _forget(dag: Path) -> None:
    """Remove what HTCondor wrote beside the DAG."""
    for path in dag.parent.glob(f"{dag.name}.*"):
        path.unlink()


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _dagman_peak(folder: Path) -> float:
    """Return the peak memory in MB of the condor_dagman that works in `folder`, 0 if there is none."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder and b"-DumpRescue" in (process / "cmdline").read_bytes():
                return int(re.search(r"VmHWM:\s+(\d+)", (process / "status").read_text())[1]) / 1024  # type: ignore[index]
        except (OSError, TypeError):  # it ended, or is somebody else's
            continue
    return 0.0
