"""Buying again: what a customer had often, and lately, he takes once more.

The score of an item that he has is the sum of 2 ** (-age / half_life) over the days on which he bought it, that of any
other is 0. It is the personal popularity of next-basket recommendation: Hu et al. (2020), "Modeling personalized item
frequency information for next-basket recommendation", and Li et al. (2023), "A next basket recommendation reality
check", have how hard it is to beat. Data keep an item's first and last day and how many there were (`nnlib import
--repeats`); the days between the two are taken as evenly spread. It ranks nothing but what customers have: of use only
where that is ranked, and in a blend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from nnlib.data.events import Events
from nnlib.families.family import Arrays, Size, Value
from nnlib.families.packing import WIDTH, take_width
from nnlib.util.arrays import Floats, Longs

LEAST_APART = 1e-12  # half-lives; what is nearer is summed up as if it were of one day
DEFAULTS: Mapping[str, Value] = {"half_life": 170.0}


@dataclass(frozen=True, slots=True)
class Again:
    """Nothing is learned but how many items there are."""

    width: int
    half_life: float

    def scores(self, asked: Events, rows: Longs) -> Floats:
        """Return float32 (len(rows), items)."""
        some = asked.take(rows)
        values = sum_of_days(some, self.half_life)
        found = sparse.csr_array((values, some.bought.indices, some.bought.indptr), (len(rows), self.width))
        return np.asarray(found.toarray())

    def arrays(self) -> Arrays:
        """Return the number of items."""
        return {WIDTH: np.array([self.width], np.int64)}


def sum_of_days(asked: Events, half_life: float) -> Floats:
    """Return for each entry, float32, the sum of 2 ** (-age / half_life) over the days on which it was bought."""
    last = np.exp2(-asked.ages().astype(np.float64) / half_life)
    if asked.days is None or asked.last is None or asked.counts is None:
        return last.astype(np.float32)
    # A geometric series: from each day to the one before it the same number of days, and so the same factor.
    apart = (asked.last - asked.days) / (half_life * np.maximum(asked.counts - 1, 1))  # in half-lives
    apart = np.maximum(apart, LEAST_APART) * np.log(2)
    return np.asarray(last * np.expm1(-asked.counts * apart) / np.expm1(-apart), np.float32)


def fit(history: Events, hyperparameters: Mapping[str, Value], seed: int) -> Again:  # noqa: ARG001
    """Return the model of `history`, of which it takes nothing but the number of items; nothing is drawn."""
    return Again(history.bought.width, float(hyperparameters["half_life"]))


def restore(arrays: Arrays, hyperparameters: Mapping[str, Value], regions: tuple[str, ...]) -> Again:  # noqa: ARG001
    """Return the model that `arrays` was taken from; KeyError or ValueError when they are wrong."""
    return Again(take_width(arrays), float(hyperparameters["half_life"]))


def bytes_needed(size: Size, hyperparameters: Mapping[str, Value]) -> int:  # noqa: ARG001
    """Return how much memory `fit` takes at most: none to speak of."""
    return 16 * size.items
