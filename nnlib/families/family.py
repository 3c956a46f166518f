"""What every family has: its hyperparameters, how it is fitted, and what a fitted one can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nnlib.data.events import Events
from nnlib.util.arrays import Floats, Longs

Value = bool | int | float | str
Arrays = dict[str, NDArray[np.generic]]  # what a model file keeps of a fitted one


@dataclass(frozen=True, slots=True)
class Size:
    """How large data are: what a family's memory is told by."""

    customers: int
    items: int
    entries: int
    inputs: int = 0  # dense ones of each customer


class Fitted(Protocol):
    """A model, fitted."""

    def scores(self, asked: Events, rows: Longs) -> Floats:
        """Return float32 (len(rows), items), new memory: how much customers `rows` of `asked` want each item.

        `asked` has the items that the model was fitted on, in the same order; its regions are found by name, and one
        that the model does not know is served by what holds for all. What a customer has is scored like anything else.
        NnlibError where the model takes dense inputs that `asked` has not.
        """

    def arrays(self) -> Arrays:
        """Return what `restore` makes the same model of."""


class Family(Protocol):
    """A module of this package."""

    DEFAULTS: Mapping[str, Value]  # every hyperparameter; what is legal stands in `legal`

    def fit(self, history: Events, hyperparameters: Mapping[str, Value], seed: int) -> Fitted:
        """Return a model of `history`; the same arguments give the same bits. All hyperparameters are given."""

    def restore(self, arrays: Arrays, hyperparameters: Mapping[str, Value], regions: tuple[str, ...]) -> Fitted:
        """Return the model that `arrays` was taken from, which may come from a damaged file.

        KeyError or ValueError when they are those of no such model. Numbers of type float are finite; that the model
        has as many items as it should is left to who reads the file.
        """

    def bytes_needed(self, size: Size, hyperparameters: Mapping[str, Value]) -> int:
        """Return how much memory `fit` takes at most beside its data."""
