"""One run of one tuner on one problem, in rounds or in lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scripts.bench.tuner.problem import Point, Problem
from scripts.bench.tuner.tuners.face import BATCH, BUDGETS, ROUNDS, Tuner


def run(problem: Problem, tuner: Tuner, mode: str, seed: int, trials: int) -> dict[str, Any]:
    """Try so many points; `best` has the true value of the point with the least observed value after each budget.

    In rounds four points are asked for when the four before have ended. In lanes four workers end in turn, so that
    each point is asked for with all values but those of the three that still run.
    """
    if trials % BATCH:
        raise ValueError(f"{trials} trials: a run ends with a whole batch of {BATCH}")
    at_once = BATCH if mode == ROUNDS else 1
    points: list[Point] = []
    values: list[float] = []
    while len(values) < trials:
        while len(points) - len(values) < BATCH and len(points) < trials:
            points += [problem.without_absent(point) for point in tuner.ask(at_once)]
        ended = range(len(values), len(values) + at_once)
        found = {number: problem.observe(points[number], seed, number) for number in ended}
        tuner.tell(found)
        values += found.values()
    return {"points": points, "values": values, "best": best_after(problem, points, values)}


def best_after(problem: Problem, points: Sequence[Point], values: Sequence[float]) -> dict[int, float]:
    """Return the true value of the reported point after each budget that was reached, and at the end."""
    marks = sorted({budget for budget in BUDGETS if budget < len(values)} | {len(values)})
    winners = {mark: min(range(mark), key=values.__getitem__) for mark in marks}
    true = {winner: problem.true(points[winner]) for winner in set(winners.values())}
    return {mark: true[winner] for mark, winner in winners.items()}
