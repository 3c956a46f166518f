"""A study as data: what study.yaml says after every default and every region's override is in place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.contract import Metric, TrainSettings
from regiondag.study.families import FAMILY
from regiondag.study.program import Program
from regiondag.study.space import Point, Space
from regiondag.study.submit_commands import Submit

if TYPE_CHECKING:
    from regiondag.study.database import Database
    from regiondag.study.notify import Notify
    from regiondag.study.track import Track

MAX_TRIALS = 99_999  # of one region

# Of a region's data; `final` is training plus validation data, `all` has the test part, too.
ALL = "all"
PARTS = ("train", "valid", "final", "test", ALL)
NEEDED = ("train", "valid", "test")

HOUR = 3600
DAY = 24 * HOUR
TRAIN_SETTINGS = frozenset(setting.name for setting in fields(TrainSettings))
GIVE_UP_AFTER = 8
GPU_COUNTS = (1, 2, 4, 8)  # that a training may have
SPARE = 1 / 3  # of a lane's trials: how many more it may take from others
MIN_CUSTOMERS = 10  # in validation; a region of fewer is not judged by itself
PYTHONS = (WORKER, BUNDLE) = ("worker", "bundle")  # what runs jobs: the machine's own, or one that goes with them
POOLED = "pooled"  # name and slug of the region that is trained on the data of all others


@dataclass(frozen=True, slots=True)
class Search:
    """How hyperparameters are proposed. `sizes` holds the number of trials of each round.

    In lanes there are no rounds to wait for: trial n is proposed when trial n - sizes[0] has ended. A lane whose trials
    are short takes some of another one's: the graph has more nodes than trials, and those left over do nothing.
    """

    method: str
    space: Space
    sizes: tuple[int, ...]
    constraints: tuple[str, ...] = ()  # as `regiondag.study.constraints` reads them
    acquisition: str = "improvement"  # or improvement_per_second
    give_up_after: int = GIVE_UP_AFTER  # failed trials at the start of a region after which it stops; 0: never
    schedule: str = "rounds"  # or lanes
    budget: int = 0  # seconds of training after which nothing new is proposed; 0: no limit
    prune: str = "none"  # one of `pruning.KINDS`
    share: str = "off"  # or warm, model: what a region takes from others and from earlier runs
    winner: str = "observed"  # or model, or auto: by whose word the last training gets a trial's point
    stop: str = "none"  # or noise: the search ends when what it would still gain is lost in that
    blends: bool = False  # whether a trial after all others blends the best of each family

    @property
    def of_families(self) -> bool:
        """Whether a trial's point says which family it is of; else all are networks."""
        return any(parameter.name == FAMILY for parameter in self.space)

    @property
    def trials(self) -> int:
        """Number of trials of the whole search."""
        return sum(self.sizes)

    @property
    def nodes(self) -> int:
        """Number of trial nodes in the graph, whose numbers are those of the trials."""
        if self.schedule != "lanes" or self.sizes[:1] in ((), (1,)):
            return self.trials
        return min(self.trials + self.sizes[0] * math.ceil(SPARE * len(self.sizes)), MAX_TRIALS)

    @property
    def blend(self) -> int | None:
        """Number of the trial that blends; None where none does."""
        return self.nodes if self.blends else None

    @property
    def planned(self) -> int:
        """Number of trials of the whole search, and the one that blends."""
        return self.trials + (self.blends and self.trials > 0)

    @property
    def last(self) -> int:
        """Number of the last trial node; -1 where there is none."""
        return self.nodes - 1 if self.blend is None else self.blend

    def round_of(self, number: int) -> int:
        """Return the round (from 0) in which trial `number` (from 0) runs."""
        for index, size in enumerate(self.sizes):
            if number < size:
                return index
            number -= size
        raise ValueError(f"trial {number} lies beyond the last of {self.trials}")

    def trials_of_round(self, number: int) -> range:
        """Return the trials of the round in which trial `number` (from 0) runs."""
        index = self.round_of(number)
        first = sum(self.sizes[:index])
        return range(first, first + self.sizes[index])


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What one training job asks of a worker; `config.keys` says what each is. Sizes in bytes, times in seconds."""

    gpus: int = 1  # the most that it takes
    fewest_gpus: int | None = None  # with which it makes do; None: no fewer
    require_gpus: str = ""
    cpus: int = 2
    memory: int = 4 << 30
    memory_max: int | None = None
    disk: int = 4 << 30
    max_output: int | None = None  # None: what models can be, where that is known, and never more than `disk`
    deadline: int = 2 * HOUR
    checkpoint: int = HOUR // 2
    hold_limit: int = HOUR
    idle_limit: int = 7 * DAY
    retries: int = 2
    requirements: str = "TARGET.HAS_GPU =?= True"
    python: str = WORKER
    submit: Submit = field(default_factory=dict)  # commands of the user's own

    @property
    def gpu_counts(self) -> tuple[int, ...]:
        """The numbers of GPUs that it may get, the most first; none where it wants none."""
        fewest = self.gpus if self.fewest_gpus is None else self.fewest_gpus
        return tuple(count for count in reversed(GPU_COUNTS) if fewest <= count <= self.gpus)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a whole study, as `config.keys` has them; 0: no limit."""

    jobs: int = 0
    jobs_per_region: int = 0
    trials: int = 0  # of all searches together
    deadline: int = 0  # in seconds
    disk: int = 0  # bytes of the run


