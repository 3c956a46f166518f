#!/usr/bin/env python3
"""How good our default tuner is beside others, and what it costs the manager. See README.md in this folder.

With --method or --problem only a part is measured, and nothing is kept but its runs: they lie in the folder --area,
and the next call goes on from there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import harness
import kept_runs
from harness import Row, measure_groups, table, to_json
from tuner_cost import PROPOSALS, TRIALS
from tuner_peers import BUDGETS, GP_SAMPLER, METHODS, OURS, RANDOM, SKOPT, TPE
from tuner_problems import problems
from tuner_runs import FOLDER, Area, Key, Run, version
from tuner_stats import Comparison, compare, medians_text, published

BENCH = "tuner"
AREA = harness.WORK / BENCH
PEERS = {GP_SAMPLER: "Optuna's GPSampler", TPE: "Optuna's TPE", SKOPT: "scikit-optimize", RANDOM: "random"}
GOALS = {GP_SAMPLER: 0.8, TPE: 0.4, SKOPT: 0.4}
harness.PACKAGES = (*harness.PACKAGES, "scikit-learn")


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    problems: tuple[str, ...] = tuple(problems())
    methods: tuple[str, ...] = tuple(METHODS)
    seeds: int = 10
    skopt_seeds: int = 10  # scikit-optimize takes as long as all others together
    cpu_problems: tuple[str, ...] = ("branin2", "hart6", "nn8")
    regions: int = 41
    skopt_regions: int = 3
    trials: int = TRIALS
    workers: int = 1
    goals: bool = True  # they are for the full sizes


QUICK = Sizes(
    problems=("branin2", "nn8"),
    methods=(OURS, TPE, RANDOM),
    seeds=2,
    cpu_problems=("branin2",),
    regions=2,
    skopt_regions=1,
    trials=40,
    goals=False,
)


class TunerBench:
    """The rows, in groups that can be measured alone."""

    def __init__(self, sizes: Sizes, area: Area) -> None:
        self.sizes = sizes
        self.area = area
        self.runs: list[Run] = []
        self.groups = {"regret": self.regret, "cpu": self.cpu, "cost": self.cost}

    @property
    def complete(self) -> bool:
        """Whether every run is there."""
        return len(self.runs) == len(self.keys())

    def keys(self) -> list[Key]:
        """Return all runs, every problem and seed of a method before the next method."""
        sizes = self.sizes
        seeds = {m: min(sizes.seeds, sizes.skopt_seeds) if m == SKOPT else sizes.seeds for m in sizes.methods}
        return [Key(p, m, s) for m in sizes.methods for s, p in product(range(seeds[m]), sizes.problems)]

    def regret(self) -> Iterator[Row]:
        """Make the runs that are missing; then two rows for each peer and budget."""
        for text in self.area.fill(self.keys(), self.sizes.workers):
            print(text, file=sys.stderr, flush=True)
        self.runs = self.area.all(self.keys())
        for peer, budget in product(PEERS, BUDGETS):
            found = compare(self._of(OURS), self._of(peer), budget)
            if found:
                yield from self._regret_rows(found, peer, budget)

    def _of(self, method: str) -> list[Run]:
        return [run for run in self.runs if run.key.method == method]

    def _regret_rows(self, found: Comparison, peer: str, budget: int) -> Iterator[Row]:
        name = f"{PEERS[peer]}, {budget} evaluations"
        note = (
            f"90 % of the ratio: {found.interval[0]:.2f} to {found.interval[1]:.2f}; with floors ten times as high "
            f"{found.coarser:.2f}\n"
            + ", ".join(f"{problem} {ratio:.2f}" for problem, ratio in found.by_problem.items())
        )
        goal = GOALS.get(peer) if self.sizes.goals else None
        yield Row(f"regret as a part of the peer's ({found.pairs} pairs): {name}", found.ratio, 1.0, "", goal, note)
        limit = found.losses + 1 if self.sizes.goals and peer == GP_SAMPLER else None
        wins = f"pairs won, lost as peer ({found.ties} ties): {name}"
        yield Row(wins, found.wins, found.losses, "", limit, higher=True)

    def cpu(self) -> Iterator[Row]:
        """What a run costs, by runs made anew and in turn: kept ones may be from a busier hour."""
        sizes = self.sizes
        with tempfile.TemporaryDirectory() as scratch:
            area = Area(Path(scratch))
            keys = [Key(problem, method, 0) for problem in sizes.cpu_problems for method in sizes.methods]
            for text in area.fill(keys, 1):
                print(text, file=sys.stderr, flush=True)
            runs = area.all(keys)
        seconds = {m: [run.seconds for run in runs if run.key.method == m] for m in sizes.methods}
        for peer in (GP_SAMPLER, TPE, SKOPT):
            if seconds.get(OURS) and seconds.get(peer):
                name = f"CPU of {BUDGETS[-1]} evaluations, mean of {', '.join(sizes.cpu_problems)}: {PEERS[peer]}"
                yield Row(name, statistics.fmean(seconds[OURS]), statistics.fmean(seconds[peer]), "s")

    def cost(self) -> Iterator[Row]:
        """The manager's part of a round, every region's proposals in a process of their own."""
        sizes = self.sizes
        ours = [self._cost(OURS, region) for region in range(sizes.regions)]
        together = [self._cost(OURS, region, sizes.regions - 1) for region in range(sizes.regions)]
        peer = [self._cost(SKOPT, region) for region in range(sizes.skopt_regions)]
        what = f"{PROPOSALS} proposals at {sizes.trials} trials"
        seconds, theirs = sum(cpu for cpu, _ in ours), statistics.fmean(cpu for cpu, _ in peer)
        limits = (60.0, 500.0) if sizes.goals else (None, None)
        yield Row(f"{sizes.regions} regions x {what}: CPU", seconds, None, "s", limits[0])
        learning = f"{sizes.regions} regions x {what}, share: model: CPU"
        yield Row(learning, sum(cpu for cpu, _ in together), None, "s", limits[0])
        per = f"a region's {what}: CPU, mean (peer: scikit-optimize, {sizes.skopt_regions} regions)"
        yield Row(per, seconds / sizes.regions, theirs, "s")
        peaks = [max(mb for _, mb in side) for side in ([*ours, *together], peer)]
        yield Row(f"a region's {what}: peak memory, the largest", peaks[0], peaks[1], "MB", limits[1])

    def _cost(self, method: str, region: int, neighbours: int = 0) -> tuple[float, float]:
        words = [method, str(region), str(self.sizes.trials), str(PROPOSALS), str(neighbours)]
        found = kept_runs.measured([sys.executable, FOLDER / "tuner_cost.py", *words])
        return float(found.output), found.peak_mb

    def to_json(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Return the form in which results are kept: besides the rows every run."""
        known = {name: problems()[name] for name in self.sizes.problems}
        return {
            **to_json(BENCH, rows),
            "tuners": {method: version(method) for method in self.sizes.methods},
            "problems": {name: {"optimum": p.optimum, "floor": p.floor} for name, p in known.items()},
            "notes": {row.workload: row.note for row in rows if row.note},
            "seeds": list(range(self.sizes.seeds)),
            "regrets": published(self.runs, range(self.sizes.seeds)),
        }


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench/tuner.py", allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="few problems and peers, about a minute; nothing is kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    parser.add_argument("--only", choices=("regret", "cpu", "cost"), help="measure only these rows; nothing is kept")
    parser.add_argument("--method", nargs="+", choices=tuple(METHODS), help="only these tuners")
    parser.add_argument("--problem", nargs="+", choices=tuple(problems()), help="only these problems")
    parser.add_argument("--seeds", type=int, help=f"seeds 0 ... N - 1 of each problem; {Sizes().seeds} without this")
    parser.add_argument("--skopt-seeds", type=int, help="as many for scikit-optimize, whose runs take the longest")
    parser.add_argument("--area", type=Path, default=AREA, help=f"where runs are kept; {AREA} without this")
    parser.add_argument("--workers", type=int, choices=(1, 2), default=1, help="runs at the same time")
    return parser.parse_args(argv)


