#!/usr/bin/env python3
"""What the manager costs: a trial's slot time beyond its training, and short trials beside a bare DAG of the same jobs.

See README.md in this folder.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import orchestration_pool as pools
import throughput_pool as work
from harness import Row, finish, measure_groups, options, work_area

from regiondag.pool.pool import Pool

BENCH = "throughput"
POOL, SUITE = "bench-throughput", "trixie"
MINUTE = 60.0


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    slots: int = 4
    lanes: int = 5  # one more than slots, so that a free slot finds a job
    steps: int = 8
    seconds: float = MINUTE  # of a trial in lanes
    short: int = 2000  # trials of one second
    repeats: int = 1
    goals: bool = True  # they are for the full sizes


QUICK = Sizes(slots=2, lanes=3, steps=2, seconds=3.0, short=24, goals=False)


class Throughput:
    """The rows, in groups that can be measured alone."""

    def __init__(self, area: Path, sizes: Sizes) -> None:
        self.area = area
        self.sizes = sizes
        self.groups = {"overhead": self.overhead, "short": self.short}

    def overhead(self) -> Iterator[Row]:
        """Real trainings of a tiny network, each stretched to the same length, in lanes."""
        sizes = self.sizes
        with self._pool() as pool:
            run = work.stretched_study(pool, self._folder("lanes"), sizes.lanes, sizes.steps, sizes.seconds)
            trials = sizes.lanes * sizes.steps
            jobs = work.finish_study(pool, run, trials, sizes.seconds, patience=2 * trials * sizes.seconds)
        beyond = work.seconds_beyond_training(jobs, sizes.slots)
        busy = work.busy_share(jobs, sizes.slots)
        name = f"{len(jobs)} trials of {sizes.seconds:.0f} s in {sizes.lanes} lanes on {sizes.slots} slots"
        goals = (2.0, 95.0) if sizes.goals else (None, None)
        spread = f"min {min(beyond):.2f}, mean {statistics.fmean(beyond):.2f}, max {max(beyond):.2f} s"
        what = f"slot time of a trial beyond its training, median: {name}"
        yield Row(what, statistics.median(beyond), None, "s", goals[0], spread)
        what = f"slots training, from the first start to the last end: {name}"
        yield Row(what, 100 * busy, None, "%", goals[1], higher=True)

    def short(self) -> Iterator[Row]:
        """Trials that sleep for a second, all independent, in turn with the same jobs in a DAG without scripts."""
        sizes = self.sizes
        rates: dict[str, list[float]] = {"ours": [], "bare": []}
        with self._pool() as pool:
            for repeat in range(sizes.repeats):
                for side, found in rates.items():
                    folder = self._folder(f"short-{side}-{repeat}")
                    run = work.short_study(pool, folder, sizes.short)
                    if side == "bare":
                        work.strip_scripts(run, sizes.short)
                    jobs = work.finish_study(pool, run, sizes.short, 1.0, patience=60 + 3 * sizes.short)
                    found.append(MINUTE * (len(jobs) - 1) / (max(j.ended for j in jobs) - min(j.began for j in jobs)))
        ours, bare = (statistics.median(found) for found in rates.values())
        goal = 0.9 if sizes.goals else None
        name = f"{sizes.short:,} trials of one second on {sizes.slots} slots (peer: a bare DAG of the same jobs)"
        yield Row(name, ours, bare, "a minute", goal, str(rates), higher=True, goal_is_ratio=True)

    def _pool(self) -> AbstractContextManager[Pool]:
        settings = f"{pools.POOL_CONFIG}NUM_CPUS = {self.sizes.slots}\n"
        return pools.pool_up(POOL, SUITE, self.area, self.sizes.slots, settings)

    def _folder(self, name: str) -> Path:
        folder = self.area / name
        folder.mkdir()
        return folder


def main() -> int:
    """Measure and print."""
    arguments = options(BENCH, Throughput(Path(), QUICK).groups)
    with work_area() as area:
        bench = Throughput(area, QUICK if arguments.quick else Sizes())
        rows = measure_groups(bench.groups, arguments.only)
    return finish(BENCH, rows, arguments)


if __name__ == "__main__":
    sys.exit(main())
