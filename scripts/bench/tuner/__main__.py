"""How good our default tuner is beside others, and what it costs the manager.

Runs are kept in .bench/tuner, and the next call goes on from there.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import ONE_THREAD, measure, module
from scripts.bench.tuner.peers import BUDGETS, GP_SAMPLER, METHODS, OURS, RANDOM, SKOPT, TPE
from scripts.bench.tuner.problems import names, problem
from scripts.bench.tuner.runs import Key, Run, runs_in, version
from scripts.bench.tuner.stats import Comparison, compare, published, scales

BENCH = "tuner"
PEERS = {GP_SAMPLER: "Optuna's GPSampler", TPE: "Optuna's TPE", SKOPT: "scikit-optimize", RANDOM: "random"}
GOALS = {GP_SAMPLER: 0.8, TPE: 0.4, SKOPT: 0.4}
PROPOSALS = 8  # of a round


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    problems: tuple[str, ...] = names()
    methods: tuple[str, ...] = tuple(METHODS)
    seeds: int = 10
    cpu_problems: tuple[str, ...] = ("branin2", "hart6", "nn8")
    regions: int = 41
    skopt_regions: int = 3
    trials: int = 200


QUICK = Sizes(("branin2",), (OURS, TPE, RANDOM), 1, ("branin2",), regions=2, skopt_regions=1, trials=40)


class TunerBench(Bench[Sizes]):
    """The rows."""

    runs: Sequence[Run] = ()

    def regret(self) -> Iterator[Row]:
        """Make the runs that are missing; then two rows for each peer and budget."""
        sizes = self.sizes  # every problem and seed of a method before the next method
        keys = [Key(p, m, s) for m, s, p in product(sizes.methods, range(sizes.seeds), sizes.problems)]
        self.runs = runs_in(self.area).fill_all(keys)
        measured = scales(self.runs)
        for peer, budget in product(PEERS, BUDGETS):
            if peer in sizes.methods:
                yield from _regret_rows(compare(self._of(OURS), self._of(peer), budget, measured), peer, budget)

    def _of(self, method: str) -> list[Run]:
        return [run for run in self.runs if run.key.method == method]

    def cpu(self) -> Iterator[Row]:
        """What a run costs, by runs made anew and in turn: kept ones may be from a busier hour."""
        sizes = self.sizes
        with tempfile.TemporaryDirectory() as scratch:
            runs = runs_in(Path(scratch)).fill([Key(p, m, 0) for p, m in product(sizes.cpu_problems, sizes.methods)])
        seconds = {m: statistics.fmean(run.seconds for run in runs if run.key.method == m) for m in sizes.methods}
        for peer in (GP_SAMPLER, TPE, SKOPT):
            if peer in seconds:
                name = f"CPU of {BUDGETS[-1]} evaluations, mean of {', '.join(sizes.cpu_problems)}: {PEERS[peer]}"
                yield Row(name, seconds[OURS], seconds[peer], "s")

    def cost(self) -> Iterator[Row]:
        """The manager's part of a round, every region's proposals in a process of their own."""
        sizes = self.sizes
        ours = [self._cost(OURS, region) for region in range(sizes.regions)]
        together = [self._cost(OURS, region, sizes.regions - 1) for region in range(sizes.regions)]
        peer = [self._cost(SKOPT, region) for region in range(sizes.skopt_regions)]
        what = f"{PROPOSALS} proposals at {sizes.trials} trials"
        seconds, theirs = sum(cpu for cpu, _ in ours), statistics.fmean(cpu for cpu, _ in peer)
        yield Row(f"{sizes.regions} regions x {what}: CPU", seconds, None, "s", 60)
        learning = f"{sizes.regions} regions x {what}, share: model: CPU"
        yield Row(learning, sum(cpu for cpu, _ in together), None, "s", 60)
        per = f"a region's {what}: CPU, mean (peer: scikit-optimize, {sizes.skopt_regions} regions)"
        yield Row(per, seconds / sizes.regions, theirs, "s")
        most, theirs = (max(mb for _, mb in side) for side in ([*ours, *together], peer))
        yield Row(f"a region's {what}: peak memory, the largest", most, theirs, "MB", 500)

    def _cost(self, method: str, region: int, neighbours: int = 0) -> tuple[float, float]:
        words = [method, *map(str, (region, self.sizes.trials, PROPOSALS, neighbours))]
        found = measure(module("tuner.cost", *words), env=ONE_THREAD)
        return float(found.output), found.peak_mb

    def details(self, rows: Sequence[Row]) -> dict[str, object]:
        """Return what is kept besides the rows: every run."""
        known = [problem(name) for name in self.sizes.problems]
        seeds = range(self.sizes.seeds)
        return {
            "tuners": {method: version(method) for method in self.sizes.methods},
            "problems": {p.name: {"source": p.source, "kinds": sorted(p.kinds), "optimum": p.optimum} for p in known},
            "notes": {row.workload: row.note for row in rows if row.note},
            "seeds": list(seeds),
            "regrets": published(self.runs, seeds, scales(self.runs)),
        }


def _regret_rows(found: Comparison, peer: str, budget: int) -> Iterator[Row]:
    name = f"{PEERS[peer]}, {budget} evaluations"
    note = (
        f"90 % of the ratio: {found.interval[0]:.2f} to {found.interval[1]:.2f}; with floors ten times as high "
        f"{found.coarser:.2f}\n" + ", ".join(f"{problem} {ratio:.2f}" for problem, ratio in found.by_problem.items())
    )
    yield Row(
        f"regret as a part of the peer's ({found.pairs} pairs): {name}", found.ratio, 1.0, "", GOALS.get(peer), note
    )
    limit = found.losses + 1 if peer == GP_SAMPLER else None
    wins = f"pairs won, lost as peer ({found.ties} ties): {name}"
    yield Row(wins, found.wins, found.losses, "", limit, higher=True)


if __name__ == "__main__":
    sys.exit(main(BENCH, TunerBench, Sizes(), QUICK, kept=True))