@dataclass(frozen=True, slots=True)
class Init:
    """What a region's trainings start from: random weights, or those of a model.

    `source` is the slug of the region of the same run whose champion that model is: a neighbour, or all regions pooled.
    It is empty for `champion`, the region's own of an earlier run, and for a neighbour that is still to be chosen.
    `model` is the path of a model file, which no run made.
    """

    kind: str = "random"  # or champion, neighbour, pooled, model
    source: str = ""
    model: str = ""

    @property
    def random(self) -> bool:
        """Whether there is no model to start from."""
        return self.kind == "random"


@dataclass(frozen=True, slots=True)
class Purchases:
    """The table that a study's data come from, and how it is split. Windows in days."""

    table: Path | Database
    folder: Path  # where the regions' parts go
    split: str = "time"  # or leave-one-out, column, random
    column: str = ""  # that says the part, of split: column
    test: int = 0  # 0: 28, or as many as it takes to ask enough customers
    validate: int = 0
    min_history: int = 5
    repeats: bool = False
    columns: Mapping[str, str] = field(
        default_factory=dict
    )  # region, customer, item, time, description, quantity -> its names
    region: str = ""  # name of the one that all are of, where no column says it
    format: Mapping[str, str] = field(default_factory=dict)  # separator, encoding, dates, decimal


@dataclass(frozen=True, slots=True)
class Region:
    """One dataset and everything that is done with it; the study's sections and the region's own are merged."""

    name: str
    slug: str
    data: Mapping[str, Path]  # part -> file
    network: Path | None  # None: its trials are of families alone
    metric: Metric
    train: TrainSettings
    search: Search
    job: JobRequest
    update: Search | None = None  # of runs that start from a champion; None: as `search`
    final: JobRequest | None = None  # of the last training; None: as `job`
    init: Init = Init()
    merged: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)  # part -> files of other regions, see POOLED
    first: tuple[Point, ...] = ()  # what is tried first
    served_by: str = ""  # slug of the region whose search is for this one, too; empty: its own
    program: Program | None = None  # that trains in nnlib's place

    @property
    def learned_from(self) -> tuple[Path, ...]:
        """The files of all that its trainings learn from: those of the whole where there are any; none without data."""
        parts = self.merged or {part: (file,) for part, file in self.data.items()}
        return parts.get(ALL) or parts.get("train", ())

    @property
    def final_parts(self) -> tuple[str, ...]:
        """Parts of the data on which the winner is trained to be tested, and then `all`, to serve.

        A model for other regions to start from must not know what they are to choose their hyperparameters by, so that
        of merged data never learns from the validation part.
        """
        parts, families = {*self.data, *self.merged}, self.search.of_families
        if not parts:
            return ()  # a program knows its own
        if self.merged and not families:
            return ("train",)
        if "final" not in parts and not families:
            return ("train", "valid")
        return ("final", ALL) if ALL in parts else ("final",)


def _tell_nobody() -> Notify:
    from regiondag.study.notify import Notify  # DAGMan's scripts start faster without

    return Notify()


@dataclass(frozen=True, slots=True)
class Config:
    """A whole study."""

    name: str
    file: Path
    regions: tuple[Region, ...]
    limits: Limits
    purchases: Purchases | None = None  # None: the regions' data are files made before
    min_customers: int = MIN_CUSTOMERS
    notify: Notify = field(default_factory=_tell_nobody)
    track: Track | None = None  # None: nowhere

    @property
    def most_jobs(self) -> int:
        """How many jobs may be in the queue at once."""
        most = 0
        for region in self.regions:
            widest = max(region.search.sizes, default=1)
            most += min(widest, self.limits.jobs_per_region or widest)
        return min(most, self.limits.jobs or most)
