"""What ending trials early is worth, and pausing them, on learning curves of YAHPO's lcbench; and what a start costs.

Nothing is trained: a surrogate says how a network with certain hyperparameters does after each epoch on a data set.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from scripts.bench.common.harness import RESULTS, Bench, Row, main
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.tuner.fidelity.policies import EPOCHS, LANES, MOVED, PENDING, Policy, Run, best_so_far
from scripts.bench.tuner.problem import Point, Problem
from scripts.bench.tuner.problems import yahpo
from scripts.bench.tuner.stats import Ground, compare
from scripts.bench.tuner.tuners.ours import Observation, propose, search

BENCH = "tuner_fidelity"
TASKS = ("167161", "167185", "167201", "168331", "189866")  # not held out, and none that another problem is made of
ROUNDS = 30  # that a search is told will come
EPOCH_OF_COUNTRY = 6.5 / 5  # seconds of CPU, retail's United Kingdom: a trial of 5 epochs, in the notes of sharing.json
STEPS_OF_FILMS = -(-138493 // 256)  # of an epoch of as many users as ML-20M has

NONE, MEDIAN, ASHA, FROM_1 = Policy(), Policy("median"), Policy("asha"), Policy("asha", first=1)
HYBRID, PROMOTION = Policy("asha", pauses=True), Policy("asha", at_every_rung=True, pauses=True)
ENDING = {"none": NONE, "asha": ASHA, "asha from epoch 1": FROM_1, "median": MEDIAN}
PAUSING = {
    "hybrid": HYBRID,
    "promotion": PROMOTION,
    "hybrid from epoch 1": Policy("asha", first=1, pauses=True),
    "promotion from epoch 1": Policy("asha", first=1, at_every_rung=True, pauses=True),
}
TELLING = {
    "hybrid": HYBRID,
    "asha, told with others' gain": Policy("asha", told=MOVED),
    "asha, told as running": Policy("asha", told=PENDING),
    "hybrid, told with others' gain": Policy("asha", pauses=True, told=MOVED),
    "hybrid, told as running": Policy("asha", pauses=True, told=PENDING),
}
BY_CHANCE = "random points"
PAIRS = (*((name, "none") for name in ("asha", "median", "hybrid")), ("asha from epoch 1", "asha"), ("median", "asha"))


@dataclass(frozen=True)
class Sizes:
    """All sizes; budgets in whole trainings, starts in epochs."""

    tasks: Sequence[str] = TASKS
    budgets: Sequence[int] = (8, 16)
    starts: Sequence[float] = (0, 1.2, 3.6)
    seeds: int = 20
    model_budget: int = 8
    model_start: float = 1.2
    model_seeds: int = 8


QUICK = Sizes(tasks=TASKS[:2], budgets=(4,), starts=(0,), seeds=2, model_budget=3, model_seeds=1)


@dataclass
class Runs:
    """What policies gave by one kind of proposals at one cost of a start."""

    values: dict[str, dict[str, dict[int, dict[int, float]]]] = field(
        default_factory=dict
    )  # task, policy, budget, seed
    counts: dict[str, dict[int, list[tuple[int, int, int]]]] = field(default_factory=dict)  # policy, budget

    def add(self, task: str, name: str, seed: int, run: Run, budgets: Sequence[int]) -> None:
        """Keep what a run came to by each budget: value, jobs, trials, and trials that were through."""
        for budget in budgets:
            jobs = [job for job in run.jobs if job.spent < budget * EPOCHS]
            through = {job.trial for job in jobs if job.end == len(run.curves[job.trial])}
            value = run.chosen(budget * EPOCHS)
            self.values.setdefault(task, {}).setdefault(name, {}).setdefault(budget, {})[seed] = value
            figures = (len(jobs), len({job.trial for job in jobs}), len(through))
            self.counts.setdefault(name, {}).setdefault(budget, []).append(figures)


class FidelityBench(Bench[Sizes]):
    """The rows."""

    def __init__(self, area: Path, sizes: Sizes) -> None:
        super().__init__(area, sizes)
        self.runs: dict[tuple[str, float], Runs] = {}

    def start(self) -> Iterator[Row]:
        """What a start costs, by kept results, in seconds and in epochs of two trainings."""
        beyond = _kept("throughput", "slot time of a trial beyond its training")
        waiting = (
            beyond + _kept("lanes", "end of a trial to its lane's next one") + _kept("lanes", "a job in the queue")
        )
        films = (
            STEPS_OF_FILMS
            * _kept("train_cpu", "27,278-1,024x3-27,278, batch 256, 0.5% density, Adam", "2 threads")
            / 1000
        )
        for what, seconds in (("a job waits for the slot", beyond), ("lanes are as many as slots", waiting)):
            yield Row(f"a start where {what}", seconds, None, "s")
            yield Row(
                f"the same, in epochs of retail's United Kingdom where {what}", seconds / EPOCH_OF_COUNTRY, None, ""
            )
            yield Row(
                f"the same, in epochs of a network for ML-20M on two cores where {what}", seconds / films, None, ""
            )

    def regret(self) -> Iterator[Row]:
        """Points by chance, the same ones for all policies, and those that the default method proposes."""
        sizes = self.sizes
        points, budgets = "the model's points", (sizes.model_budget,)
        for start in sizes.starts:
            self._play(BY_CHANCE, start, {**ENDING, **PAUSING}, sizes.budgets, sizes.seeds, _random)
        self._play(points, sizes.model_start, {**ENDING, **TELLING}, budgets, sizes.model_seeds, _model)
        for start in sizes.starts:
            yield from self._rows(BY_CHANCE, start, PAUSING, sizes.budgets)
        yield from self._rows(points, sizes.model_start, TELLING, budgets)

    def _play(
        self,
        proposals: str,
        start: float,
        policies: Mapping[str, Policy],
        budgets: Sequence[int],
        seeds: int,
        proposer: Callable[[Problem, int], Callable[[Run], Point]],
    ) -> None:
        found = self.runs[proposals, start] = Runs()
        for task in self.sizes.tasks:
            problem, curve = _training(task)
            for name, policy in policies.items():
                for seed in range(seeds):
                    run = Run(policy, curve, proposer(problem, seed))
                    with threadpool_limits(1):
                        run.simulate(start, max(budgets) * EPOCHS)
                    found.add(task, name, seed, run, budgets)

    def _rows(self, proposals: str, start: float, others: Iterable[str], budgets: Sequence[int]) -> Iterator[Row]:
        pairs = [*PAIRS, *((name, "asha") for name in others)]
        for budget in budgets:
            found = self._ground(proposals, start, budget)
            for name, peer in pairs:
                beside = compare(found, name, peer)
                if beside is None:
                    raise NotMeasuredError(f"{name} and {peer} have no pairs")
                coarse = beside.ratios[1]
                where = f"{proposals}, {budget} trainings, a start of {start:g} epochs"
                note = f"90 %: {coarse.low:.2f} to {coarse.high:.2f}; claim: {beside.claim}"
                yield Row(f"regret of {name} as a part of that of {peer}: {where} ({note})", coarse.value, 1.0, "")

    def _ground(self, proposals: str, start: float, budget: int) -> Ground:
        """Return regrets to the best value of all runs on a task; much is what random points leave without any end."""
        regrets, scales = {}, {}
        least = self.runs[BY_CHANCE, self.sizes.starts[0]]
        for task, by_policy in self.runs[proposals, start].values.items():
            best = min(
                value
                for runs in self.runs.values()
                for budgets in runs.values[task].values()
                for seeds in budgets.values()
                for value in seeds.values()
            )
            scales[task] = statistics.median(least.values[task]["none"][self.sizes.budgets[0]].values()) - best
            regrets[task] = {
                name: {seed: value - best for seed, value in budgets[budget].items()}
                for name, budgets in by_policy.items()
            }
        return Ground(regrets, scales)

    def details(self, rows: Sequence[Row]) -> dict[str, object]:  # noqa: ARG002
        """Return what is kept besides the rows: problems, and means of jobs, trials and those that were through."""
        counts = {
            f"{proposals}, a start of {start:g} epochs": {
                f"{name}, {budget} trainings": [
                    round(statistics.fmean(column), 1) for column in zip(*figures, strict=True)
                ]
                for name, budgets in runs.counts.items()
                for budget, figures in budgets.items()
            }
            for (proposals, start), runs in self.runs.items()
        }
        return {"tasks": list(self.sizes.tasks), "seeds": [self.sizes.seeds, self.sizes.model_seeds], "counts": counts}


def _kept(bench: str, begins: str, has: str = "") -> float:
    """Return our figure of a kept row."""
    rows = json.loads((RESULTS / f"{bench}.json").read_text(encoding="utf-8"))["rows"]
    return float(next(r["ours"] for r in rows if r["workload"].startswith(begins) and has in r["workload"]))


@cache
def _training(task: str) -> tuple[Problem, Callable[[Point], tuple[float, ...]]]:
    """Return a task's space as a problem, and what gives the best values so far of a training, each asked once."""
    space, curve = yahpo.read_curve(task, EPOCHS)
    known: dict[tuple[object, ...], tuple[float, ...]] = {}

    def best(point: Point) -> tuple[float, ...]:
        key = tuple(point.values())
        if key not in known:
            known[key] = tuple(best_so_far(curve(point)))
        return known[key]

    return Problem(f"lcbench-{task}", "yahpo", space, lambda point: best(point)[-1]), best


def _random(problem: Problem, seed: int) -> Callable[[Run], Point]:
    chance = np.random.default_rng([seed, 17])
    return lambda run: problem.random_point(chance)  # noqa: ARG005


def _model(problem: Problem, seed: int) -> Callable[[Run], Point]:
    asked = search(problem.space, ROUNDS, LANES, schedule="lanes")

    def ask(run: Run) -> Point:
        told = list(zip(run.points, run.losses(), strict=True))
        history = [Observation(point, loss) for point, loss in told if loss is not None]
        return propose(asked, history, [point for point, loss in told if loss is None], 1, seed)[0]

    return ask


if __name__ == "__main__":
    sys.exit(main(BENCH, FidelityBench, Sizes(), QUICK))
