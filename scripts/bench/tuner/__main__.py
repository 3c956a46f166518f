"""How good our default tuner is beside others, and what it costs the manager.

Runs are kept where `compare` keeps them, and go into the repository's record when all are there; the next call goes on
from both. All sizes can be made smaller, and with --no-runs whatever is there so far is told; the results say what it
was. The held-out half has results of its own.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from scripts.bench.common import harness
from scripts.bench.common.harness import Bench, Row
from scripts.bench.common.processes import ONE_THREAD, measure, module
from scripts.bench.tuner.compare import KEPT, choose, count_looks, note_look, open_record, runs_of
from scripts.bench.tuner.methods import GP_SAMPLER, OURS, RANDOM, SKOPT, TPE, methods
from scripts.bench.tuner.problems import problem
from scripts.bench.tuner.report import classes, groups_of, standings, values_of
from scripts.bench.tuner.runs import Key, Run
from scripts.bench.tuner.stats import (
    Ground,
    compare,
    count_common,
    ground,
    leave_out_rare,
    leave_out_unfinished,
    mean_ranks,
    whole,
    worse_than,
)
from scripts.bench.tuner.tuners.face import BUDGETS, MODES, ROUNDS

BENCH = "tuner_public"
HELD_OUT = "tuner_held_out"
RATIO_GOALS = {(TPE, 60): 0.5}  # of regrets; at 28 the interval is to lie below 1
RANKED = (28, 60)  # after which ours is to have the best mean rank
PROPOSALS = 8  # of a round
FULL_SEEDS = 20  # on all problems, before a goal is judged


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    methods: tuple[str, ...] = tuple(methods())
    modes: tuple[str, ...] = MODES
    budget: int = BUDGETS[-1]
    seeds: int = FULL_SEEDS
    problems: tuple[str, ...] | None = None  # else all of the half
    held_out: bool = False
    runs: bool = True  # whether those that are missing are made
    cpu_problems: tuple[str, ...] = ("branin2", "hart6", "nn8")
    regions: int = 41
    skopt_regions: int = 3
    trials: int = 200


QUICK = Sizes(
    methods=(OURS, TPE, RANDOM),
    modes=(ROUNDS,),
    budget=BUDGETS[0],
    seeds=1,
    problems=("branin2", "func3c", "hart6-cut", "svr-diabetes"),
    cpu_problems=("branin2",),
    regions=2,
    skopt_regions=1,
    trials=40,
)


class TunerBench(Bench[Sizes]):
    """The rows."""

    def __init__(self, area: Path, sizes: Sizes) -> None:
        super().__init__(area, sizes)
        self.runs: Sequence[Run] = ()
        self.grounds: dict[tuple[str, int], Ground] = {}

    def regret(self) -> Iterator[Row]:
        """Make the runs that are missing; then some rows for each mode and budget."""
        sizes = self.sizes
        chosen = choose(sizes.problems, None, None, held_out=sizes.held_out)
        if sizes.held_out:
            note_look(f"{', '.join(sizes.modes)}, {sizes.budget} trials, {sizes.seeds} seeds: the benchmark")
        seeds = range(sizes.seeds)
        orders = product(sizes.modes, seeds, sizes.methods, chosen)
        least = sizes.budget if sizes.runs else BUDGETS[0]
        keys = [Key(name, method, mode, seed, least) for mode, seed, method, name in orders]
        record = open_record() if self.area == KEPT and not sizes.held_out else None  # quick runs stay out of it
        folder = KEPT if sizes.held_out else self.area
        self.runs = runs_of(keys, methods(), folder, make=sizes.runs, record=record)
        if record:
            record.add(self.runs, lambda name: problem(name).optimum)
        for mode in sizes.modes:
            values = values_of(run for run in self.runs if run.key.mode == mode)
            optima = {name: problem(name).optimum for name in values}
            for budget in (budget for budget in BUDGETS if budget <= sizes.budget):
                found = leave_out_unfinished(leave_out_rare(ground(values, optima, budget, RANDOM)))
                if OURS not in found.tuners:
                    continue
                self.grounds[mode, budget] = found
                often = found.only([]) if sizes.problems else whole(found, FULL_SEEDS)
                yield from _rows(found, often, f"{mode}, {budget} trials", budget)

    def cpu(self) -> Iterator[Row]:
        """What a run costs, by runs made anew: kept ones may be from a busier hour."""
        sizes = self.sizes
        keys = [Key(p, m, ROUNDS, 0, sizes.budget) for p, m in product(sizes.cpu_problems, sizes.methods)]
        with tempfile.TemporaryDirectory() as scratch:
            runs = runs_of(keys, methods(), Path(scratch))
        seconds = {
            method: statistics.fmean(run.seconds for run in runs if run.key.method == method)
            for method in dict.fromkeys(run.key.method for run in runs)
        }
        for peer in (method for method in seconds if method not in (OURS, RANDOM)):
            where = f"mean of {', '.join(sizes.cpu_problems)}: {methods()[peer].title}"
            yield Row(f"CPU of {sizes.budget} trials, {where}", seconds[OURS], seconds[peer], "s")

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
        """Return what is kept besides the rows: how often who ran, how everyone stands, and regrets of no record."""
        known = dict.fromkeys(run.key.problem for run in self.runs)
        groups = groups_of({n: problem(n).kinds for n in known}, {n: problem(n).source for n in known})
        return {
            "half": "held out" if self.sizes.held_out else "for development",
            "looks_at_held_out": count_looks(),
            "seeds": {
                f"{mode}, {budget}": {tuner: _seeds_of(found, tuner) for tuner in found.tuners}
                for (mode, budget), found in self.grounds.items()
            },
            "tuners": {method: methods()[method].version for method in dict.fromkeys(r.key.method for r in self.runs)},
            "problems": {
                name: {"source": p.source, "kinds": sorted(p.kinds), "optimum": p.optimum}
                for name, p in ((name, problem(name)) for name in known)
            },
            "notes": {row.workload: row.note for row in rows if row.note},
            "tables": {f"{mode}, {budget}": _tables(found, groups) for (mode, budget), found in self.grounds.items()},
            "regrets": {
                f"{mode}, {budget}": _published(found)
                for (mode, budget), found in self.grounds.items()
                if self.sizes.held_out
            },
        }


def _rows(found: Ground, often: Ground, where: str, budget: int) -> Iterator[Row]:
    """Give the rows of one mode and budget; goals are for the tuners that ran `often`, on all problems."""
    goal = budget in RANKED
    if len(often.tuners) > 1:
        name = f"mean rank of the {len(often.tuners)} tuners with {FULL_SEEDS} seeds or more: {where}"
        yield _rank_row(often, name, goal=goal)
    if len(found.tuners) > len(often.tuners):
        yield _rank_row(found, f"mean rank of all {len(found.tuners)} tuners: {where}", goal=False)
    for peer in (tuner for tuner in found.tuners if tuner != OURS):
        beside = compare(found, OURS, peer)
        if beside is None:
            continue
        judged = {OURS, peer} <= set(often.tuners)
        title = f"{methods()[peer].title}, {where}"
        limit = RATIO_GOALS.get((peer, budget)) if judged else None
        name = f"regret as a part of the peer's: {title}"
        yield Row(name, beside.ratios[0].value, 1.0, "", limit, beside.describe())
        if peer == TPE:
            upper = max(ratio.high for ratio in beside.ratios)
            limit = 1 if goal and judged else None
            yield Row(f"the same, upper end of its interval: {title}", upper, None, "", limit)
        yield Row(f"pairs won, lost as peer ({beside.ties} ties): {title}", beside.wins, beside.losses, "", higher=True)
    worse = {tuner: worse_than(found, tuner, RANDOM) for tuner in (OURS, TPE) if tuner in found.tuners}
    name = f"problems surely worse than by random search (peer: Optuna's TPE): {where}"
    theirs = len(worse[TPE]) if TPE in worse else None
    limit = 0 if goal and OURS in often.tuners else None
    yield Row(name, len(worse[OURS]), theirs, "", limit, ", ".join(worse[OURS]))
    categories = often.only([name for name in found.regrets if "categories" in problem(name).kinds])
    if categories.regrets and len(often.tuners) > 1:
        yield _rank_row(categories, f"mean rank on problems with categories, of the same: {where}", goal=goal)


def _rank_row(found: Ground, name: str, *, goal: bool) -> Row:
    """Return a row with our mean rank beside the best of the others."""
    ranks = {tuner: rank for tuner, (rank, _) in mean_ranks(found, found.tuners).items()}
    runs = count_common(found)
    note = f"{runs} runs of each: " + ", ".join(f"{t} {r:.2f}" for t, r in sorted(ranks.items(), key=lambda i: i[1]))
    best = min((rank for tuner, rank in ranks.items() if tuner != OURS), default=None)
    return Row(name, ranks.get(OURS), best, "", 1 if goal else None, note, goal_is_ratio=goal)


def _tables(found: Ground, groups: dict[str, list[str]]) -> dict[str, object]:
    peers = [peer for peer in (TPE, GP_SAMPLER) if peer in found.tuners]
    return {
        "standings": standings(found, found.tuners, peers, RANDOM),
        **{f"classes beside {peer}": classes(found, found.tuners, peer, groups) for peer in peers},
    }


def _seeds_of(found: Ground, tuner: str) -> list[int]:
    """Return the least and the largest number of a tuner's seeds on a problem."""
    numbers = [len(regrets.get(tuner, {})) for regrets in found.regrets.values()]
    return [min(numbers), max(numbers)]


