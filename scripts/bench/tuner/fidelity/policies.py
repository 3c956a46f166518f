"""What becomes of trials at rungs, simulated: slots that train a trial, or go on with a paused one. Pure.

A trial's curve is known as far as it was trained, once its job has ended, as a journal has it. A start costs epochs, of
the budget and of the slot's time.
"""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from regiondag.tuning.pruning import FIRST_RUNG, REDUCTION, Rung, make_rungs
from scripts.bench.tuner.problem import Point

LANES = 4
EPOCHS = 52  # of a whole training
PATIENCE = 5  # epochs without a better value, after which a training is through: the default of train.stop_after
REACHED, MOVED, PENDING = "reached", "moved", "pending"

Curve = Sequence[float]


@dataclass(frozen=True)
class Policy:
    """How trials end, whether they go on later, and what the search is told of those that are not through.

    Told is the value that was reached; moved by what trials that are through gained after that epoch, in the median;
    or nothing, as if they still ran.
    """

    prune: str = "none"  # as the product has it
    first: int = FIRST_RUNG  # epoch, of `asha`
    at_every_rung: bool = False  # a job never goes beyond the next of these
    pauses: bool = False  # a later slot goes on with what ended, once it is good enough for its rung
    told: str = REACHED

    def rungs(self, curves: Sequence[Curve]) -> list[Rung]:
        """Return what has to be reached, by the curves known."""
        return make_rungs(self.prune, curves, EPOCHS, minimize=True, first=self.first)


@dataclass(frozen=True)
class Job:
    """What a slot did: trained a trial from one epoch to another."""

    trial: int
    begin: int
    end: int
    spent: float  # of the budget, before it


@dataclass
class Run:
    """A search under way: points, their curves (of the best value so far, as far as a whole training goes), jobs."""

    policy: Policy
    curve_of: Callable[[Point], Curve]
    propose: Callable[[Run], Point]
    points: list[Point] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)  # epochs, by trial
    running: set[int] = field(default_factory=set)
    jobs: list[Job] = field(default_factory=list)

    def simulate(self, start: float, budget: float) -> None:
        """Start jobs until the budget is spent; what was started then ends."""
        slots: list[tuple[float, int, Job | None]] = [(0.0, slot, None) for slot in range(LANES)]
        spent = 0.0
        while slots:
            now, slot, job = heapq.heappop(slots)
            if job:
                self.known[job.trial] = job.end
                self.running.discard(job.trial)
            if spent < budget:
                trial, begin, end = self._next()
                self.running.add(trial)
                job = Job(trial, begin, end, spent)
                self.jobs.append(job)
                spent += start + end - begin
                heapq.heappush(slots, (now + start + end - begin, slot, job))

    def _next(self) -> tuple[int, int, int]:
        """Return the trial that a free slot gets, the epochs that it has, and those at which it ends."""
        rungs = dict(self.policy.rungs([self.curves[trial][:epochs] for trial, epochs in self.known.items()]))
        trial = self._paused(rungs) if self.policy.pauses else None
        if trial is None:
            trial = self._new()
        begin = self.known.get(trial, 0)
        return trial, begin, self._end(trial, begin, rungs)

    def _paused(self, rungs: Mapping[int, float]) -> int | None:
        """Return the best of the paused trials at the highest rung that one of them has reached by now."""
        good = [
            (-epochs, self.curves[trial][epochs - 1], trial)
            for trial, epochs in self.known.items()
            if trial not in self.running and epochs < len(self.curves[trial])
            if epochs in rungs and self.curves[trial][epochs - 1] <= rungs[epochs]
        ]
        return min(good)[-1] if good else None

    def _end(self, trial: int, begin: int, rungs: Mapping[int, float]) -> int:
        curve = self.curves[trial]
        if self.policy.at_every_rung:
            epoch = self.policy.first
            while epoch <= begin:
                epoch *= REDUCTION
            return min(epoch, len(curve))
        return next((e for e in sorted(rungs) if begin < e < len(curve) and curve[e - 1] > rungs[e]), len(curve))

    def _new(self) -> int:
        point = self.propose(self)
        self.points.append(point)
        self.curves.append(self.curve_of(point))
        return len(self.points) - 1

    def losses(self) -> list[float | None]:
        """Return what the search is told of each trial; None while it counts as running."""
        whole = [self.curves[trial] for trial in self.through()]
        return [self._loss(trial, whole) for trial in range(len(self.points))]

    def _loss(self, trial: int, whole: Sequence[Curve]) -> float | None:
        epochs, curve, told = self.known.get(trial), self.curves[trial], self.policy.told
        if epochs is None or (told == PENDING and epochs < len(curve)):
            return None
        if epochs == len(curve) or told == REACHED or not whole:
            return curve[epochs - 1]
        return curve[epochs - 1] + statistics.median(other[-1] - other[min(epochs, len(other)) - 1] for other in whole)

    def through(self) -> list[int]:
        """Return the trials that are known to their end."""
        return [trial for trial, epochs in self.known.items() if epochs == len(self.curves[trial])]

    def chosen(self, budget: float) -> float:
        """Return what the best of the trials that were through by a budget gives; else of those that came furthest."""
        ends = {job.trial: job.end for job in self.jobs if job.spent < budget}
        through = [trial for trial, end in ends.items() if end == len(self.curves[trial])]
        furthest = max(ends.values())
        among = through or [trial for trial, end in ends.items() if end == furthest]
        return min((self.curves[trial][ends[trial] - 1], self.curves[trial][-1]) for trial in among)[1]


def best_so_far(values: Sequence[float]) -> list[float]:
    """Return the best value up to each epoch, as far as a training goes.

    >>> best_so_far([3, 1, 2, 2, 2, 2, 2, 0])
    [3, 1, 1, 1, 1, 1, 1]
    """
    found: list[float] = []
    best_epoch = 0
    for epoch, value in enumerate(values):
        if not found or value < found[-1]:
            best_epoch = epoch
        found.append(min([value, *found[-1:]]))
        if epoch - best_epoch >= PATIENCE:
            break
    return found
