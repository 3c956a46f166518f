"""How long regiondag's manager side takes, beside HTCondor's own tools."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path

from regiondag.run.layout import RunFolder
from scripts.bench.common.harness import Bench, Row, disk_mb, main
from scripts.bench.common.processes import Measured, NotMeasuredError, measure, measure_in_turn, module
from scripts.bench.manager import parsing, pools, rounds
from scripts.bench.manager.studies import Shape, generate, generate_argv, make_progress, write_study
from tests.support import made_up_study

BENCH = "orchestration"
TRIXIE, FORKY = "bench-trixie", "bench-forky"
GPUS = 2


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    generate_repeats: int
    large: Shape
    large_repeats: int
    barrier: Shape
    status: Shape
    status_repeats: int
    help_repeats: int
    limit: float  # seconds, of one side


USUAL = Shape(41, 10, 8)
SETTLED_SHARE = 0.95  # of the trials that status looks at
FULL = Sizes(5, Shape(1000, 100, 10), 3, Shape(2, 6, 2), Shape(100, 100, 10), 5, 11, 300)
QUICK = Sizes(1, Shape(100, 10, 10), 1, Shape(1, 3, 2), Shape(10, 100, 10), 1, 3, 30)


class Orchestration(Bench[Sizes]):
    """The rows."""

    def generate(self) -> Iterator[Row]:
        """`generate` of a usual study."""
        argvs = generate_argv(write_study(self.area, "usual", USUAL)), self._dag_argv("peer-usual", USUAL)
        ours, peer = measure_in_turn(*argvs, repeats=self.sizes.generate_repeats, timeout=self.sizes.limit)
        what = "ours also copies data, takes digests, packs code; peer htcondor2.dags writes the DAG only"
        yield Row(f"generate, {USUAL} ({what})", ours.seconds, peer.seconds, "s", goal=2)

    def large(self) -> Iterator[Row]:
        """`generate` of a million nodes."""
        ours, peer = self._large_ours, self._large_peer
        name = f"generate, {self.sizes.large} = {self.sizes.large.trials:,} trials"
        stopped = "" if peer else f" (peer: stopped after {self.sizes.limit:.0f} s)"
        yield Row(name + stopped, ours.seconds, peer.seconds if peer else None, "s", goal=60)
        yield Row(f"{name}: peak memory", ours.peak_mb, peer.peak_mb if peer else None, "MB", goal=500)
        disk = disk_mb(self.area / "peer-large") if peer else None
        yield Row(f"{name}: on disk", disk_mb(self._large_run.path), disk, "MB")

    @cached_property
    def _large_ours(self) -> Measured:
        argv = generate_argv(write_study(self.area, "large", self.sizes.large))
        [found] = measure_in_turn(argv, repeats=self.sizes.large_repeats)
        return found

    @property
    def _large_run(self) -> RunFolder:
        return RunFolder(Path(self._large_ours.output.strip()))

    @cached_property
    def _large_peer(self) -> Measured | None:
        """Once only, as it takes long; None if it had to be stopped."""
        try:
            return measure(self._dag_argv("peer-large", self.sizes.large), timeout=self.sizes.limit)
        except NotMeasuredError:
            return None

    def parse(self) -> Iterator[Row]:
        """HTCondor reads the large DAG; the peer is the same graph as htcondor2.dags writes it."""
        for name, suite, program, parse in (
            (TRIXIE, "trixie", "condor_dagman", parsing.parse_dag),
            (FORKY, "forky", "condor_dag_checker", parsing.check_dag),
        ):
            with pools.pool_up(name, suite, self.area) as pool:
                ours, limit = parse(pool, self._large_run.study_dag, self.sizes.limit), self.sizes.limit
                peer = parse(pool, self.area / "peer-large" / "study.dag", limit) if self._large_peer else None
                what = f"{program} {pools.dotted(pool)} parses the large DAG ({ours.nodes:,} nodes seen)"
            yield Row(what, ours.seconds, peer.seconds if peer else None, "s")
            if ours.peak_mb:
                yield Row(f"{what}: peak memory", ours.peak_mb, peer.peak_mb if peer else None, "MB")

    def barrier(self) -> Iterator[Row]:
        """From the end of a round's last trial to the start of the next one's first."""
        shape = self.sizes.barrier
        with pools.pool_up(TRIXIE, "trixie", self.area, GPUS) as pool:
            run = generate(write_study(self.area, "barrier", shape), pools.dotted(pool))
            sides = [rounds.barriers(pool, run.study_dag, shape)]
            sides.append(rounds.barriers(pool, rounds.plain_dag(self.area / "plain", shape), shape))
        name = f"barrier between two rounds, median of {len(sides[0])} (peer: the same DAG without scripts, by hand)"
        notes = [f"medians of the parts, {who}: {pools.averaged(found, statistics.median)}; whole: "
                 f"{min(one.total for one in found):.1f} to {max(one.total for one in found):.1f} s"
                 for who, found in zip(("ours", "peer"), sides, strict=True)]  # fmt: skip
        notes.append("rounds that a model proposes; the event log has milliseconds; logs are scanned every second")
        ours, peer = (statistics.median(one.total for one in found) for found in sides)
        yield Row(name, ours, peer, "s", goal=5, note="\n".join(notes))

    def status(self) -> Iterator[Row]:
        """`status` of a long run, with a pool whose queue is asked; the peer reads an event log of as many jobs."""
        shape, log = self.sizes.status, self.area / "nodes.log"
        made_up_study.write_event_log(log, shape.trials)
        with pools.pool_up(TRIXIE, "trixie", self.area, GPUS) as pool:
            run = generate(write_study(self.area, "status", shape), pools.dotted(pool))
            make_progress(run, shape, SETTLED_SHARE)
            argv: list[str | Path] = [*pools.REGIONDAG, "status", run.path, "--pool", TRIXIE]
            count = module("manager.peers", "events", log)
            ours, peer = measure_in_turn(argv, count, repeats=self.sizes.status_repeats)
        name = f"status of {shape.trials:,} trials, {SETTLED_SHARE:.0%} settled"
        yield Row(f"{name} (peer: htcondor2.JobEventLog over as many jobs)", ours.seconds, peer.seconds, "s", goal=2)

    def help(self) -> Iterator[Row]:
        """`regiondag --help`; for scale, the import of HTCondor's bindings alone."""
        script = Path(sys.executable).with_name("regiondag")
        argv = [*([script] if script.exists() else pools.REGIONDAG), "--help"]
        ours, peer = measure_in_turn(argv, [sys.executable, "-c", "import htcondor2"], repeats=self.sizes.help_repeats)
        yield Row("regiondag --help (peer: import htcondor2 alone)", ours.seconds, peer.seconds, "s", goal=0.3)

    def _dag_argv(self, name: str, shape: Shape) -> list[str | Path]:
        return module("manager.peers", "dag", self.area / name, *map(str, astuple(shape)))


if __name__ == "__main__":
    sys.exit(main(BENCH, Orchestration, FULL, QUICK))
