"""How the peers are made and trained, and their answers, which are kept: a run goes on where it was interrupted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scripts.bench.common.environments import torch_python
from scripts.bench.common.processes import ONE_THREAD, measure, module

HOURS = 2 * 3600.0  # seconds that a training may take


@dataclass(frozen=True)
class Settings:
    """How a network is made and trained."""

    kind: str
    dropout: float
    learning_rate: float
    seed: int = 0
    epochs: int = 30  # at most
    patience: int = 2  # epochs
    ahead: str = "day"  # the target: an item of the customer's next day, or, `item`, the one after it
    half_life: float = 1e9  # days, of what is learned from
    width: int = 64
    length: int = 64  # items that it looks back
    batch: int = 64  # windows
    negatives: int = 512  # items beside the right one in the softmax, drawn anew for each batch
    refit: int = 0  # epochs on what `test` is learned from; 0: learn from `valid`, and stop by it

    def name(self) -> str:
        """Return what differs from the defaults, for a file's name."""
        first = Settings(self.kind, self.dropout, self.learning_rate)
        changed = {key: value for key, value in asdict(self).items() if value != getattr(first, key)}
        return "-".join(
            [self.kind, f"{self.dropout:g}", f"{self.learning_rate:g}", *(f"{k}_{v}" for k, v in changed.items())]
        )


@dataclass(frozen=True, eq=False)
class Answer:
    """What a training found: lists of those asked in `valid`, or `test`, and what it took."""

    lists: Mapping[str, tuple[NDArray[np.int32], NDArray[np.float32]]]  # part -> items and scores (customers, KEPT)
    curve: list[float]  # NDCG@10 on `valid` after each epoch
    seconds: float  # of the processor, for all epochs
    asking: float  # of the processor, for the lists of `test`
    parameters: int


def answer_of(folder: Path, problem: Path, settings: Settings) -> Answer:
    """Return what a network says, trained now or in an earlier run that left its answer in `folder`."""
    path = folder / f"{problem.stem}-{settings.name()}.npz"
    if not path.exists():
        argv = module("sequences.peer", problem, path, json.dumps(asdict(settings)), python=torch_python())
        measure(argv, timeout=HOURS, env=ONE_THREAD)
    with np.load(path) as file:
        lists = {
            part: (file[f"{part}_items"], file[f"{part}_scores"])
            for part in ("valid", "test")
            if f"{part}_items" in file
        }
        return Answer(
            lists, file["curve"].tolist(), float(file["seconds"].sum()), float(file["asking"]), int(file["parameters"])
        )
