"""A study as data: what study.yaml says after every default and every region's override is in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nnlib.contract import Metric, TrainSettings
from workflows.space import Space

HOUR = 3600
GIVE_UP_AFTER = 8


@dataclass(frozen=True, slots=True)
class Search:
    """How hyperparameters are proposed. `sizes` holds the number of trials of each round.

    In lanes there are no rounds to wait for: trial n is proposed when trial n - sizes[0] has ended.
    """

    method: str
    space: Space
    sizes: tuple[int, ...]
    constraints: tuple[str, ...] = ()  # as `workflows.constraints` reads them
    acquisition: str = "improvement"  # or improvement_per_second
    give_up_after: int = GIVE_UP_AFTER  # failed trials at the start of a region after which it stops; 0: never
    schedule: str = "rounds"  # or lanes
    budget: int = 0  # seconds of training after which nothing new is proposed; 0: no limit
    prune: str = "none"  # one of `pruning.KINDS`
    share: str = "off"  # or warm, model: what a region takes from others and from earlier runs

    @property
    def trials(self) -> int:
        """Number of trials of the whole search."""
        return sum(self.sizes)

    def round_of(self, number: int) -> int:
        """Return the round (from 0) in which trial `number` (from 0) runs."""
        for index, size in enumerate(self.sizes):
            if number < size:
                return index
            number -= size
        raise ValueError(f"trial {number} lies beyond the last of {self.trials}")


@dataclass(frozen=True, slots=True)
class Job:
    """What one training job asks of a worker. Sizes in bytes, times in seconds."""

    gpus: int = 1
    cpus: int = 2
    memory: int = 4 << 30
    memory_max: int | None = None  # after running out of memory a job asks for more, up to this
    disk: int = 4 << 30
    deadline: int = 2 * HOUR
    hold_limit: int = HOUR  # a job held for longer is removed and counts as a failed trial
    retries: int = 2  # after a fault of the machine
    requirements: str = "TARGET.HAS_GPU =?= True"


@dataclass(frozen=True, slots=True)
class Limits:
    """How many jobs are in the queue at a time, over all regions and of one region; 0: no limit."""

    jobs: int = 0
    jobs_per_region: int = 0


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
    job: Job
    update: Search | None = None  # of runs that start from a champion; None: as `search`

    @property
    def final_parts(self) -> tuple[str, ...]:
        """Parts of the data on which the winner is trained: all of it but the test part."""
        return ("final",) if "final" in self.data else ("train", "valid")


@dataclass(frozen=True, slots=True)
class Config:
    """A whole study."""

    name: str
    file: Path
    regions: tuple[Region, ...]
    limits: Limits
