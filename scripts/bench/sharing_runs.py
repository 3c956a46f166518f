"""Runs of sharing.py: each in a process of its own with one thread, kept in a folder so that nothing runs twice."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import kept_runs
from harness import NotMeasuredError
from sharing_stats import Curves, Values
from sharing_work import digest, make_study, stamp

FOLDER = Path(__file__).resolve().parent
OUR_SOURCES = (
    "workflows/tuning/**/*.py",
    "workflows/study/space.py",
    "workflows/study/constraints.py",
    "scripts/bench/sharing_run.py",
    "scripts/bench/sharing_stats.py",
    "scripts/bench/sharing_work.py",
)
TIME_LIMIT = 7200  # seconds for a run


@dataclass(frozen=True)
class Key:
    """Which run."""

    share: str
    seed: int
    trials: int
    countries: tuple[str, ...] = ()  # all of them, if empty


@dataclass(frozen=True)
class Run:
    """What a run gave: the value of every trial by country, in order, what came of them, and CPU seconds."""

    key: Key
    values: Values
    worths: Mapping[str, Curves]  # by the way the winner was chosen, the usual one first
    proposing: float
    training: float


class Area:
    """The folder of kept runs, of the study's data, and of single trials' results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.study = make_study(self.folder)

    @cached_property
    def stamp(self) -> str:
        """What a kept run must have been made with."""
        return f"{stamp(self.study)} {digest(OUR_SOURCES)}"

    def find(self, key: Key) -> Run | None:
        """Return a kept run; None if there is none, or one of other sources."""
        raw = kept_runs.find(self._file(key), self.stamp)
        return raw and Run(key, raw["values"], raw["worths"], raw["proposing"], raw["training"])

    def all(self, keys: Iterable[Key]) -> list[Run]:
        """Return the runs that are there."""
        return [run for key in keys if (run := self.find(key))]

    def fill(self, keys: Iterable[Key], workers: int) -> Iterator[str]:
        """Make the runs that are missing, and say of each how it ended."""
        return kept_runs.fill([key for key in keys if self.find(key) is None], self._make, workers)

    def _make(self, key: Key) -> str:
        name = f"{key.share} {key.seed}"
        before = self.stamp
        words = [self.folder, key.share, str(key.seed), str(key.trials), *key.countries]
        try:
            found = kept_runs.measured([sys.executable, FOLDER / "sharing_run.py", *words], TIME_LIMIT)
        except NotMeasuredError as error:
            return f"{name}: {error}"
        raw = json.loads(found.output)
        kept_runs.keep(self._file(key), before, raw)
        return f"{name}: proposals {raw['proposing']:.0f} s, trainings {raw['training']:.0f} s of CPU"

    def _file(self, key: Key) -> Path:
        return self.folder / "-".join([key.share, str(key.seed), str(key.trials), *key.countries, "run.json"])