def sizes_of(arguments: argparse.Namespace) -> Sizes:
    """Return the sizes that the command line asks for."""
    sizes = QUICK if arguments.quick else Sizes()
    return replace(
        sizes,
        problems=tuple(arguments.problem or sizes.problems),
        methods=tuple(arguments.method or sizes.methods),
        seeds=arguments.seeds or sizes.seeds,
        skopt_seeds=arguments.skopt_seeds or sizes.skopt_seeds,
        workers=arguments.workers,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; keep the results when nothing is missing from them."""
    arguments = options(argv)
    with tempfile.TemporaryDirectory() as scratch:
        sizes = sizes_of(arguments)
        bench = TunerBench(sizes, Area(Path(scratch) if arguments.quick else arguments.area))
        rows = measure_groups(bench.groups, arguments.only)
    if bench.runs:
        print(medians_text(bench.runs, sizes.methods), end="\n\n")
    print(table(rows))
    text = json.dumps(bench.to_json(rows), ensure_ascii=False, indent=1) + "\n"
    if arguments.json:
        arguments.json.write_text(text, encoding="utf-8")
    part = arguments.quick or arguments.only or arguments.method or arguments.problem
    if not part and bench.complete and sizes.seeds >= Sizes().seeds:
        (harness.RESULTS / f"{BENCH}.json").write_text(text, encoding="utf-8")
    lacking = arguments.only in (None, "regret") and not bench.complete
    return int(lacking or any(row.met is False or row.ours is None for row in rows))


if __name__ == "__main__":
    sys.exit(main())
