"""A region's journal, folded: what was proposed, settled, tried in vain. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nnlib.contract import Recipe, Status
from regiondag.study.space import Value

# Statuses after which the node may be run again, and its next outcome counts.
OPEN = frozenset({Status.BAD_INPUT, Status.MACHINE, Status.REMOVED})
# Those that count as failures of the hyperparameters; a removed trial counts so until it is run again.
FAILED = frozenset({Status.DIVERGED, Status.REMOVED})
SILENT = OPEN - FAILED  # those that say nothing of the hyperparameters
CANCELLED = "cancelled"  # the reason of a trial that was removed by `regiondag trial cancel`


@dataclass(frozen=True, slots=True)
class Proposal:
    """The hyperparameters given to one trial."""

    trial: int
    point: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """How one trial (or the final training: `trial` is None) ended."""

    trial: int | None
    status: Status
    reason: str = ""
    value: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    stderr: float | None = None  # of `value`, by its customers
    customers: int = 0
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # of `metrics`, 95 %
    gains: Mapping[str, Sequence[float | None]] = field(default_factory=dict)  # over `compared`: mean, 95 %, by pairs
    fitted_until: int | None = None  # see `nnlib.contract.Result`
    baseline: Mapping[str, float] = field(default_factory=dict)
    curve: tuple[float, ...] = ()  # the trial's metric after each epoch
    best_epoch: int = 0
    seconds: float = 0.0
    result: str = ""  # SHA-256 of the result.json that says this, and on what machine it was trained
    host: str = ""  # where it ended, as HTCondor names it
    job: str = ""  # cluster.proc
    recipe: Recipe | None = None  # what was fitted, where it is no network
    compared: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # what was tested beside it
    promoted: bool = False  # whether another recipe served before; the last one: see `read_outcomes`

    @property
    def ok(self) -> bool:
        """Whether there is a value to learn from."""
        return self.status == Status.OK


@dataclass(frozen=True, slots=True)
class Fault:
    """An attempt of a trial, or of the final training, that was the machine's fault and is followed by another."""

    trial: int | None
    reason: str = ""
    seconds: float = 0.0
    host: str = ""
    job: str = ""
    when: float = 0.0  # Unix time


@dataclass(frozen=True, slots=True)
class ExpectedGain:
    """What the model expected the best of the next trials to gain, in the metric's own unit."""

    gain: float  # on the best so far, on the average
    stderr: float | None = None  # of the best trial's value
    low: float | None = None
    high: float | None = None  # 95 % of what it may gain
    of: int = 0  # after so many outcomes; 0: while the search went on


@dataclass(slots=True)
class History:
    """A journal, read: each trial's proposal, outcome and attempts that were repeated."""

    proposals: dict[int, Proposal] = field(default_factory=dict)
    settled: dict[int, TrialOutcome] = field(default_factory=dict)
    settled_at: dict[int, float] = field(default_factory=dict)  # Unix time
    won: tuple[int, int] | None = None  # which trial's point the final training gets, and of how many outcomes
    final: TrialOutcome | None = None
    final_at: float = 0.0  # Unix time
    faults: list[Fault] = field(default_factory=list)
    repeated_seconds: float = 0.0  # of trials' outcomes that a later one replaced
    repeated_final_seconds: float = 0.0  # the same of the final training
    stopped: dict[int | None, str] = field(default_factory=dict)  # nodes at which the region stopped, and why
    gains: dict[int, ExpectedGain] = field(default_factory=dict)  # before a trial
    left: ExpectedGain | None = None  # the latest, of all that is to be gained yet
    declined: dict[int, str] = field(default_factory=dict)  # trials that were not proposed for now, and why
    cancelled: set[int] = field(default_factory=set)
    reopened: set[int | None] = field(default_factory=set)  # and not settled since
    search: Mapping[str, object] = field(default_factory=dict)  # what `regiondag.Search` was given; of a run nothing
    strangers: list[int] = field(default_factory=list, compare=False)  # numbers of lines of another run or region
    folded: tuple[int, int] = field(default=(0, 0), compare=False)  # lines and bytes of the journal

    @property
    def attempts(self) -> int:
        """Number of attempts that were repeated."""
        return len(self.faults)

    @property
    def attempt_seconds(self) -> float:
        """Seconds that were trained and had to be trained again, or settled anew."""
        return self.repeated_seconds + self.repeated_final_seconds + sum(fault.seconds for fault in self.faults)

    def faults_of(self, trial: int | None) -> list[Fault]:
        """Return the attempts of one trial, or of the final training, that were repeated."""
        return [fault for fault in self.faults if fault.trial == trial]

    def settle(self, settled: TrialOutcome, when: float = 0.0) -> None:
        """Take an outcome in. The first one counts, unless a run of the same node again may turn out better."""
        self.reopened.discard(settled.trial)
        self.stopped.pop(settled.trial, None)
        if settled.trial is None:
            if self.final is None or not self.final.ok:
                self.repeated_final_seconds += self.final.seconds if self.final else 0.0
                self.final, self.final_at = settled, when
        elif self.outcome(settled.trial) is None:
            before = self.settled.get(settled.trial)
            self.repeated_seconds += before.seconds if before else 0.0  # what is run again was trained for all the same
            self.settled[settled.trial] = settled
            self.settled_at[settled.trial] = when

    def reopen(self, trial: int | None) -> None:
        """Forget how a trial, or the final training, ended: it is to be run again."""
        self.reopened.add(trial)
        self.stopped.pop(trial, None)
        if trial is None:
            self.repeated_final_seconds += self.final.seconds if self.final else 0.0
            self.final = None
            return
        before = self.settled.pop(trial, None)
        self.settled_at.pop(trial, None)
        self.cancelled.discard(trial)
        self.repeated_seconds += before.seconds if before else 0.0
        self.won = self.won and (self.won[0], -1)  # another one may win then, whatever the number of outcomes

    def last_outcome(self, trial: int | None) -> TrialOutcome | None:
        """Return how a trial, or the final training, ended last; that may be nobody's last word."""
        return self.final if trial is None else self.settled.get(trial)

    def outcome(self, trial: int | None) -> TrialOutcome | None:
        """Return what is known for good of a trial, or of the final training."""
        if trial is None:
            return self.final if self.final and self.final.ok else None
        known = self.settled.get(trial)
        return known if known and known.status not in OPEN else None

    @property
    def ended(self) -> int:
        """Number of trials of which the outcome is known for good."""
        return sum(self.outcome(trial) is not None for trial in self.settled)

    @property
    def any_ok(self) -> bool:
        """Whether a trial has succeeded."""
        return any(settled.ok for settled in self.settled.values())

    def best(self, minimize: bool) -> TrialOutcome | None:
        """Return the best successful trial, the earliest of equals."""
        sign = 1.0 if minimize else -1.0
        done = [(sign * s.value, trial) for trial, s in self.settled.items() if s.ok and s.value is not None]
        return self.settled[min(done)[1]] if done else None

    def winner(self, minimize: bool) -> TrialOutcome | None:
        """Return the trial whose point the final training has, or else would have by the values alone."""
        return (self.settled.get(self.won[0]) if self.won else None) or self.best(minimize)