def _published(found: Ground) -> dict[str, dict[str, list[float]]]:
    """Return all regrets as they are, by problem and tuner, in the order of the seeds."""
    return {
        name: {tuner: [float(f"{seeds[seed]:.4g}") for seed in sorted(seeds)] for tuner, seeds in regrets.items()}
        for name, regrets in found.regrets.items()
    }


def sizes_of(argv: Sequence[str]) -> tuple[Sizes, list[str]]:
    """Return the sizes that a command line asks for, and the words that all benchmarks have."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--methods", type=lambda text: tuple(text.split(",")))
    parser.add_argument("--modes", type=lambda text: tuple(text.split(",")))
    parser.add_argument("--problems", type=lambda text: tuple(text.split(",")))
    parser.add_argument("--budget", type=int, choices=BUDGETS)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--no-runs", action="store_false", dest="runs")
    asked, rest = parser.parse_known_args(argv)
    given = {name: value for name, value in vars(asked).items() if value is not None}
    found = replace(Sizes(), **given)
    return replace(found, methods=tuple(dict.fromkeys((OURS, *found.methods, RANDOM)))), rest


def main(argv: Sequence[str]) -> int:
    """Measure what the command line asks for."""
    sizes, rest = sizes_of(argv)
    return harness.main(HELD_OUT if sizes.held_out else BENCH, TunerBench, sizes, QUICK, kept=True, argv=rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
