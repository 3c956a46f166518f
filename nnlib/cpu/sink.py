"""What takes the gradients of a batch, piece by piece."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nnlib.util.arrays import Floats


class Sink(Protocol):
    """What takes the gradients of a batch. With several threads, different rows come at the same time."""

    def rows(self, edge: int, low: int, gradient: Floats) -> None:
        """Take the gradient of the rows from `low` of the store that an edge has, or shares with its owner."""

    def touched(self, owner: int, low: int, rows: NDArray[np.int64], gradient: Floats) -> None:
        """Take the gradient of some rows, ascending, of the table that starts at `low`; its others have none.

        A table has a row for each unit of the source; only a BLOCKED store has several.
        """

    def bias(self, edge: int, low: int, gradient: Floats) -> None:
        """Take the gradient of the biases from `low`."""

    def norm(self, layer: int, scale: Floats, bias: Floats) -> None:
        """Take the gradients of a batch normalization."""
