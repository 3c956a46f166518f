"""Each side in a process of its own: how long it takes, and the most memory that it has."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

REPOSITORY = Path(__file__).resolve().parents[3]
# What would choose other kernels than a library does by itself; who sets them would measure something else.
STEERS = re.compile(r"(?:BLIS|MKL|NVPL_BLAS|OPENBLAS)_(?!NUM_THREADS)|(?:ONE)?DNN(?:L|_)")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class NotMeasuredError(Exception):
    """A row cannot be measured here; the text says why."""


@dataclass(frozen=True)
class Measured:
    """One process: how long it took, the most memory that it or one of its children had, and what it printed."""

    seconds: float
    peak_mb: float
    output: str
    cpu_seconds: float = 0.0  # of itself and its children


def module(name: str, *words: str | Path, python: str | Path = sys.executable) -> list[str | Path]:
    """Return the call that runs a module of the benchmarks in a process of its own."""
    return [python, "-m", f"scripts.bench.{name}", *words]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment in which every side finds the checkout's packages, whatever folder it runs in.

    Libraries of products choose their kernels themselves in it, by the processor.
    """
    paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    own = {name: value for name, value in os.environ.items() if not STEERS.match(name)}
    return {**own, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **(more or {})}


def measure(
    argv: Sequence[str | Path],
    *,
    timeout: float = 600,
    env: Mapping[str, str] | None = None,
    codes: Sequence[int] = (0,),
) -> Measured:
    """Run a program in a process of its own; NotMeasuredError if it takes too long, or ends with none of `codes`."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen([str(word) for word in argv], stdout=output, stderr=errors, env=environment(env))
        limit = threading.Timer(timeout, process.kill)
        limit.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:  # Ctrl-C
            process.kill()
            process.wait()
            raise
        finally:
            limit.cancel()
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = [_text(file) for file in (output, errors)]
    if seconds >= timeout:
        raise NotMeasuredError(f"{_name(argv)} was stopped: it took too long")
    if process.returncode not in codes:
        raise NotMeasuredError(f"{_name(argv)} ended with {process.returncode}: {texts[1][-300:].strip()}")
    return Measured(seconds, usage.ru_maxrss / 1024, texts[0], usage.ru_utime + usage.ru_stime)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _name(argv: Sequence[str | Path]) -> str:
    return " ".join(Path(word).name for word in argv[:3])


def in_turn(sides: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Measure each side once, then each again, and so on; return the medians."""
    values: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            values[name].append(side())
    return {name: statistics.median(found) for name, found in values.items()}


def middle(runs: Sequence[Measured]) -> Measured:
    """Return the median seconds of runs, the most memory of any, and what the last one printed."""
    seconds, cpu = (statistics.median(getattr(run, name) for run in runs) for name in ("seconds", "cpu_seconds"))
    return Measured(seconds, max(run.peak_mb for run in runs), runs[-1].output, cpu)


def measure_in_turn(
    *sides: Sequence[str | Path],
    repeats: int,
    timeout: float = 600,
    env: Mapping[str, str] | None = None,
    codes: Sequence[int] = (0,),
) -> list[Measured]:
    """Measure some programs in turn, so many times; return the middle of each."""
    runs = [[measure(argv, timeout=timeout, env=env, codes=codes) for argv in sides] for _ in range(repeats)]
    return [middle(found) for found in zip(*runs, strict=True)]
