"""What the next step of a study is, given what is there. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

NOT_SUBMITTED = "not submitted"
OVER = frozenset({"ended", "removed", "crashed"})  # of a DAG: nothing changes any more by itself


class Step(enum.StrEnum):
    """The steps from study.yaml to the report, as they are called on the way."""

    DATA = "data"  # import the table where it has changed; read and check the study
    POOL = "pool"  # bring one up
    RUN = "run"  # make a run directory
    DOCTOR = "doctor"  # would it run on this pool?
    SUBMIT = "submit"
    WATCH = "watch"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Facts:
    """What is there: of the study's newest run, of the pool, and of what this call has done so far."""

    pool: bool  # whether one runs
    run: bool  # whether the study has one
    dag: str = NOT_SUBMITTED  # of that run, as `monitor.status` calls it
    served: bool = False  # whether every region of it has its champion
    news: str | None = None  # what that run does not know of yet, in words; None: nobody has looked
    anew: bool = False  # a new run is wanted in any case, and is not made yet
    doctored: bool = False  # this call has found that the run would work
    watched: bool = False  # this call has seen the run end

    @property
    def working(self) -> bool:
        """Whether a DAGMan works on the run, by its log at least."""
        return self.run and self.dag != NOT_SUBMITTED and self.dag not in OVER

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end with a champion for every region."""
        return self.run and self.dag in OVER and self.served


def next_step(facts: Facts) -> Step:
    """Return the next step. A run in progress comes before all else; what ended in this call is reported.

    A run that is over without all champions is submitted again, which runs what is not done, unless it does not know
    what the study and its data are now: then the next one is made, as after one that is finished.
    """
    if facts.working:
        return Step.WATCH if facts.pool else Step.POOL
    if facts.watched:
        return Step.REPORT
    if facts.news is None:
        return Step.DATA
    outdated = not facts.run or facts.anew or bool(facts.news)
    if facts.finished and not outdated:
        return Step.REPORT
    if not facts.pool:
        return Step.POOL
    if outdated:
        return Step.RUN
    return Step.SUBMIT if facts.doctored else Step.DOCTOR
