"""Runs of sharing.py: each in a process of its own with one thread, kept in a folder so that nothing runs twice."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import harness
from harness import NotMeasuredError, measure
from sharing_stats import Curves, Values
from sharing_work import digest, make_study, stamp

FOLDER = Path(__file__).resolve().parent
OUR_SOURCES = (
    "workflows/tuning/**/*.py",
    "workflows/space.py",
    "workflows/constraints.py",
    "scripts/bench/sharing_run.py",
    "scripts/bench/sharing_stats.py",
    "scripts/bench/sharing_work.py",
)
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
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
    worths: Curves
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
        try:
            raw = json.loads(self._file(key).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        if raw["stamp"] != self.stamp:
            return None
        return Run(key, raw["values"], raw["worths"], raw["proposing"], raw["training"])

    def all(self, keys: Iterable[Key]) -> list[Run]:
        """Return the runs that are there."""
        return [run for key in keys if (run := self.find(key))]

    def fill(self, keys: Iterable[Key], workers: int) -> Iterator[str]:
        """Make the runs that are missing, and say of each how it ended."""
        missing = [key for key in keys if self.find(key) is None]
        with ThreadPoolExecutor(workers) as pool:
            for number, text in enumerate(pool.map(self._make, missing), start=1):
                yield f"{number} of {len(missing)}: {text}"

    def _make(self, key: Key) -> str:
        name = f"{key.share} {key.seed}"
        before = self.stamp
        words = [self.folder, key.share, str(key.seed), str(key.trials), *key.countries]
        env = ONE_THREAD | {"PYTHONPATH": str(harness.REPOSITORY)}
        try:
            found = measure([sys.executable, FOLDER / "sharing_run.py", *words], timeout=TIME_LIMIT, env=env)
        except NotMeasuredError as error:
            return f"{name}: {error}"
        raw = {"stamp": before, **json.loads(found.output)}
        file = self._file(key)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(raw), encoding="utf-8")
        part.replace(file)
        return f"{name}: proposals {raw['proposing']:.0f} s, trainings {raw['training']:.0f} s of CPU"

    def _file(self, key: Key) -> Path:
        return self.folder / "-".join([key.share, str(key.seed), str(key.trials), *key.countries, "run.json"])
