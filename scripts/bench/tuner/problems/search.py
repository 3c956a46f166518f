"""Look for the best values of problems whose optimum nobody knows: `python -m scripts.bench.tuner.problems.search`.

With --kept it looks only through runs that are kept, and evaluates their best point once more.
What it finds goes into known.json, if it is better than what is there, and is what regrets are measured from: without
it the best of a few runs would have no regret at all, whatever is left to gain.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from scripts.bench.tuner.problem import Point, Problem
from scripts.bench.tuner.problems import KNOWN, known, names, problem

STARTS = 4
STEPS = (0.3, 0.1, 0.03, 0.01)  # standard deviations, as parts of a range


def main() -> None:
    """Search for so many seconds of the processor on each problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kept", type=Path, metavar="FOLDER", help="of runs, as compare keeps them")
    parser.add_argument("problems", nargs="*", metavar="NAME", help="else all whose optimum is not known")
    arguments = parser.parse_args()
    for name in arguments.problems or [name for name in names() if name in known() or problem(name).optimum is None]:
        if arguments.kept:
            best, evaluations = best_kept(problem(name), arguments.kept)
        else:
            best, evaluations = search(problem(name), arguments.seconds, arguments.seed)
        if best == math.inf:
            continue
        found = json.loads(KNOWN.read_text(encoding="utf-8")) if KNOWN.exists() else {}
        before = found.get(name)
        print(f"{name}: {best:.6g} after {evaluations} evaluations, before: {before}", file=sys.stderr, flush=True)
        found[name] = best if before is None else min(best, before)
        KNOWN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def search(problem: Problem, seconds: float, seed: int) -> tuple[float, int]:
    """Return the best value of random points and of mutations of the best, and the number of evaluations.

    Half of the time goes to uniform points, the rest to climbs from the best of them.
    """
    chance = np.random.default_rng(seed)
    begin = time.process_time()
    tried: list[tuple[float, np.ndarray]] = []
    while time.process_time() - begin < seconds / 2 or len(tried) < STARTS:
        units = chance.random(len(problem.space))
        tried.append((value_at(problem, units), units))
    starts = sorted(tried, key=lambda pair: pair[0])[:STARTS]
    evaluations = len(tried)
    best = []
    for number, (value, units) in enumerate(starts, start=1):
        while time.process_time() - begin < seconds / 2 * (1 + number / STARTS):
            other = mutated(units, chance)
            evaluations += 1
            if (new := value_at(problem, other)) <= value:
                value, units = new, other
        best.append(value)
    return min(best), evaluations


def best_kept(problem: Problem, folder: Path) -> tuple[float, int]:
    """Return the value of the best point that a kept run of this very problem reported, and the number of runs."""
    reported = list(_reported(problem, folder))
    if not reported:
        return math.inf, 0
    _, point = min(reported, key=lambda pair: pair[0])
    return problem.true(point), len(reported)


def _reported(problem: Problem, folder: Path) -> Iterator[tuple[float, Point]]:
    fingerprint = problem.fingerprint()
    for file in sorted(folder.glob(f"*/{problem.name}/*.json")):
        run = json.loads(file.read_text(encoding="utf-8"))
        done = [(value, number) for number, value in enumerate(run["values"]) if value is not None]
        if done and run["stamp"].split()[0] == fingerprint:
            yield run["best"][str(len(run["values"]))], run["points"][min(done)[1]]


def value_at(problem: Problem, units: Sequence[float] | np.ndarray) -> float:
    """Return the true value at a place of the unit cube, which is infinite where a constraint is broken."""
    point = point_at(problem, units)
    return problem.true(point) if problem.is_legal(point) else math.inf


def point_at(problem: Problem, units: Sequence[float] | np.ndarray) -> Point:
    """Return the point at a place of the unit cube."""
    values = {p.name: p.at(float(unit)) for p, unit in zip(problem.space, units, strict=True)}
    return problem.without_absent(values)


def mutated(units: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    """Return a place where about two coordinates are drawn anew, or moved a little."""
    moved = chance.random(len(units)) < max(2 / len(units), 0.2)
    moved[chance.integers(len(units))] = True
    near = (units + chance.choice(STEPS) * chance.standard_normal(len(units))) % 1
    return np.where(moved, np.where(chance.random(len(units)) < 0.2, chance.random(len(units)), near), units)


if __name__ == "__main__":
    main()
