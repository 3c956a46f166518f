"""How long regiondag's manager side takes, beside HTCondor's own tools."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path

from regiondag.run.layout import RunFolder
from scripts.bench.common.harness import Row, disk_mb, main
from scripts.bench.common.processes import NotMeasuredError, measure, module, seconds_in_turn
from scripts.bench.manager import parsing, pools, rounds
from tests.support import made_up_study

BENCH = "orchestration"
TRIXIE, FORKY = "bench-trixie", "bench-forky"
GPUS = 2


@dataclass(frozen=True)
class Shape:
    """Size of a study."""

    regions: int
    rounds: int
    parallel: int

    @property
    def trials(self) -> int:
        """Trials over all regions."""
        return self.regions * self.rounds * self.parallel

    def __str__(self) -> str:
        return f"{self.regions:,} regions x {self.rounds} rounds x {self.parallel}"


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


class Orchestration:
    """The rows, in groups that can be measured alone."""

    def __init__(self, area: Path, sizes: Sizes) -> None:
        self.area = area
        self.sizes = sizes
        self.groups = {
            "generate": self.generate,
            "large": self.large,
            "parse": self.parse,
            "barrier": self.barrier,
            "status": self.status,
            "help": self.help,
        }

    def generate(self) -> Iterator[Row]:
        """`generate` of a usual study."""
        study = made_up_study.write_study(self.area, "usual", *astuple(USUAL))
        ours, peer = self._generate_argv(study), self._dag_argv("peer-usual", USUAL)
        seconds, theirs = seconds_in_turn(ours, peer, repeats=self.sizes.generate_repeats, timeout=self.sizes.limit)
        what = "ours also copies data, takes digests, packs code; peer htcondor2.dags writes the DAG only"
        yield Row(f"generate, {USUAL} ({what})", seconds, theirs, "s", goal=2)

    def large(self) -> Iterator[Row]:
        """`generate` of a million nodes."""
        ours, peer = self._large_ours, self._large_peer
        name = f"generate, {self.sizes.large} = {self.sizes.large.trials:,} trials"
        stopped = "" if peer else f" (peer: stopped after {self.sizes.limit:.0f} s)"
        yield Row(name + stopped, ours["seconds"], peer.get("seconds"), "s", goal=60)
        yield Row(f"{name}: peak memory", ours["peak"], peer.get("peak"), "MB", goal=500)
        yield Row(f"{name}: on disk", ours["disk"], peer.get("disk"), "MB")

    @cached_property
    def _large_ours(self) -> dict[str, float]:
        study = made_up_study.write_study(self.area, "large", *astuple(self.sizes.large))
        runs = [measure(self._generate_argv(study), timeout=600) for _ in range(self.sizes.large_repeats)]
        folder = Path(runs[-1].output.strip())
        self.large_dag = RunFolder(folder).study_dag
        seconds = statistics.median(run.seconds for run in runs)
        return {"seconds": seconds, "peak": max(run.peak_mb for run in runs), "disk": disk_mb(folder)}

    @cached_property
    def _large_peer(self) -> dict[str, float]:
        """Once only, as it takes long; empty if it had to be stopped."""
        try:
            run = measure(self._dag_argv("peer-large", self.sizes.large), timeout=self.sizes.limit)
        except NotMeasuredError:
            return {}
        return {"seconds": run.seconds, "peak": run.peak_mb, "disk": disk_mb(self.area / "peer-large")}

    def parse(self) -> Iterator[Row]:
        """HTCondor reads the large DAG; the peer is the same graph as htcondor2.dags writes it."""
        if not self._large_ours:  # written now, if --only left `large` out
            raise NotMeasuredError("the large DAG was not written")
        for name, suite, program, parse in (
            (TRIXIE, "trixie", "condor_dagman", parsing.parse_dag),
            (FORKY, "forky", "condor_dag_checker", parsing.check_dag),
        ):
            with pools.pool_up(name, suite, self.area) as pool:
                ours, limit = parse(pool, self.large_dag, self.sizes.limit), self.sizes.limit
                peer = parse(pool, self.area / "peer-large" / "study.dag", limit) if self._large_peer else None
                what = f"{program} {pools.dotted(pool)} parses the large DAG ({ours.nodes:,} nodes seen)"
            yield Row(what, ours.seconds, peer.seconds if peer else None, "s")
            if ours.peak_mb:
                yield Row(f"{what}: peak memory", ours.peak_mb, peer.peak_mb if peer else None, "MB")

    def barrier(self) -> Iterator[Row]:
        """From the end of a round's last trial to the start of the next one's first."""
        shape = astuple(self.sizes.barrier)
        with pools.pool_up(TRIXIE, "trixie", self.area, GPUS) as pool:
            run = self._generate(made_up_study.write_study(self.area, "barrier", *shape), pools.dotted(pool))
            sides = [rounds.barriers(pool, run.study_dag, *shape)]
            sides.append(rounds.barriers(pool, rounds.plain_dag(self.area / "plain", *shape), *shape))
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
            run = self._generate(made_up_study.write_study(self.area, "status", *astuple(shape)), pools.dotted(pool))
            trials = shape.rounds * shape.parallel
            slugs = list(json.loads(run.manifest.read_text(encoding="utf-8"))["regions"])
            made_up_study.fill_journals(run, slugs, trials, int(trials * SETTLED_SHARE))
            made_up_study.write_dagman_log(run, cluster=999_999)
            argv: list[str | Path] = [*pools.REGIONDAG, "status", run.path, "--pool", TRIXIE]
            ours, peer = seconds_in_turn(
                argv, module("manager.peers", "events", log), repeats=self.sizes.status_repeats
            )
        name = f"status of {shape.trials:,} trials, {SETTLED_SHARE:.0%} settled"
        yield Row(f"{name} (peer: htcondor2.JobEventLog over as many jobs)", ours, peer, "s", goal=2)

    def help(self) -> Iterator[Row]:
        """`regiondag --help`; for scale, the import of HTCondor's bindings alone."""
        script = Path(sys.executable).with_name("regiondag")
        argv = [*([script] if script.exists() else pools.REGIONDAG), "--help"]
        ours, peer = seconds_in_turn(argv, [sys.executable, "-c", "import htcondor2"], repeats=self.sizes.help_repeats)
        yield Row("regiondag --help (peer: import htcondor2 alone)", ours, peer, "s", goal=0.3)

    def _generate_argv(self, study: Path, version: str = "23.9") -> list[str | Path]:
        out = self.area / "runs"
        return [*pools.REGIONDAG, "generate", study, "--htcondor", version, "--champions", "none", "--out", out]

    def _generate(self, study: Path, version: str) -> RunFolder:
        return RunFolder(Path(measure(self._generate_argv(study, version)).output.strip()))

    def _dag_argv(self, name: str, shape: Shape) -> list[str | Path]:
        return module("manager.peers", "dag", self.area / name, *map(str, astuple(shape)))


if __name__ == "__main__":
    sys.exit(main(BENCH, lambda area, quick: Orchestration(area, QUICK if quick else FULL).groups))
