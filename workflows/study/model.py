"""A study as data: what study.yaml says after every default and every region's override is in place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from nnlib.contract import Metric, TrainSettings
from regiondag.study.space import Space

MAX_TRIALS = 99_999  # of one region

PARTS = ("train", "valid", "final", "test")  # of a region's data; `final` is training plus validation data

HOUR = 3600
DAY = 24 * HOUR
TRAIN_SETTINGS = frozenset(setting.name for setting in fields(TrainSettings))
GIVE_UP_AFTER = 8
SPARE = 1 / 3  # of a lane's trials: how many more it may take from others
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
    winner: str = "observed"  # or model: by whose word the last training gets a trial's point

    @property
    def trials(self) -> int:
        """Number of trials of the whole search."""
        return sum(self.sizes)

    @property
    def nodes(self) -> int:
        """Number of trial nodes in the graph, whose numbers are those of the trials."""
        if self.schedule != "lanes" or self.sizes[0] == 1:
            return self.trials
        return min(self.trials + self.sizes[0] * math.ceil(SPARE * len(self.sizes)), MAX_TRIALS)

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

    gpus: int = 1
    cpus: int = 2
    memory: int = 4 << 30
    memory_max: int | None = None
    disk: int = 4 << 30
    deadline: int = 2 * HOUR
    checkpoint: int = HOUR // 2
    hold_limit: int = HOUR
    idle_limit: int = 7 * DAY
    retries: int = 2
    requirements: str = "TARGET.HAS_GPU =?= True"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a whole study, as `config.keys` has them; 0: no limit."""

    jobs: int = 0
    jobs_per_region: int = 0
    deadline: int = 0  # in seconds


@dataclass(frozen=True, slots=True)
class Init:
    """What a region's trainings start from: random weights, or those of a model.

    `source` is the slug of the region of the same run whose champion that model is: a neighbour, or all regions pooled.
    It is empty for `champion`, the region's own of an earlier run, and for a neighbour that is still to be chosen.
    """

    kind: str = "random"  # or champion, neighbour, pooled
    source: str = ""

    @property
    def random(self) -> bool:
        """Whether there is no model to start from."""
        return self.kind == "random"


@dataclass(frozen=True, slots=True)
class Region:
    """One dataset and everything that is done with it; the study's sections and the region's own are merged."""

    name: str
    slug: str
    data: Mapping[str, Path]  # part -> file
    network: Path
    metric: Metric
    train: TrainSettings
    search: Search
    job: JobRequest
    update: Search | None = None  # of runs that start from a champion; None: as `search`
    init: Init = Init()
    merged: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)  # part -> files of other regions, see POOLED

    @property
    def final_parts(self) -> tuple[str, ...]:
        """Parts of the data on which the winner is trained: all of it but the test part.

        A model for other regions to start from must not know what they are to choose their hyperparameters by, so that
        of merged data never learns from the validation part.
        """
        if self.merged:
            return ("train",)
        return ("final",) if "final" in self.data else ("train", "valid")


@dataclass(frozen=True, slots=True)
class Config:
    """A whole study."""

    name: str
    file: Path
    regions: tuple[Region, ...]
    limits: Limits
