"""A program of the user's that trains in nnlib's place. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# What stands in braces in a command, besides hyperparameters: keys of the program's trial.json.
TOLD = ("region", "trial", "role", "seed", "epochs", "metric", "checkpoint", "artifact")
# Names in the program's folder that are its job's.
RESERVED = ("trial.json", "result.json", "reports.jsonl", "checkpoint", "artifact", ".helper")


@dataclass(frozen=True, slots=True)
class Program:
    """What one region's trials run."""

    command: tuple[str, ...]  # with placeholders
    files: tuple[tuple[str, Path], ...] = ()  # name in its folder -> where it lies here
    retry: tuple[int | str, ...] = ()  # exit codes, and texts among its last lines, that are the machine's fault
