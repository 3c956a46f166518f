"""A trial trained once more: what its job gets besides the files of its run, and in what two of its models differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from nnlib.contract import Trial
from nnlib.util.packed import differing_files
from regiondag.trainers.fetch import downloads_of, fetch_all


def fetch_inputs(trial: Trial, place: Path) -> None:
    """Fetch what HTCondor would into `place`, which has the trial's other inputs; RegiondagError where that fails."""
    if trial.program:
        fetch_all(downloads_of(place / trial.program), place)


def list_differences(trial: Trial, one: Path, other: Path, nnlib: Callable[[Sequence[str]], list[str]]) -> list[str]:
    """Return in what two models differ: a program's by their files, others as `nnlib` says it, told its arguments."""
    if trial.program:
        return [f"{name} is another one" for name in differing_files(one, other)]
    return nnlib(["diff", str(one), str(other)])
