"""All trials of a run as rows. Nothing here touches the disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nnlib.contract import Status
from regiondag.run.history import History, TrialOutcome
from regiondag.run.region_spec import RegionSpec
from regiondag.run.trial_recipes import best_popularity, floor_of
from regiondag.study.families import BLEND, FAMILY, INCUMBENT, describe_recipe, name_floor
from regiondag.study.space import Parameter, Value

LEAST_TRIALS = 8  # successful ones; of fewer nothing is said of what mattered


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One trial; where it failed, `reason` says more than `status`."""

    region: str
    slug: str
    trial: int
    status: Status
    metric: str
    minimize: bool
    value: float | None
    hyperparameters: Mapping[str, Value]  # without those whose condition does not hold
    epochs: int | None
    best_epoch: int | None
    seconds: float | None
    reason: str
    metrics: Mapping[str, float]
    curve: tuple[float, ...]  # the metric after each epoch
    settled: float | None  # Unix time
    won: bool  # its hyperparameters are those of the final training
    stderr: float | None = None  # standard error of `value`
    customers: int = 0  # how many it is the mean of
    floor: float | None = None  # what has to be beaten reaches on the same ones; None: not known
    floor_name: str = name_floor()  # what that is
    blend: str = ""  # of what, in words

    @property
    def ok(self) -> bool:
        """Whether there is a value to compare."""
        return self.status == Status.OK and self.value is not None

    @property
    def failed(self) -> bool:
        """Whether it ended without a value, and not because it was pruned."""
        return not self.ok and self.status not in (Status.RUNNING, Status.PRUNED)

    @property
    def cost(self) -> float:
        """The value as something to be minimised."""
        value = 0.0 if self.value is None else self.value
        return value if self.minimize else -value


@dataclass(frozen=True, slots=True)
class RegionTrials:
    """A region and all of its trials, in the order of their numbers."""

    spec: RegionSpec
    rows: tuple[TrialRow, ...]
    faults: Mapping[str, str] = field(default_factory=dict)  # why a job was followed by another try of its node


@dataclass(frozen=True, slots=True)
class RunTrials:
    """The trials of a whole run, or of one of its regions. `run` is the name that its folder was made with."""

    study: str
    run: str
    regions: tuple[RegionTrials, ...]

    @property
    def rows(self) -> list[TrialRow]:
        """The rows of all regions, one region after the other."""
        return [row for region in self.regions for row in region.rows]


def trials_of(spec: RegionSpec, history: History) -> RegionTrials:
    """Return a row for every trial that was proposed or settled."""
    popular = best_popularity(history)
    rows = tuple(_row(spec, history, n, popular) for n in sorted(history.proposals | history.settled))
    return RegionTrials(spec, rows, {fault.job: fault.reason for fault in history.faults})


def _row(spec: RegionSpec, history: History, number: int, popular: TrialOutcome | None) -> TrialRow:
    proposal = history.proposals.get(number)
    ended = history.settled.get(number)
    known = ended or TrialOutcome(number, Status.RUNNING)
    curve = tuple(known.curve)
    return TrialRow(
        region=spec.name,
        slug=spec.slug,
        trial=number,
        status=known.status,
        metric=spec.metric.name,
        minimize=spec.metric.minimize,
        value=known.value,
        hyperparameters=dict(proposal.point) if proposal else {},
        epochs=len(curve) or known.best_epoch or None,
        best_epoch=known.best_epoch or None,
        seconds=known.seconds if ended else None,
        reason=known.reason,
        metrics=known.metrics,
        curve=curve,
        settled=history.settled_at.get(number) or None,
        won=history.won is not None and history.won[0] == number,
        stderr=known.stderr,
        customers=known.customers,
        floor=None if known.value is None else floor_of(known, popular),
        floor_name=name_floor(spec.floor),
        blend=describe_recipe(known.recipe) if known.recipe and known.recipe.members else "",
    )


def hyperparameter_names(rows: Iterable[TrialRow]) -> list[str]:
    """Return the names of all hyperparameters of `rows`, each once, in the order in which they appear."""
    return list(dict.fromkeys(name for row in rows for name in row.hyperparameters))


def choose_rows(trials: RegionTrials) -> list[TrialRow]:
    """Return the trials that it rests on: those that succeeded, at points of the space."""
    beside = (BLEND, INCUMBENT)
    return [row for row in trials.rows if row.ok and row.hyperparameters.get(FAMILY) not in beside]


def varied_parameters(trials: RegionTrials, rows: Sequence[TrialRow]) -> list[Parameter]:
    """Return the parameters that had more than one value (or were absent in some) in `rows`."""
    return [
        parameter
        for parameter in trials.spec.search.space
        if len({identify(row.hyperparameters.get(parameter.name)) for row in rows}) > 1
    ]


def identify(value: Value | None) -> tuple[str, Value | None]:
    """Tell 1, 1.0 and true apart."""
    return type(value).__name__, value
