"""When a run will end: by the pace of an earlier run of the study, else by its own. Pure but for `read_pace`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from regiondag.condor.events.dag_log import read_dag_log
from regiondag.errors import RegiondagError
from regiondag.run.journal import Journal
from regiondag.run.layout import RunFolder, dagman_log
from regiondag.run.manifest import read_manifest

MOST_LOOKED_AT = 3  # earlier runs
TRUST = 0.25  # of an earlier run's length: for so long its pace counts as much as what is seen now


@dataclass(frozen=True, slots=True)
class Pace:
    """When the outcomes of a run, or of one region of it, came: seconds from its submission, in order."""

    times: tuple[float, ...]

    def at(self, done: float) -> float:
        """Return when a share of all outcomes, from 0 to 1, had come."""
        position = min(max(done, 0.0), 1.0) * len(self.times)
        whole = int(position)
        before = self.times[whole - 1] if whole else 0.0
        after = self.times[min(whole, len(self.times) - 1)]
        return before + (position - whole) * (after - before)


@dataclass(frozen=True, slots=True)
class RunPace:
    """The same of a whole run, and of its regions by slug."""

    whole: Pace
    regions: Mapping[str, Pace] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far something is: `first` outcomes at Unix time `began`, of the first look, and `done` ones since `last`."""

    total: int
    began: float
    first: int
    last: float
    done: int

    def moved(self, total: int, done: int, now: float) -> Progress:
        """Return what is to be remembered of another look."""
        if done == self.done and total == self.total:
            return self
        first = min(self.first, done)  # trials that are run again are no outcomes any more
        return Progress(total, self.began, first, now, done)


def seconds_left(progress: Progress, now: float, pace: Pace | None = None) -> float | None:
    """Return how long the rest will take; None where nothing tells. It goes down between two outcomes."""
    left = _left_at(progress, progress.done, pace)
    next_left = _left_at(progress, min(progress.done + 1, progress.total), pace)
    if left is None or next_left is None:
        return None
    return max(left - (now - progress.last), next_left, 0.0)


def _left_at(progress: Progress, done: int, pace: Pace | None) -> float | None:
    """Return how long the rest takes when `done` outcomes have come."""
    seen, counted = progress.last - progress.began, progress.done - progress.first
    if pace is None or not pace.times:
        return seen / counted * (progress.total - done) if counted > 0 else None
    scale = progress.total / len(pace.times)  # of a search that is longer or shorter than it was
    whole, now, then = (scale * pace.at(count / progress.total) for count in (progress.total, done, progress.first))
    known = scale * pace.at(progress.done / progress.total) - then
    trust = TRUST * whole
    return (whole - now) * (seen + trust) / (known + trust) if known + trust > 0 else None


def read_pace(earlier: Iterable[RunFolder]) -> RunPace | None:
    """Return the pace of the first of some runs that was done in one go; None where none was."""
    for run in list(earlier)[:MOST_LOOKED_AT]:
        try:
            pace = _pace_of(run)
        except RegiondagError:  # damaged, or of another version: no reason to stop
            continue
        if pace is not None:
            return pace
    return None


def _pace_of(run: RunFolder) -> RunPace | None:
    dag = read_dag_log(dagman_log(run.study_dag))
    if dag is None or dag.started is None or dag.exit_code != 0:
        return None
    started, regions = dag.started, {}
    for slug in read_manifest(run).regions:
        history = Journal(run.region(slug).journal).read_outcomes()
        regions[slug] = _relative(
            [*history.settled_at.values(), *([history.final_at] if history.final else [])], started
        )
    whole = Pace(tuple(sorted(time for pace in regions.values() for time in pace.times)))
    if not whole.times or whole.times[0] < 0:  # it was submitted again
        return None
    return RunPace(whole, regions)


def _relative(times: Sequence[float], started: float) -> Pace:
    return Pace(tuple(sorted(time - started for time in times)))
