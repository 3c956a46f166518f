"""The problems of tuner.py by name, from all sources; nothing heavy is imported before one of them is asked for."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from scripts.bench.tuner.problem import Problem
from scripts.bench.tuner.problems import bayesmark, bbob, functions, learners, mixed, restricted, trainings, yahpo

# Each has `names()`, which is cheap and leaves out what lacks its data, and `make(name)`.
SOURCES = (functions, trainings, mixed, bbob, yahpo, bayesmark, learners, restricted)

KNOWN = Path(__file__).with_name("known.json")  # best values that `problems.search` found


@cache
def known() -> dict[str, float]:
    """Return the best known values of problems whose optimum nobody knows."""
    found: dict[str, float] = json.loads(KNOWN.read_text(encoding="utf-8"))
    return found


@cache
def names() -> tuple[str, ...]:
    """Return the names of all problems that this machine has the data of."""
    return tuple(name for source in SOURCES for name in source.names())


@cache
def problem(name: str) -> Problem:
    """Return a problem; it is made when it is asked for first."""
    for source in SOURCES:
        if name in source.names():
            found: Problem = source.make(name)
            return replace(found, optimum=known().get(name)) if found.optimum is None else found
    raise ValueError(f"no problem is called {name}; there are {', '.join(names())}")


def is_held_out(name: str) -> bool:
    """Return whether a problem belongs to the half that is looked at only for the last figure."""
    return hashlib.sha256(name.encode()).digest()[-1] % 2 == 1
