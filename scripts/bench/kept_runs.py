"""Runs that take hours together: each in a process of its own with one thread, kept so that nothing runs twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import harness
from harness import Measured, measure

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

Key = TypeVar("Key")


def fill(missing: Sequence[Key], make: Callable[[Key], str], workers: int) -> Iterator[str]:
    """Make the runs that are missing, `workers` at a time, and yield what `make` says of each."""
    with ThreadPoolExecutor(workers) as pool:
        for number, text in enumerate(pool.map(make, missing), start=1):
            yield f"{number} of {len(missing)}: {text}"


def measured(argv: Sequence[str | Path], timeout: float = 600) -> Measured:
    """Run a program of this folder with one thread; NotMeasuredError if it fails or takes too long."""
    return measure(argv, timeout=timeout, env=ONE_THREAD | {"PYTHONPATH": str(harness.REPOSITORY)})


def find(file: Path, stamp: str) -> dict[str, Any] | None:
    """Return a kept run; None if there is none, or one of another stamp."""
    try:
        raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return raw if raw["stamp"] == stamp else None


def keep(file: Path, stamp: str, raw: Mapping[str, Any]) -> None:
    """Keep a run, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps({"stamp": stamp, **raw}), encoding="utf-8")
    part.replace(file)
