"""What one proposal costs the manager, in a process of its own; prints CPU seconds.

cost METHOD REGION TRIALS PROPOSALS NEIGHBOURS: with NEIGHBOURS, `share: model` with so many other regions.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import numpy as np

from scripts.bench.tuner.problem import Point, Problem
from scripts.bench.tuner.problems import problem as problem_called
from scripts.bench.tuner.tuners.face import Task

PROBLEM = "nn8"  # eight parameters of all kinds
OURS = "bayes"


def main() -> None:
    """Propose after random trials, and count everything since the process began but the making of the trials."""
    method, region = sys.argv[1], int(sys.argv[2])
    trials, proposals, neighbours = (int(word) for word in sys.argv[3:6])
    problem = problem_called(PROBLEM)
    begun = time.process_time()
    points, values = tried(problem, region, trials)
    others = [tried(problem, region + number, trials) for number in range(1, neighbours + 1)]
    making = time.process_time() - begun
    if method == OURS:
        from scripts.bench.tuner.tuners.ours import Neighbour, Observation, Shared, propose, search

        def told(points: Sequence[Point], values: Sequence[float]) -> list[Observation]:
            return [Observation(point, value) for point, value in zip(points, values, strict=True)]

        rounds = search(problem.space, 2 * trials // proposals, proposals, share="model" if others else "off")
        shared = Shared(region, tuple(Neighbour(str(number), told(*other)) for number, other in enumerate(others)))
        asked = propose(rounds, told(points, values), (), proposals, region, shared)
    else:
        from scripts.bench.tuner.tuners.skopt_side import Skopt

        tuner = Skopt(Task(problem.space, region))
        tuner.know(points, values)
        asked = tuner.ask(proposals)
    if len(asked) != proposals:
        raise SystemExit(f"{len(asked)} proposals instead of {proposals}")
    print(time.process_time() - making)


def tried(problem: Problem, region: int, trials: int) -> tuple[list[Point], list[float]]:
    """Return random points of a region and their values."""
    chance = np.random.default_rng([region, 2])
    points: list[Point] = [problem.random_point(chance) for _ in range(trials)]
    found = (problem.observe(point, region, trial) for trial, point in enumerate(points))
    return points, [value for value in found if value is not None]  # none fails


if __name__ == "__main__":
    main()
