"""How busy trials of one second keep the slots: a study of many regions beside a bare DAG of the same jobs."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

from regiondag.run.layout import NodeName, RunFolder
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.manager import pools, studies
from scripts.bench.manager.pools import Times
from scripts.bench.manager.studies import Shape
from scripts.bench.manager.throughput import finish, lasted, strip_scripts

BENCH = "busy"
SECOND = 1.0  # what each job sleeps
SIDES = ("bare", "ours")


@dataclass(frozen=True)
class Sizes:
    """All sizes."""

    shape: Shape
    slots: int
    turns: int


FULL = Sizes(Shape(41, 2, 4), 4, 1)  # of each side 328 trials, which are repeats of each other
QUICK = Sizes(Shape(2, 2, 2), 2, 1)


@dataclass(frozen=True)
class Spent:
    """Seconds of slots, by the trial, and the machine's load when the last had ended."""

    beyond: float  # all that is not the trial's own second
    queued: float  # idle while a job waited in the queue: HTCondor's
    starved: float  # idle while none did: DAGMan's, PRE's and POST's
    load: float

    @property
    def busy(self) -> float:
        """The share of the slots' time that is the trials' own seconds, in percent."""
        return 100 * SECOND / (SECOND + self.beyond)


class Busy(Bench[Sizes]):
    """The rows."""

    def busy(self) -> Iterator[Row]:
        """Both sides in turn, on one pool; the figures are medians."""
        sizes, ours, bare = self.sizes, self._spent["ours"], self._spent["bare"]
        of = f"{sizes.shape} trials of one second on {sizes.slots} slots (peer: a bare DAG of the same jobs)"
        note = "\n".join(
            f"{side}, each turn: busy {one.busy:.1f} %, beyond {one.beyond:.2f} s; load {one.load:.1f}"
            for side in SIDES
            for one in self._spent[side]
        )
        middle = statistics.median
        yield Row(f"slots busy: {of}", middle(one.busy for one in ours), middle(one.busy for one in bare), "%",
                  80.0, note, higher=True)  # fmt: skip
        for what, part, goal in (
            ("slot time of a trial beyond its second", "beyond", 1.0),
            ("of that, idle while a job waits in the queue", "queued", None),
            ("of that, idle while none does", "starved", None),
        ):
            figure, peer = (middle(getattr(one, part) for one in side) for side in (ours, bare))
            yield Row(f"{what}: {of}", figure, peer, "s", goal)

    @cached_property
    def _spent(self) -> dict[str, list[Spent]]:
        sizes, found = self.sizes, {side: list[Spent]() for side in SIDES}
        with pools.pool_up("bench-busy", "trixie", self.area, sizes.slots, cpus=sizes.slots) as pool:
            for side, turn in ((side, turn) for turn in range(sizes.turns) for side in SIDES):
                name = f"{side}-{turn}"
                run = studies.generate(studies.write_study(self.area / name, name, sizes.shape), pools.dotted(pool))
                (run.path / "train.sh").write_text(studies.worker(SECOND), encoding="utf-8")
                if side == "bare":
                    strip_scripts(run, sizes.shape.rounds * sizes.shape.parallel)
                else:
                    leave_out_finals(run)
                jobs = finish(pool, run, sizes.shape.trials, 60 + 10 * sizes.shape.trials)
                found[side].append(spent(jobs.values(), sizes.slots, lasted(jobs)))
        return found


def leave_out_finals(run: RunFolder) -> None:
    """Take the final trainings out of a run's graph: the stand-in jobs are none."""
    finals = {str(NodeName(folder.name, None)) for folder in run.path.glob("regions/*")}
    lines = run.study_dag.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if finals.isdisjoint(line.split())]
    run.study_dag.write_text("".join(kept), encoding="utf-8")


def spent(jobs: Collection[Times], slots: int, seconds: float) -> Spent:
    """Return where the slots' time went between the first start and the last end, `seconds` later."""
    begun = min(job.executing for job in jobs)
    changes = [change for job in jobs
               for change in ((job.submitted, 1, 0), (job.executing, -1, 1), (job.ended, 0, -1))]  # fmt: skip
    queued = starved = 0.0
    waiting = running = 0
    before = begun
    for at, queue, slot in sorted(changes):
        if at > before:
            idle = max(slots - running, 0)
            queued += (at - before) * min(idle, waiting)
            starved += (at - before) * max(idle - waiting, 0)
            before = at
        waiting, running = waiting + queue, running + slot
    count = len(jobs)
    return Spent(slots * seconds / count - SECOND, queued / count, starved / count, os.getloadavg()[0])


if __name__ == "__main__":
    sys.exit(main(BENCH, Busy, FULL, QUICK))
