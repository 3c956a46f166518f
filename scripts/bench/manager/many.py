"""Ten times as many regions: whether what is done with a run takes ten times as long, and how much memory.

No training is real: journals and HTCondor's logs are made up, as `looking` has them, and all regions have the same
tiny data. So `verify` finds what such a run lacks, after looking at all of it. CPU seconds, user and system.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from regiondag.run.layout import RunFolder
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import Measured, measure
from scripts.bench.manager import parsing, pools
from scripts.bench.manager.studies import Shape, generate_argv, make_progress, slugs_of, write_study
from tests.support import made_up_study

BENCH = "many"
POOL = "bench-many"
NO_POOL = {"REGIONDAG_POOL": "bench-none"}
LIMIT = 1800.0  # seconds, of one command
LINEAR = 12.0  # times as long, with ten times as many regions
BOUND = 1000.0  # MB


@dataclass(frozen=True)
class Sizes:
    """How many regions, and how many trials of each."""

    few: int = 1000
    times: int = 10
    rounds: int = 2
    parallel: int = 2

    def shape(self, *, many: bool) -> Shape:
        """Return the smaller or the larger study."""
        return Shape(self.few * (self.times if many else 1), self.rounds, self.parallel)


QUICK = Sizes(few=20, times=4)


class Many(Bench[Sizes]):
    """The rows."""

    def generate(self) -> Iterator[Row]:
        """`regiondag generate`."""
        yield from self._rows("generate", *(self._made(many)[1] for many in (False, True)))

    def parse(self) -> Iterator[Row]:
        """DAGMan reads the graph."""
        for suite, parse in (("trixie", parsing.parse_dag), ("forky", parsing.begin_dag)):
            with pools.pool_up(f"{POOL}-{suite}", suite, self.area) as pool:
                few, more = (parse(pool, self._made(many)[0].study_dag, LIMIT) for many in (False, True))
                version = pools.dotted(pool)
            regions = self.sizes.shape(many=True).regions
            name = f"condor_dagman {version} parses {more.nodes:,} nodes of {regions:,} regions"
            yield Row(name, more.seconds, None, "s")
            if more.peak_mb and few.peak_mb:
                yield Row(f"{name}: peak memory", more.peak_mb, None, "MB", BOUND)
                grown = (more.peak_mb - few.peak_mb) / (more.nodes - few.nodes) * 1024
                yield Row(f"{name}: memory of a node, by the difference to {few.nodes:,}", grown, None, "KB")

    def look(self) -> Iterator[Row]:
        """Commands that look at a run whose trials have all ended."""
        for name, codes in (("status", (0,)), ("stats", (0,)), ("verify", (0, 1)), ("report", (0, 1))):
            found = []
            for many in (False, True):
                argv: list[str | Path] = [*pools.REGIONDAG, name, self._played(many).path]
                found.append(measure(argv, timeout=LIMIT, env=NO_POOL, codes=codes))
            yield from self._rows(name, *found)

    @cache  # noqa: B019  # a benchmark lives as long as its process
    def _made(self, many: bool) -> tuple[RunFolder, Measured]:
        name = "many" if many else "few"
        study = write_study(self.area / name, name, self.sizes.shape(many=many))
        found = measure(generate_argv(study), timeout=LIMIT)
        return RunFolder(Path(found.output.strip())), found

    @cache  # noqa: B019
    def _played(self, many: bool) -> RunFolder:
        run, _ = self._made(many)
        settled = make_progress(run, self.sizes.shape(many=many), 1.0)
        made_up_study.write_job_logs(run, slugs_of(run), settled, 0.1)
        return run

    def _rows(self, what: str, few: Measured, many: Measured) -> Iterator[Row]:
        shape = self.sizes.shape(many=True)
        name = f"{what}, {shape.regions:,} regions x {shape.rounds * shape.parallel} trials"
        yield Row(f"{name}: CPU", many.cpu_seconds, None, "s", note=f"{many.seconds:.1f} s of wall time")
        yield Row(f"{name}: peak memory", many.peak_mb, None, "MB", BOUND)
        yield Row(f"{name}: times the CPU of {self.sizes.few:,} regions", many.cpu_seconds / few.cpu_seconds, None,
                  "times", LINEAR)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(BENCH, Many, Sizes(), QUICK))
