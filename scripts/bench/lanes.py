#!/usr/bin/env python3
"""How busy lanes keep the slots beside rounds, where trials take between one and four times as long as the shortest.

See README.md in this folder.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lanes_pool
import orchestration_pool as pools
from harness import Row, finish, measure_groups, number, options, work_area
from lanes_pool import Ran
from lanes_simulation import Delays, Shape, Use, durations, mean_use, plans, simulate, use_of

from regiondag.run.layout import NodeName

BENCH = "lanes"
POOL, SUITE = "bench-lanes", "trixie"
GOAL = 95.0  # per cent of the slots' time
SCHEDULES = ("lanes", "rounds")
MINUTE = 60.0
DELAYS = Delays(manager=5.0, start=1.0)  # of the simulation where the pool is not measured


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    pool: tuple[Shape, ...] = (
        Shape(1, 4, 8, slots=4, shortest=15),
        Shape(1, 6, 6, slots=4, shortest=15),
        Shape(3, 4, 4, slots=4, shortest=15),
    )
    simulated: tuple[Shape, ...] = (
        Shape(1, 4, 8, slots=4, shortest=5 * MINUTE),
        Shape(1, 4, 25, slots=4, shortest=5 * MINUTE),
        Shape(1, 6, 25, slots=4, shortest=5 * MINUTE),
        Shape(1, 16, 25, slots=16, shortest=5 * MINUTE),
        Shape(41, 4, 8, slots=164, shortest=5 * MINUTE),
        Shape(41, 4, 8, slots=100, shortest=5 * MINUTE),
        Shape(41, 4, 8, slots=40, shortest=5 * MINUTE),
        Shape(41, 4, 8, slots=16, shortest=5 * MINUTE),
    )
    seeds: int = 20
    goals: bool = True  # they are for the full sizes


QUICK = Sizes(
    pool=(Shape(1, 2, 2, slots=2, shortest=1),),
    simulated=(Shape(1, 4, 8, slots=4, shortest=5 * MINUTE), Shape(41, 4, 8, slots=40, shortest=5 * MINUTE)),
    seeds=3,
    goals=False,
)


class Lanes:
    """The rows, in groups that can be measured alone."""

    def __init__(self, area: Path, sizes: Sizes) -> None:
        self.area = area
        self.sizes = sizes
        self.delays = DELAYS
        self.groups = {"pool": self.pool, "simulated": self.simulated}

    def pool(self) -> Iterator[Row]:
        """A real study whose jobs sleep, in lanes and in rounds; its delays are those of the simulation."""
        most = max(shape.slots for shape in self.sizes.pool)
        with pools.pool_up(POOL, SUITE, self.area, most, lanes_pool.slots_config(most)) as pool:
            for index, shape in enumerate(self.sizes.pool):
                seconds = durations(plans(shape, "lanes"), shape.shortest, seed=0)
                folder = self.area / str(index)
                folder.mkdir()
                ran = {s: lanes_pool.run_study(pool, folder, shape, s, seconds) for s in SCHEDULES}
                if not index:
                    self.delays = ran["lanes"].delays
                yield self._pool_row(shape, ran, seconds)
                if not index:
                    yield from self._delay_rows(ran["lanes"])

    def _pool_row(self, shape: Shape, ran: dict[str, Ran], seconds: dict[NodeName, float]) -> Row:
        notes, uses = [], {}
        for schedule, found in ran.items():
            uses[schedule] = use_of(found.spans, shape.slots)
            lengths = seconds | {node: span.end - span.begin for node, span in found.spans.items()}
            again = use_of(simulate(plans(shape, schedule), lengths, shape.slots, found.delays), shape.slots)
            notes.append(f"{schedule}: {_described(uses[schedule])}; simulated with the same trials and delays: "
                         f"{again.busy:.1%} in {again.seconds:,.0f} s")  # fmt: skip
            notes.append(f"  delays: {_delays(found.delays)}")
            if found.parts and shape.regions * shape.lanes <= shape.slots:  # else a start waits for a slot
                notes.append(f"  means of the parts: {found.parts}")
        return self._row(f"on the pool: {shape}", uses["lanes"], uses["rounds"], "\n".join(notes))

    def _row(self, workload: str, lanes: Use, rounds: Use, note: str) -> Row:
        name = f"slots busy with lanes (peer: rounds), {workload}"
        goal = GOAL if self.sizes.goals else None
        return Row(name, 100 * lanes.busy, 100 * rounds.busy, "%", goal, note, higher=True)

    def _delay_rows(self, ran: Ran) -> Iterator[Row]:
        yield Row("end of a trial to its lane's next one in the queue, mean", ran.delays.manager, None, "s")
        yield Row("a job in the queue and a slot free, to the job's start, mean", ran.delays.start, None, "s")

    def simulated(self) -> Iterator[Row]:
        """The same graphs in a simulation, with the delays that the pool had."""
        for shape in self.sizes.simulated:
            uses = {
                schedule: [self._simulated(shape, schedule, s) for s in range(self.sizes.seeds)]
                for schedule in SCHEDULES
            }
            lanes, rounds = (mean_use(uses[schedule]) for schedule in SCHEDULES)
            spread = ", ".join(f"{s} {_range(found)}" for s, found in uses.items())
            note = f"lanes: {_described(lanes)}\nrounds: {_described(rounds)}\n{self.sizes.seeds} seeds: {spread}"
            yield self._row(f"simulated: {shape}", lanes, rounds, f"{note}\n{_delays(self.delays)} between two trials")

    def _simulated(self, shape: Shape, schedule: str, seed: int) -> Use:
        regions = plans(shape, schedule)
        spans = simulate(regions, durations(regions, shape.shortest, seed), shape.slots, self.delays)
        return use_of(spans, shape.slots)


def _described(use: Use) -> str:
    return (
        f"busy {use.busy:.1%}, idle at the start {use.start:.1%}, between jobs {use.between:.1%}, after a slot's last "
        f"job {use.drain:.1%} (busy without that: {use.without_drain:.1%}); {use.seconds:,.0f} s"
    )


def _range(uses: list[Use]) -> str:
    return f"{min(use.busy for use in uses):.1%} to {max(use.busy for use in uses):.1%}"


def _delays(delays: Delays) -> str:
    return f"manager {number(delays.manager, 's')}, start {number(delays.start, 's')}"


def main() -> int:
    """Measure and print."""
    arguments = options(BENCH, Lanes(Path(), QUICK).groups)
    with work_area() as area:
        bench = Lanes(area, QUICK if arguments.quick else Sizes())
        rows = measure_groups(bench.groups, arguments.only)
    return finish(BENCH, rows, arguments)


if __name__ == "__main__":
    sys.exit(main())
