"""One run of one tuner on one problem, in a process of its own: `run PROBLEM METHOD SEED`; prints JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from scripts.bench.tuner.peers import BATCH, BUDGETS, METHODS, Tuner
from scripts.bench.tuner.problem import Point, Problem
from scripts.bench.tuner.problems import problem as find_problem


def main() -> None:
    """Run what the command line says."""
    name, method, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
    problem = find_problem(name)
    found = run(problem, METHODS[method](problem, seed), seed)
    print(json.dumps({"problem": name, "method": method, "seed": seed, **found}))


def run(problem: Problem, tuner: Tuner, seed: int) -> dict[str, Any]:
    """Evaluate batches until the last budget; the clock runs only while the tuner works."""
    points: list[Point] = []
    values: list[float] = []
    best: dict[str, float] = {}
    seconds = 0.0
    while len(values) < BUDGETS[-1]:
        begin = time.process_time()
        asked = tuner.ask(BATCH)
        seconds += time.process_time() - begin
        tried = [problem.without_absent(point) for point in asked]  # not every tuner knows of conditions
        found = [problem.observe(point, seed, len(points) + index) for index, point in enumerate(tried)]
        begin = time.process_time()
        tuner.tell(asked, found)
        seconds += time.process_time() - begin
        points += tried
        values += found
        if len(values) in BUDGETS:
            best[str(len(values))] = problem.true(points[_least(values)])
    return {"values": values, "points": points, "best": best, "seconds": round(seconds, 4)}


def _least(values: Sequence[float]) -> int:
    return min(range(len(values)), key=values.__getitem__)


if __name__ == "__main__":
    main()
