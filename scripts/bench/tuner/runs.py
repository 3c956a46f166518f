"""Runs of tuners on problems, each in a process of its own with one thread, kept so that nothing runs twice."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from scripts.bench.common.environments import OPTUNA, optuna_python
from scripts.bench.common.kept_runs import KeptRuns, digest_of
from scripts.bench.common.processes import ONE_THREAD, measure, module
from scripts.bench.tuner.peers import OPTUNAS, OURS, SKOPT
from scripts.bench.tuner.problems import problem

OUR_SOURCES = ("workflows/tuning/**/*.py", "workflows/study/space.py", "workflows/study/constraints.py")
TIME_LIMIT = 1800  # seconds for a run


@dataclass(frozen=True)
class Key:
    """Which run."""

    problem: str
    method: str
    seed: int


@dataclass(frozen=True)
class Run:
    """What a run gave: the true value of the reported point after each budget, and what the tuner itself cost."""

    key: Key
    best: dict[int, float]  # of the point with the least observed value
    seconds: float
    peak_mb: float


def runs_in(folder: Path) -> KeptRuns[Key, Run]:
    """Return the runs that a folder keeps."""
    return KeptRuns(lambda key: folder / key.problem / f"{key.method}-{key.seed}.json", _stamp, _read, _make)


def _read(key: Key, raw: Mapping[str, Any]) -> Run:
    best = {int(budget): value for budget, value in raw["best"].items()}
    return Run(key, best, raw["seconds"], raw["peak_mb"])


def _make(key: Key) -> dict[str, Any]:
    python = optuna_python() if key.method in OPTUNAS else sys.executable
    argv = module("tuner.run", key.problem, key.method, str(key.seed), python=python)
    found = measure(argv, timeout=TIME_LIMIT, env=ONE_THREAD)
    return {**json.loads(found.output), "peak_mb": round(found.peak_mb, 1)}


def _stamp(key: Key) -> str:
    """Return what a kept run must have been made with."""
    return f"{_fingerprint(key.problem)} {version(key.method)}"


@cache
def _fingerprint(name: str) -> str:
    return problem(name).fingerprint()


@cache
def version(method: str) -> str:
    """Return the version of a tuner; of ours, a digest of its sources."""
    if method in OPTUNAS:
        return f"optuna {OPTUNA}"
    if method == SKOPT:
        return f"scikit-optimize {metadata.version('scikit-optimize')}"
    return digest_of(OUR_SOURCES) if method == OURS else "1"
