"""Runs of tuner.py: each in a process of its own with one thread, kept in a folder so that nothing runs twice."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import harness
import kept_runs
from harness import NotMeasuredError
from train_cpu_turns import ENVIRONMENT as TORCH_ENVIRONMENT
from train_cpu_turns import TORCH, torch_python
from tuner_peers import OPTUNAS, OURS, SKOPT
from tuner_problems import problems

FOLDER = Path(__file__).resolve().parent
ENVIRONMENT = TORCH_ENVIRONMENT.with_name("bench-optuna")
OPTUNA = "5.0.0"
SHARED = ("numpy", "scipy", "scikit-learn")  # in the same versions there, so that the problems are the same
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


class Area:
    """The folder of kept runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, key: Key) -> Run | None:
        """Return a kept run; None if there is none, or one of another version of the problem or the tuner."""
        raw = kept_runs.find(self._file(key), stamp(key.problem, key.method))
        if raw is None:
            return None
        best = {int(budget): value for budget, value in raw["best"].items()}
        return Run(key, best, raw["seconds"], raw["peak_mb"])

    def all(self, keys: Iterable[Key]) -> list[Run]:
        """Return the runs that are there."""
        return [run for key in keys if (run := self.find(key))]

    def fill(self, keys: Iterable[Key], workers: int) -> Iterator[str]:
        """Make the runs that are missing, and say of each how it ended."""
        return kept_runs.fill([key for key in keys if self.find(key) is None], self._make, workers)

    def _make(self, key: Key) -> str:
        name = f"{key.problem} {key.method} {key.seed}"
        before = stamp(key.problem, key.method)
        words = [key.problem, key.method, str(key.seed)]
        try:
            found = kept_runs.measured([python_of(key.method), FOLDER / "tuner_run.py", *words], TIME_LIMIT)
        except NotMeasuredError as error:
            return f"{name}: {error}"
        raw: dict[str, Any] = {**json.loads(found.output), "peak_mb": round(found.peak_mb, 1)}
        kept_runs.keep(self._file(key), before, raw)
        return f"{name}: {raw['best']}, {raw['seconds']:.1f} s"

    def _file(self, key: Key) -> Path:
        return self.folder / key.problem / f"{key.method}-{key.seed}.json"


@cache
def stamp(problem: str, method: str) -> str:
    """Return what a kept run must have been made with."""
    return f"{_fingerprint(problem)} {version(method)}"


@cache
def _fingerprint(problem: str) -> str:
    return problems()[problem].fingerprint()


def version(method: str) -> str:
    """Return the version of a tuner; of ours, a digest of its sources."""
    if method in OPTUNAS:
        return f"optuna {OPTUNA}"
    if method == SKOPT:
        return f"scikit-optimize {metadata.version('scikit-optimize')}"
    return _digest() if method == OURS else "1"


def _digest() -> str:
    files = sorted(file for pattern in OUR_SOURCES for file in harness.REPOSITORY.glob(pattern))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]


def python_of(method: str) -> Path:
    """Return the Python that has a tuner's libraries."""
    return optuna_python() if method in OPTUNAS else Path(sys.executable)


@cache
def optuna_python() -> Path:
    """Return a Python that has Optuna; it gets an environment of its own and borrows PyTorch from train_cpu.py's."""
    python = ENVIRONMENT / "bin" / "python"
    pins = {"optuna": OPTUNA, **{name: metadata.version(name) for name in SHARED}}
    check = f"from importlib.metadata import version as v; assert all(v(n) == w for n, w in {pins!r}.items())"
    if python.exists() and subprocess.run([python, "-c", check], capture_output=True, check=False).returncode == 0:
        return python
    torch_python()
    print(f"installing Optuna {OPTUNA} in {ENVIRONMENT} ...", file=sys.stderr, flush=True)
    venv.create(ENVIRONMENT, with_pip=True)
    ours, theirs = (
        sysconfig.get_path("purelib", "venv", {"base": str(base)}) for base in (ENVIRONMENT, TORCH_ENVIRONMENT)
    )
    Path(ours, "torch.pth").write_text(theirs + "\n", encoding="utf-8")
    wanted = [f"{name}=={wanted}" for name, wanted in (pins | {"torch": TORCH}).items()]
    install = [python, "-m", "pip", "install", "--quiet", *wanted]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotMeasuredError(f"Optuna {OPTUNA} cannot be installed: {done.stderr[-300:].strip()}")
    return python
