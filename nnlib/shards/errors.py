"""The errors of batches, summed over an epoch: what every rank knows of each, and what the shards have of it.

No batch needs its error at once. So the shards' parts travel together, when the sum is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nnlib.shards.collectives import Collectives
from nnlib.shards.tree import tree_sum

MOST = 1024  # batches whose errors travel together


class Errors:
    """A sum of errors that has the same bits on any number of ranks, and whenever it is asked for."""

    def __init__(self, together: Collectives) -> None:
        self._together, self._total = together, 0.0
        self._late: list[list[float]] = []  # of each batch since then: what all ranks know, and the own shards' parts

    def begin(self, total: float) -> None:
        """Start with a sum."""
        self._total = total
        self._late.clear()

    def add(self, whole: float, shards: Mapping[int, float]) -> None:
        """Add the error of a batch: what all ranks know of it, and the parts of the own shards, if a layer is cut."""
        self._late.append([whole, *(shards.get(shard, 0.0) for shard in self._together.own)])
        if len(self._late) == MOST:
            self.total()

    def total(self) -> float:
        """Return the sum over all ranks, which all of them have to ask for."""
        if self._late:
            own = np.array(self._late)
            found = self._together.numbers(own[:, 1:].reshape(-1).tolist())
            parts = found.reshape(self._together.ranks, len(own), -1).swapaxes(0, 1).reshape(len(own), -1)
            for whole, error in zip(own[:, 0].tolist(), tree_sum(list(parts.T.copy())).tolist(), strict=True):
                self._total += whole + error
            self._late.clear()
        return self._total
