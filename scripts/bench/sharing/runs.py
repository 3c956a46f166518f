"""Runs of all countries, each in a process of its own with one thread, kept so that nothing runs twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.bench.common.kept_runs import KeptRuns, digest_of
from scripts.bench.common.processes import ONE_THREAD, measure, module
from scripts.bench.sharing.stats import Curves, Values
from scripts.bench.sharing.work import make_study, stamp

OUR_SOURCES = (
    "workflows/tuning/**/*.py",
    "workflows/study/space.py",
    "workflows/study/constraints.py",
    *(f"scripts/bench/sharing/{name}.py" for name in ("run", "stats", "work")),
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
        self.stamp = f"{stamp(make_study(self.folder))} {digest_of(OUR_SOURCES)}"
        self.runs: KeptRuns[Key, Run] = KeptRuns(self._file, lambda _: self.stamp, _read, self._make)

    def _make(self, key: Key) -> dict[str, Any]:
        words: list[str | Path] = [self.folder, key.share, str(key.seed), str(key.trials), *key.countries]
        raw: dict[str, Any] = json.loads(
            measure(module("sharing.run", *words), timeout=TIME_LIMIT, env=ONE_THREAD).output
        )
        return raw

    def _file(self, key: Key) -> Path:
        return self.folder / "-".join([key.share, str(key.seed), str(key.trials), *key.countries, "run.json"])


def _read(key: Key, raw: Mapping[str, Any]) -> Run:
    return Run(key, raw["values"], raw["worths"], raw["proposing"], raw["training"])
