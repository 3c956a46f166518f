"""From runs to figures: regrets, pairs of the same problem and seed, their geometric mean, wins and losses."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scripts.bench.tuner.peers import BUDGETS, RANDOM
from scripts.bench.tuner.problems import problem
from scripts.bench.tuner.runs import Run

RESAMPLES = 2000
SAME = 1 + 1e-9  # regrets that differ by less are a tie
FLOOR = 1e-3  # of the median regret that random search leaves after the first budget
TINY = 1e-12  # where it leaves none


@dataclass(frozen=True)
class Comparison:
    """Ours against a peer over pairs of runs; a ratio below one means that our regret is smaller."""

    pairs: int
    ratio: float
    interval: tuple[float, float]  # 90 %, by drawing pairs anew
    coarser: float  # the ratio with floors ten times as high
    wins: int
    losses: int
    by_problem: dict[str, float]

    @property
    def ties(self) -> int:
        """Pairs with the same regret, or both below the floor."""
        return self.pairs - self.wins - self.losses


@dataclass(frozen=True)
class Scale:
    """What the regrets of a problem are measured from, and the least that counts."""

    optimum: float
    floor: float

    def regret(self, run: Run, budget: int, floors: float = 1.0) -> float:
        """Return by how much a run's reported point is worse than the optimum, the floor at the least."""
        return max(run.best[budget] - self.optimum, self.floor * floors)


def scales(runs: Sequence[Run]) -> dict[str, Scale]:
    """Return the scale of every problem: the optimum, else the best value of all runs, and what random search left."""
    found = {}
    for name in dict.fromkeys(run.key.problem for run in runs):
        mine = [run for run in runs if run.key.problem == name]
        known = problem(name).optimum
        optimum = min(min(run.best.values()) for run in mine) if known is None else known
        left = [run.best[BUDGETS[0]] - optimum for run in mine if run.key.method == RANDOM]
        found[name] = Scale(optimum, max(FLOOR * statistics.median(left), TINY))
    return found


def compare(ours: Iterable[Run], peer: Iterable[Run], budget: int, scales: Mapping[str, Scale]) -> Comparison:
    """Compare runs of the same problem and seed; both report the point with the least observed value."""
    pairs = _pairs(ours, peer)
    logs = _logs(pairs, budget, scales)
    names = [run.key.problem for run, _ in pairs]
    means = np.random.default_rng(0).choice(logs, (RESAMPLES, len(logs))).mean(1)
    low, high = np.exp(np.quantile(means, (0.05, 0.95)))
    return Comparison(
        pairs=len(pairs),
        ratio=math.exp(statistics.fmean(logs)),
        interval=(float(low), float(high)),
        coarser=math.exp(statistics.fmean(_logs(pairs, budget, scales, 10.0))),
        wins=sum(log < -math.log(SAME) for log in logs),
        losses=sum(log > math.log(SAME) for log in logs),
        by_problem={
            name: math.exp(statistics.fmean(log for log, other in zip(logs, names, strict=True) if other == name))
            for name in dict.fromkeys(names)
        },
    )


def _pairs(ours: Iterable[Run], peer: Iterable[Run]) -> list[tuple[Run, Run]]:
    others = {(run.key.problem, run.key.seed): run for run in peer}
    found = ((run, others.get((run.key.problem, run.key.seed))) for run in ours)
    return [(run, other) for run, other in found if other]


def _logs(
    pairs: Sequence[tuple[Run, Run]], budget: int, scales: Mapping[str, Scale], floors: float = 1.0
) -> list[float]:
    found = []
    for run, other in pairs:
        scale = scales[run.key.problem]
        found.append(math.log(scale.regret(run, budget, floors) / scale.regret(other, budget, floors)))
    return found


def published(
    runs: Sequence[Run], seeds: Iterable[int], scales: Mapping[str, Scale]
) -> dict[str, dict[str, dict[str, list[float | None]]]]:
    """Return all regrets as they are, without floors: by problem, method and budget, one for each seed."""
    by_key = {(run.key.problem, run.key.method, run.key.seed): run.best for run in runs}
    found: dict[str, dict[str, dict[str, list[float | None]]]] = {}
    for name, method in dict.fromkeys((run.key.problem, run.key.method) for run in runs):
        bests = [by_key.get((name, method, seed)) for seed in seeds]
        optimum = scales[name].optimum
        found.setdefault(name, {})[method] = {
            f"best {budget}": [None if best is None else float(f"{best[budget] - optimum:.4g}") for best in bests]
            for budget in BUDGETS
        }
    return found
