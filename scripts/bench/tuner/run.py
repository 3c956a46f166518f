"""One run of one tuner on one problem, in rounds or in lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.tuner.problem import Point, Problem, Value
from scripts.bench.tuner.tuners.face import BATCH, BUDGETS, ROUNDS, Tuner

REFUSALS = 20  # for one trial; what then still breaks a constraint is a trial that fails


def run(problem: Problem, tuner: Tuner, mode: str, seed: int, trials: int) -> dict[str, Any]:
    """Try so many points; `best` has the true value of the point with the least observed value after each budget.

    In rounds four points are asked for when the four before have ended. In lanes four workers end in turn, so that
    each point is asked for with all values but those of the three that still run.
    """
    if trials % BATCH:
        raise ValueError(f"{trials} trials: a run ends with a whole batch of {BATCH}")
    if problem.constraints:
        tuner = Refusing(problem, tuner)
    at_once = BATCH if mode == ROUNDS else 1
    points: list[Point] = []
    values: list[float | None] = []
    while len(values) < trials:
        while len(points) - len(values) < BATCH and len(points) < trials:
            points += [problem.without_absent(point) for point in tuner.ask(at_once)]
        ended = range(len(values), len(values) + at_once)
        found = {number: problem.observe(points[number], seed, number) for number in ended}
        tuner.tell(found)
        values += found.values()
    return {"points": points, "values": values, "best": best_after(problem, points, values)}


class Refusing:
    """A tuner whose points are asked for anew where they break a constraint, which takes no trial to see.

    It is told of such a point as of a trial that failed. Who knows the constraints never gives one.
    """

    def __init__(self, problem: Problem, tuner: Tuner) -> None:
        self._problem, self._tuner = problem, tuner
        self._asked = 0
        self._numbers: list[int] = []  # the tuner's, of what became a trial

    def ask(self, n: int) -> list[dict[str, Value]]:
        found: list[dict[str, Value]] = []
        left = n * REFUSALS
        while len(found) < n:
            for point in self._tuner.ask(n - len(found)):
                if left and not self._problem.is_legal(self._problem.without_absent(point)):
                    left -= 1
                    self._tuner.tell({self._asked: None})
                else:
                    self._numbers.append(self._asked)
                    found.append(point)
                self._asked += 1
        return found

    def tell(self, values: Mapping[int, float | None]) -> None:
        self._tuner.tell({self._numbers[number]: value for number, value in values.items()})


def best_after(problem: Problem, points: Sequence[Point], values: Sequence[float | None]) -> dict[int, float]:
    """Return the true value of the reported point after each budget that was reached, and at the end.

    Trials that failed do not count; a run without any other has the problem's worst value.
    """
    marks = sorted({budget for budget in BUDGETS if budget < len(values)} | {len(values)})
    done = [(value, number) for number, value in enumerate(values) if value is not None]
    winners = {mark: min((pair for pair in done if pair[1] < mark), default=(None, None))[1] for mark in marks}
    true = {winner: _true(problem, points, winner) for winner in set(winners.values())}
    return {mark: true[winner] for mark, winner in winners.items()}


def _true(problem: Problem, points: Sequence[Point], winner: int | None) -> float:
    if winner is not None:
        return problem.true(points[winner])
    if problem.worst is None:
        raise NotMeasuredError(f"{problem.name}: all trials failed")
    return problem.worst
