"""Run tests with a changed module, each time in a process of its own.

The process is forked from one that has imported what most tests need. It gets the changed source from a file of its
own (`inside`): the sources stay as they are whatever happens.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

INSIDE = Path(__file__).resolve().parent / "inside"
sys.path.insert(0, str(INSIDE))

import mutant_finder  # noqa: E402

FAST = "not condor and not slow and not browser"
NOTHING = "none"  # the module of a trial that changes nothing
WAITING = 6  # times the limit that a trial may take by the clock, which is for those that only wait
PRELOADED = ["pytest", "_pytest.assertion.rewrite", "hypothesis", "numpy", "scipy.sparse"]  # once for all trials


@dataclass(frozen=True)
class Trial:
    """Tests to be run with one source of a module."""

    module: str
    source: str
    tests: tuple[Path, ...]
    limit: float = 600.0  # seconds of a processor, so that a busy machine kills nothing


@dataclass(frozen=True)
class End:
    """How a trial ended."""

    told: str | None  # what pytest wrote last; None when all tests passed
    seconds: float


@dataclass
class Running:
    """The process of a trial."""

    process: Any
    place: Path
    begin: float
    limit: float


class Pool:
    """Runs trials, some at a time, each in a forked process with what most tests need already imported."""

    def __init__(self, folder: Path, jobs: int, root: Path) -> None:
        self._folder = folder
        self._jobs = jobs
        self._root = root
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)

    def run(self, trials: Sequence[Trial], tell: Callable[[int, End], None] | None = None) -> dict[int, End]:
        """Return how each trial ended, by its number."""
        ended: dict[int, End] = {}
        running: dict[int, Running] = {}
        waiting = list(enumerate(trials))[::-1]
        try:
            while waiting or running:
                while waiting and len(running) < self._jobs:
                    number, trial = waiting.pop()
                    running[number] = self._start(trial)
                connection.wait([each.process.sentinel for each in running.values()], timeout=1)
                for number, each in list(running.items()):
                    over = time.monotonic() > each.begin + WAITING * each.limit
                    if each.process.is_alive() and not over:
                        continue
                    _end(each)
                    told = _told(each) if over or each.process.exitcode else None
                    ended[number] = End(told, time.monotonic() - each.begin)
                    del running[number]
                    shutil.rmtree(each.place, ignore_errors=True)
                    if tell is not None:
                        tell(number, ended[number])
        finally:  # also after Ctrl-C
            for each in running.values():
                _end(each)
        return ended

    def _start(self, trial: Trial) -> Running:
        place = Path(tempfile.mkdtemp(dir=self._folder))
        (place / "source.py").write_text(trial.source, encoding="utf-8")
        process = self._context.Process(target=_test, args=(trial, place, self._root))
        process.start()
        return Running(process, place, time.monotonic(), trial.limit)


def _told(ended: Running) -> str:
    output = ended.place / "output"
    text = output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""
    return f"{text[-3000:]}\nended with {ended.process.exitcode}"


def _end(running: Running) -> None:
    """End a process and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.process.pid, signal.SIGKILL)
    running.process.kill()
    running.process.join()


def _test(trial: Trial, place: Path, root: Path) -> None:
    """Run tests in this process, which is the forked one; its exit code is pytest's."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(trial.limit), math.ceil(trial.limit) + 1))
    os.chdir(root)
    with (place / "output").open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.environ |= {
        mutant_finder.NAME: trial.module,
        mutant_finder.CHANGED: str(place / "source.py"),
        "PYTHONPATH": os.pathsep.join([str(INSIDE), str(root)]),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(place / "hypothesis"),
    }
    if trial.module.startswith(
        "nnlib.compiled.loops"
    ):  # or Numba would take, and keep, code that belongs to the other source
        os.environ["NUMBA_CACHE_DIR"] = str(place / "numba")
    sys.path.insert(0, str(root))
    mutant_finder.install()
    import pytest

    options = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # some plugins were imported before
    options += ["-x", "-q", "-m", FAST, "-p", "no:cacheprovider", "-p", "no:randomly", f"--basetemp={place / 'tmp'}"]
    sys.exit(int(pytest.main([*options, "--hypothesis-seed=0", *map(str, trial.tests)])))
