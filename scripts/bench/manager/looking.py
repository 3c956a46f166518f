"""How long it takes to look at a long run: status, explain, stats, and its event logs.

No pool is asked: what the journals and event logs cost is what grows with a run.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from regiondag.run.layout import JOB_LOG, NodeName, RunFolder
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import measure_in_turn, module
from scripts.bench.manager.pools import REGIONDAG
from scripts.bench.manager.studies import Shape, generate, make_progress, slugs_of, write_study
from tests.support import made_up_study
from tests.support.made_up_study import event

BENCH = "looking"
SETTLED_SHARE, EVICTED_SHARE = 0.95, 0.1
NO_POOL = {"REGIONDAG_POOL": "bench-none"}
READ = """import sys
from pathlib import Path
from regiondag.condor.events.log import read_attempts
from regiondag.run.layout import RunFolder
print(len(read_attempts(RunFolder(Path(sys.argv[1])))))
"""
STARTED = """Started transferring input files
\tTransferring to host: <127.0.0.1:9618?addrs=127.0.0.1-9618&alias=worker.local>"""
EXECUTING = """Job executing on host: <127.0.0.1:9618?addrs=127.0.0.1-9618&alias=worker.local>
\tSlotName: slot1_{slot}@worker.local
\tAvailableGPUs = {{ GPUs_GPU_a0223334 }}
\tCondorScratchDir = "/var/lib/condor/execute/dir_949"
\tCpus = 1
\tDisk = 103424
\tEC2InstanceType = "g5.12xlarge"
\tEC2InstanceLifeCycle = "spot"
\tGPUs = 1
\tGPUs_DeviceName = "NVIDIA A10G"
\tGPUs_GPU_a0223334 = [ Id = "GPU-a0223334"; Capability = 8.6; DeviceName = "NVIDIA A10G"; ECCEnabled = true ]
\tMemory = 256"""
MEASURED = """Image size of job updated: 5268
\t4  -  MemoryUsage of job (MB)
\t3188  -  ResidentSetSize of job (KB)"""
RESOURCES = """
\tPartitionable Resources :    Usage  Request Allocated Assigned
\t   Cpus                 :        0        1         1
\t   Disk (KB)            :      845   102400    103424
\t   GPUs                 :                 1         1 "GPU-a0223334"
\t   Memory (MB)          :       11      256       256
\t   TimeExecute (s)      :        6
\t   TimeSlotBusy (s)     :        8"""
EVICTED = """Job was evicted.
\t(0) CPU times
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage
\t0  -  Run Bytes Sent By Job
\t846239  -  Run Bytes Received By Job"""


@dataclass(frozen=True)
class Sizes:
    """Size of the run, and numbers of repeats."""

    shape: Shape
    repeats: int

    def __str__(self) -> str:
        return f"{self.shape.regions} regions x {self.shape.rounds * self.shape.parallel} trials"


FULL = Sizes(Shape(41, 25, 8), repeats=5)
QUICK = Sizes(Shape(8, 25, 8), repeats=1)


class Looking(Bench[Sizes]):
    """The rows."""

    @cached_property
    def run(self) -> RunFolder:
        """A run in progress, with journals, event logs and a DAGMan that works on it."""
        run = generate(write_study(self.area, "looking", self.sizes.shape), "25.14")
        settled = make_progress(run, self.sizes.shape, SETTLED_SHARE)
        write_job_logs(run, slugs_of(run), settled, EVICTED_SHARE)
        return run

    def status(self) -> Iterator[Row]:
        """`regiondag status`."""
        yield self._row("status", "status", self.run.path)

    def explain(self) -> Iterator[Row]:
        """`regiondag explain` of the run, of a region and of a node."""
        yield self._row("explain", "explain", self.run.path)
        yield self._row("explain one region", "explain", self.run.path, "region-0")
        yield self._row("explain one node", "explain", self.run.path, "region-0_t0007")

    def stats(self) -> Iterator[Row]:
        """`regiondag stats`, which reads every event."""
        yield self._row("stats", "stats", self.run.path, goal=None)

    def read(self) -> Iterator[Row]:
        """All event logs alone, beside HTCondor's bindings on the same events in one file."""
        logs = sorted(self.run.path.glob(f"regions/*/trials/*/{JOB_LOG}"))
        whole = self.area / "all.log"
        whole.write_text("".join(log.read_text(encoding="utf-8") for log in logs), encoding="utf-8")
        events = whole.read_text(encoding="utf-8").count("\n...\n")
        peer = module("manager.peers", "events", whole)
        ours: list[str | Path] = [sys.executable, "-c", READ, self.run.path]
        found, counted = measure_in_turn(ours, peer, repeats=self.sizes.repeats)
        what = "peer: htcondor2.JobEventLog counts them"
        name = f"{events:,} events of {len(logs):,} jobs, folded into tries and legs ({what})"
        yield Row(name, found.seconds, counted.seconds, "s", goal=2)

    def _row(self, name: str, *words: str | Path, goal: float | None = 2) -> Row:
        [found] = measure_in_turn([*REGIONDAG, *words], repeats=self.sizes.repeats, env=NO_POOL)
        return Row(f"{name}, {self.sizes}, {SETTLED_SHARE:.0%} settled", found.seconds, None, "s", goal=goal)


def write_job_logs(run: RunFolder, slugs: list[str], settled: int, evicted_share: float) -> None:
    """Write what HTCondor logs of each trial that has ended: nine events, and four more where it was evicted once."""
    rng = random.Random(7)  # noqa: S311 - no secret
    cluster = 0
    for slug in slugs:
        for number in range(settled):
            cluster += 1
            node = NodeName(slug, number)
            place = run.region(slug).trial(node)
            place.mkdir(exist_ok=True)
            texts = _texts(node, cluster % 64, evicted=rng.random() < evicted_share)
            log = "".join(event(code, cluster, cluster + at, text) for at, (code, text) in enumerate(texts))
            (place / JOB_LOG).write_text(log, encoding="utf-8")


def _texts(node: NodeName, slot: int, *, evicted: bool) -> Iterator[tuple[str, str]]:
    yield "000", made_up_study.SUBMITTED.format(node=node)
    for cut_short in (True, False) if evicted else (False,):
        yield "040", STARTED
        yield "040", "Finished transferring input files"
        yield "001", EXECUTING.format(slot=slot)
        yield "006", MEASURED
        if cut_short:
            yield "004", EVICTED + RESOURCES
    yield "040", "Started transferring output files"
    yield "040", "Finished transferring output files"
    yield "005", made_up_study.TERMINATED + RESOURCES


if __name__ == "__main__":
    sys.exit(main(BENCH, Looking, FULL, QUICK))
