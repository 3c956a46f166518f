"""List the problems: `python -m scripts.bench.tuner.problems`."""

from __future__ import annotations

import time

import numpy as np

from scripts.bench.tuner.problems import is_held_out, names, problem

POINTS = 20  # whose evaluations are timed


def main() -> None:
    """Print name, source, number of parameters, kinds, whether it is held out, and CPU time of an evaluation."""
    for name in names():
        found = problem(name)
        chance = np.random.default_rng(0)
        points = [found.random_point(chance) for _ in range(POINTS)]
        found.observe(points[0], 0, 0)  # which imports and loads
        begin = time.process_time()
        for number, point in enumerate(points):
            found.observe(point, 0, number)
        milliseconds = (time.process_time() - begin) / POINTS * 1000
        held = "held out" if is_held_out(name) else "-"
        kinds = ", ".join(sorted(found.kinds))
        print(f"{name:22}{found.source:11}{len(found.space):3}  {held:10}{milliseconds:8.2f} ms  {kinds}")


if __name__ == "__main__":
    main()
