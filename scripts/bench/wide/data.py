"""The work that both sides of the benchmark get: wide sparse rows and a class for each. Imports NumPy alone."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Wide:
    """A network width-hidden-classes that learns from rows of so many entries; `warm` batches go before the figures."""

    width: int
    optimizer: str = "adam"
    rate: float = 1e-3
    hidden: int = 64
    classes: int = 10
    entries: int = 64
    batch: int = 256
    batches: int = 96
    warm: int = 16
    steps: int = 8  # for each command
    threads: int = 1

    @property
    def states(self) -> int:
        """How many numbers the rule keeps beside each weight."""
        return {"sgd": 0, "rmsprop": 1, "adam": 2}[self.optimizer]

    @property
    def kept_mb(self) -> float:
        """What weights and state of the wide layer take."""
        return 4 * self.width * self.hidden * (1 + self.states) / (1 << 20)

    def arguments(self) -> str:
        """Return itself as one word of a command line."""
        return json.dumps(dataclasses.asdict(self))


def rows(work: Wide) -> tuple[Any, Any]:
    """Return the units (rows, entries), ascending and all different, and the class of each row.

    Of `entries` equal parts of the width each has one, drawn evenly: the worst case for a cache, as no unit is popular.
    """
    random, count = np.random.default_rng(1), work.batch * work.batches
    part = work.width // work.entries
    units = random.integers(0, part, (count, work.entries)) + part * np.arange(work.entries)
    return units.astype(np.int32), random.integers(0, work.classes, count)


def weights(work: Wide) -> list[Any]:
    """Return the first weights (in, out) of both layers, uniform as Glorot and Bengio (2010) have it."""
    random, found = np.random.default_rng(2), []
    for below, above in ((work.width, work.hidden), (work.hidden, work.classes)):
        drawn = random.random((below, above), np.float32)
        drawn *= 2
        drawn -= 1
        drawn *= np.float32(np.sqrt(6 / (below + above)))
        found.append(drawn)
    return found
