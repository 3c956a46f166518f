"""What one proposal costs the manager, in a process of its own: `tuner_cost.py METHOD REGION`; prints CPU seconds."""

from __future__ import annotations

import sys
import time

import numpy as np
from tuner_peers import OURS, Skopt
from tuner_problems import problems

TRIALS = 200
PROPOSALS = 8
PROBLEM = "nn8"  # eight parameters of all kinds


def main() -> None:
    """Propose after 200 random trials, and count everything since the process began."""
    method, region = sys.argv[1], int(sys.argv[2])
    trials, proposals = (int(word) for word in sys.argv[3:5])
    problem = problems()[PROBLEM]
    chance = np.random.default_rng([region, 2])
    points = [problem.random_point(chance) for _ in range(trials)]
    values = [problem.observe(point, region, trial) for trial, point in enumerate(points)]
    if method == OURS:
        from tuner_ours import Observation, propose, search

        history = [Observation(point, value) for point, value in zip(points, values, strict=True)]
        rounds = search(problem.space, 2 * trials // proposals, proposals)
        asked = propose(rounds, history, (), proposals, region)
    else:
        tuner = Skopt(problem, region)
        tuner.tell(points, values)
        asked = tuner.ask(proposals)
    if len(asked) != proposals:
        raise SystemExit(f"{len(asked)} proposals instead of {proposals}")
    print(time.process_time())


if __name__ == "__main__":
    main()
