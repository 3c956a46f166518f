#!/usr/bin/env python3
"""How long regiondag's manager side takes, beside HTCondor's own tools. See README.md in this folder."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import orchestration_inputs as inputs
import orchestration_pool as pools
from harness import NotMeasuredError, Row, disk_mb, finish, in_turn, measure, measure_groups, options, work_area

from regiondag.pool.pool import Pool
from regiondag.run.layout import RunFolder

BENCH = "orchestration"
PEERS = Path(__file__).with_name("orchestration_peers.py")
TRIXIE, FORKY = "bench-trixie", "bench-forky"
GPUS = 2


@dataclass(frozen=True)
class Shape:
    """Size of a study."""

    regions: int
    rounds: int
    parallel: int

    @property
    def numbers(self) -> tuple[int, int, int]:
        """The three numbers, as the inputs take them."""
        return self.regions, self.rounds, self.parallel

    @property
    def trials(self) -> int:
        """Trials over all regions."""
        return self.regions * self.rounds * self.parallel

    def __str__(self) -> str:
        return f"{self.regions:,} regions x {self.rounds} rounds x {self.parallel}"


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    generate: Shape = Shape(41, 10, 8)
    generate_repeats: int = 5
    large: Shape = Shape(1000, 100, 10)
    large_repeats: int = 3
    barrier: Shape = Shape(2, 6, 2)
    status: Shape = Shape(100, 100, 10)
    status_repeats: int = 5
    settled_share: float = 0.95
    help_repeats: int = 11
    limit: float = 300  # seconds, of one side


QUICK = Sizes(
    generate_repeats=1,
    large=Shape(100, 10, 10),
    large_repeats=1,
    barrier=Shape(1, 3, 2),
    status=Shape(10, 100, 10),
    status_repeats=1,
    help_repeats=3,
    limit=30,
)


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
        shape, limit = self.sizes.generate, self.sizes.limit
        study = inputs.write_study(self.area, "usual", *shape.numbers)
        medians = in_turn(
            {
                "ours": lambda: measure(self._generate_argv(study), timeout=limit).seconds,
                "peer": lambda: measure(self._dag_argv("peer-usual", shape), timeout=limit).seconds,
            },
            self.sizes.generate_repeats,
        )
        what = "ours also copies data, takes digests, packs code; peer htcondor2.dags writes the DAG only"
        yield Row(f"generate, {shape} ({what})", medians["ours"], medians["peer"], "s", goal=2)

    def large(self) -> Iterator[Row]:
        """`generate` of a million nodes."""
        ours, peer = self._large_ours, self._large_peer
        name = f"generate, {self.sizes.large} = {self.sizes.large.trials:,} trials"
        stopped = "" if peer else f" (peer: stopped after {self.sizes.limit:.0f} s)"
        yield Row(name + stopped, ours["seconds"], peer.get("seconds"), "s", goal=60)
        yield Row(f"{name}: peak memory", ours["peak"], peer.get("peak"), "MB", goal=500)
        yield Row(f"{name}: on disk", ours["disk"], peer.get("disk"), "MB")

    @cached_property
    def large_study(self) -> Path:
        """study.yaml of the large study."""
        return inputs.write_study(self.area, "large", *self.sizes.large.numbers)

    @cached_property
    def _large_ours(self) -> dict[str, float]:
        runs = [measure(self._generate_argv(self.large_study), timeout=600) for _ in range(self.sizes.large_repeats)]
        folders = [Path(run.output.strip()) for run in runs]
        self.large_dag = RunFolder(folders[-1]).study_dag
        return {
            "seconds": statistics.median(run.seconds for run in runs),
            "peak": max(run.peak_mb for run in runs),
            "disk": disk_mb(folders[-1]),
        }

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
        with pools.pool_up(TRIXIE, "trixie", self.area) as pool:
            yield from self._parse_rows(pool, "condor_dagman")
        with pools.pool_up(FORKY, "forky", self.area) as pool:
            yield from self._parse_rows(pool, "condor_dag_checker")

    def _parse_rows(self, pool: Pool, program: str) -> Iterator[Row]:
        parse = pools.parse_dag if program == "condor_dagman" else pools.check_dag
        ours = parse(pool, self.large_dag, self.sizes.limit)
        peer = parse(pool, self.area / "peer-large" / "study.dag", self.sizes.limit) if self._large_peer else None
        name = f"{program} {_dotted(pool)} parses the large DAG ({ours.nodes:,} nodes seen)"
        yield Row(name, ours.seconds, peer and peer.seconds, "s")
        if ours.peak_mb:
            yield Row(f"{name}: peak memory", ours.peak_mb, peer and peer.peak_mb, "MB")

    def barrier(self) -> Iterator[Row]:
        """From the end of a round's last trial to the start of the next one's first."""
        with pools.pool_up(TRIXIE, "trixie", self.area, GPUS) as pool:
            shape = self.sizes.barrier
            run = self._generate(inputs.write_study(self.area, "barrier", *shape.numbers), pool)
            ours = self._barriers(pool, run.study_dag)
            peer = self._barriers(
                pool, pools.plain_dag(self.area / "plain", shape.regions, shape.rounds, shape.parallel)
            )
            scripts = pools.script_seconds((run.path / "study.dag.dagman.out").read_text(encoding="utf-8"))
        name = f"barrier between two rounds, median of {len(ours)} (peer: the same DAG without scripts, by hand)"
        note = "\n".join(
            [
                f"whole: {_range([one.total for one in ours])}; without scripts: {_range([one.total for one in peer])}",
                f"medians of the parts, ours: {pools.median_of(ours)}",
                f"medians of the parts, peer: {pools.median_of(peer)}",
                "means of DAGMan's whole-second stamps: "
                + ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in scripts.items()),
                "rounds that a model proposes; the event log has milliseconds; the pool scans its logs every second",
            ]
        )
        totals = [statistics.median(one.total for one in side) for side in (ours, peer)]
        yield Row(name, *totals, "s", goal=5, note=note)

    def _barriers(self, pool: Pool, dag: Path) -> list[pools.Barrier]:
        shape, log = self.sizes.barrier, dag.with_name(f"{dag.name}.nodes.log")
        pools.submit(pool, dag)
        pools.wait_for(lambda: _started(log) >= shape.trials, 40 * shape.rounds, "the last round")
        times = pools.read_events(log)
        add_journals(RunFolder(dag.parent), times)
        return [
            pools.barrier(before, after)
            for index, before, after in pools.rounds_of(times, shape.parallel)
            if pools.fits_model(index, shape.parallel, shape.rounds)
        ]

    def status(self) -> Iterator[Row]:
        """`status` of a long run, with a pool whose queue is asked; the peer reads an event log of as many jobs."""
        shape = self.sizes.status
        log = self.area / "nodes.log"
        inputs.write_event_log(log, shape.trials)
        with pools.pool_up(TRIXIE, "trixie", self.area, GPUS) as pool:
            run = self._generate(inputs.write_study(self.area, "status", *shape.numbers), pool)
            trials = shape.rounds * shape.parallel
            slugs = list(json.loads(run.manifest.read_text(encoding="utf-8"))["regions"])
            inputs.fill_journals(run, slugs, trials, int(trials * self.sizes.settled_share))
            inputs.write_dagman_log(run, cluster=999_999)
            argv = [*pools.REGIONDAG, "status", run.path, "--pool", TRIXIE]
            medians = in_turn(
                {
                    "ours": lambda: measure(argv).seconds,
                    "peer": lambda: measure([sys.executable, PEERS, "events", log]).seconds,
                },
                self.sizes.status_repeats,
            )
        name = f"status of {shape.trials:,} trials, {self.sizes.settled_share:.0%} settled"
        yield Row(
            f"{name} (peer: htcondor2.JobEventLog over as many jobs)", medians["ours"], medians["peer"], "s", goal=2
        )

    def help(self) -> Iterator[Row]:
        """`regiondag --help`; for scale, the import of HTCondor's bindings alone."""
        script = Path(sys.executable).with_name("regiondag")
        ours = [script] if script.exists() else list(pools.REGIONDAG)
        medians = in_turn(
            {
                "ours": lambda: measure([*ours, "--help"]).seconds,
                "peer": lambda: measure([sys.executable, "-c", "import htcondor2"]).seconds,
            },
            self.sizes.help_repeats,
        )
        yield Row("regiondag --help (peer: import htcondor2 alone)", medians["ours"], medians["peer"], "s", goal=0.3)

    def _generate_argv(self, study: Path, version: str = "23.9") -> list[str | Path]:
        out = self.area / "runs"
        return [*pools.REGIONDAG, "generate", study, "--htcondor", version, "--champions", "none", "--out", out]

    def _generate(self, study: Path, pool: Pool) -> RunFolder:
        return RunFolder(Path(measure(self._generate_argv(study, _dotted(pool))).output.strip()))

    def _dag_argv(self, name: str, shape: Shape) -> list[str | Path]:
        return [sys.executable, PEERS, "dag", self.area / name, *map(str, shape.numbers)]


def _dotted(pool: Pool) -> str:
    return ".".join(map(str, pool.version))


def _started(log: Path) -> int:
    """Return how many jobs an event log says have started."""
    done = subprocess.run(["grep", "-c", "^001 ", str(log)], capture_output=True, text=True, check=False)
    return int(done.stdout or 0)


def add_journals(run: RunFolder, times: dict[str, pools.Times]) -> None:
    """Take from the journals when each trial was proposed and settled."""
    for journal in run.path.glob("regions/*/trials.jsonl"):
        for line in journal.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            node = times.get(f"{journal.parent.name}_t{record['trial']:04d}") if record["trial"] is not None else None
            if node and record["event"] in ("proposed", "settled"):
                setattr(node, record["event"], record["time"])


def _range(seconds: list[float]) -> str:
    return f"{min(seconds):.1f} to {max(seconds):.1f} s"


def main() -> int:
    """Measure and print."""
    arguments = options(BENCH, Orchestration(Path(), QUICK).groups)
    with work_area() as area:
        bench = Orchestration(area, QUICK if arguments.quick else Sizes())
        rows = measure_groups(bench.groups, arguments.only)
    return finish(BENCH, rows, arguments)


if __name__ == "__main__":
    sys.exit(main())
