"""Uniform points."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scripts.bench.tuner.problem import Value
from scripts.bench.tuner.tuners.face import Task


class Random:
    """Learns nothing."""

    def __init__(self, task: Task) -> None:
        self._space = task.space
        self._chance = np.random.default_rng([task.seed, 1])

    def ask(self, n: int) -> list[dict[str, Value]]:
        return [{parameter.name: parameter.at(self._chance.random()) for parameter in self._space} for _ in range(n)]

    def tell(self, values: Mapping[int, float | None]) -> None:
        """Random search has no use for it."""


make = Random
