"""Runs of tuners on problems, kept so that nothing runs twice; each tuner in a process of its own with one thread."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from scripts.bench.common.child import Child
from scripts.bench.common.kept_runs import KeptRuns
from scripts.bench.common.processes import ONE_THREAD, REPOSITORY, NotMeasuredError
from scripts.bench.tuner.methods import Method
from scripts.bench.tuner.problem import Value
from scripts.bench.tuner.problems import problem
from scripts.bench.tuner.run import run
from scripts.bench.tuner.tuners.face import Task
from scripts.bench.tuner.tuners.served import task_to_json

TIME_LIMIT = 600  # seconds for one answer of a tuner
SERVED = "tuner.tuners.served"


@dataclass(frozen=True)
class Key:
    """Which run, and of how many trials at least."""

    problem: str
    method: str
    mode: str
    seed: int
    trials: int


@dataclass(frozen=True)
class Run:
    """What a run gave: the true value of the reported point after each budget, and what the tuner itself cost."""

    key: Key
    best: dict[int, float]
    seconds: float  # CPU; NaN where nobody knows


class Runs:
    """The runs that a folder keeps, and the processes that make those that are missing; use it as a context."""

    def __init__(self, folder: Path, known: Mapping[str, Method]) -> None:
        self._known = known
        self._children: dict[str, Child] = {}
        self._missing: dict[str, str] = {}  # tuners without an environment, and why
        self._scratch = tempfile.TemporaryDirectory()
        self.kept = KeptRuns(lambda key: _file(folder, key), self._stamp, _read, self._make)

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.end()
        self._scratch.cleanup()

    def _stamp(self, key: Key) -> str:
        """Return what a kept run must have been made with."""
        return f"{fingerprint(key.problem)} {self._known[key.method].version}"

    def _make(self, key: Key) -> dict[str, Any]:
        asked = problem(key.problem)
        task = Task(asked.space, key.seed, key.mode, constraints=asked.constraints)
        try:
            tuner = _Remote(self._child(key.method), task)
            with threadpool_limits(1):
                found = run(asked, tuner, key.mode, key.seed, key.trials)
        except NotMeasuredError:
            if child := self._children.pop(key.method, None):
                child.end()
            raise
        return {**found, "seconds": round(tuner.seconds, 4)}

    def _child(self, name: str) -> Child:
        if name not in self._children:
            method = self._known[name]
            env = {**ONE_THREAD, "PYTHONWARNINGS": "ignore"}
            if method.checkout:
                env["PYTHONPATH"] = os.pathsep.join(map(str, (self._packages_of(name, method.checkout), REPOSITORY)))
            python = self._python(name)
            self._children[name] = Child(python, SERVED, method.module, json.dumps(method.options), env=env)
        return self._children[name]

    def _python(self, name: str) -> Path:
        if name in self._missing:  # installing it would fail as it did before
            raise NotMeasuredError(self._missing[name])
        try:
            return self._known[name].python()
        except NotMeasuredError as error:
            self._missing[name] = str(error)
            raise

    def _packages_of(self, name: str, checkout: Path) -> Path:
        """Return a folder whose packages are those of a checkout, whatever is installed."""
        folder = Path(self._scratch.name) / name
        folder.mkdir(exist_ok=True)
        for package, source in {"regiondag": "workflows", "nnlib": "nnlib"}.items():
            if not (folder / package).exists():
                (folder / package).symlink_to(checkout.resolve() / source)
        return folder


class _Remote:
    """A tuner in a child process."""

    def __init__(self, child: Child, task: Task) -> None:
        self._child, self.seconds = child, 0.0
        self._answer({"task": task_to_json(task)})

    def ask(self, n: int) -> list[dict[str, Value]]:
        points: list[dict[str, Value]] = self._answer({"ask": n})["points"]
        return points

    def tell(self, values: Mapping[int, float | None]) -> None:
        self._answer({"tell": list(values.items())})

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        answer = self._child.ask(json.dumps(question), TIME_LIMIT)
        self.seconds += answer["seconds"]
        return answer


def _file(folder: Path, key: Key) -> Path:
    return folder / key.mode / key.problem / f"{key.method}-{key.seed}.json"


def _read(key: Key, raw: Mapping[str, Any]) -> Run | None:
    """Return a kept run if it is long enough: who learns for fewer trials goes the same way as far as that."""
    best = {int(budget): value for budget, value in raw["best"].items()}
    return Run(key, best, raw["seconds"]) if len(raw["values"]) >= key.trials else None


@cache
def fingerprint(name: str) -> str:
    """Return the digest of a problem."""
    return problem(name).fingerprint()
