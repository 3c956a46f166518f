"""How long it takes to look at a long run: status, explain, stats, and its event logs.

No pool is asked: what the journals and event logs cost is what grows with a run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from regiondag.run.layout import JOB_LOG, RunFolder
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import measure_in_turn, module
from scripts.bench.manager.pools import REGIONDAG
from scripts.bench.manager.studies import Shape, generate, make_progress, slugs_of, write_study
from tests.support import made_up_study

BENCH = "looking"
SETTLED_SHARE, EVICTED_SHARE = 0.95, 0.1
NO_POOL = {"REGIONDAG_POOL": "bench-none"}
READ = """import sys
from pathlib import Path
from regiondag.condor.events.log import read_attempts
from regiondag.run.layout import RunFolder
print(len(read_attempts(RunFolder(Path(sys.argv[1])))))
"""


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
        made_up_study.write_job_logs(run, slugs_of(run), settled, EVICTED_SHARE)
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


if __name__ == "__main__":
    sys.exit(main(BENCH, Looking, FULL, QUICK))
