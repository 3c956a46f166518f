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


def stamp_of(area: Path) -> str:
    """Return what a kept run must have been made with."""
    return f"{stamp(make_study(area))} {digest_of(OUR_SOURCES)}"


def runs_in(area: Path) -> KeptRuns[Key, Run]:
    """Return the runs that a folder keeps, beside the study's data and single trials' results."""
    now = stamp_of(area)

    def words_of(key: Key) -> list[str]:
        return [key.share, str(key.seed), str(key.trials), *key.countries]

    def make(key: Key) -> dict[str, Any]:
        argv = module("sharing.run", area, *words_of(key))
        raw: dict[str, Any] = json.loads(measure(argv, timeout=TIME_LIMIT, env=ONE_THREAD).output)
        return raw

    def read(key: Key, raw: Mapping[str, Any]) -> Run:
        return Run(key, raw["values"], raw["worths"], raw["proposing"])

    return KeptRuns(lambda key: area / "-".join([*words_of(key), "run.json"]), lambda _: now, read, make)
