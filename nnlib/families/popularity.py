"""Recent popularity: how many customers took an item lately, in their own region and everywhere.

With c_ri the sum of 2 ** (-age / half_life) over customers' first purchases of item i in region r, and n_r its
customers: score_ri = own c_ri / n_r + (1 - own) c_i / n. Ji et al. (2020), "A re-visit of the popularity baseline",
have why the moment matters. Where what was bought before is a target (`repeats`) it is the last purchases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nnlib.data.events import Events
from nnlib.families.common.regions import ALL, RegionCounts, count_by_region, restore_counts, split_by_region
from nnlib.families.family import Arrays, Size, Value
from nnlib.families.packing import WIDTH, take_width
from nnlib.util.arrays import Floats, Longs

DEFAULTS: Mapping[str, Value] = {"half_life": 10.0, "own": 0.5}


@dataclass(frozen=True, slots=True, eq=False)
class Popularity:
    """Counts of each region, and how much of its own a region has."""

    counts: RegionCounts
    own: float
    regions: tuple[str, ...]

    def scores(self, asked: Events, rows: Longs) -> Floats:
        """Return float32 (len(rows), items): the same row for all customers of a region."""
        out = np.empty((len(rows), self.counts.counts.shape[1]), np.float32)
        for region, places in split_by_region(asked, rows, self.regions):
            line = self.counts.share(ALL) * np.float32(1 - self.own)
            out[places] = line + self.counts.share(region) * np.float32(self.own)
        return out

    def arrays(self) -> Arrays:
        """Return what `restore` makes the same model of."""
        return {**self.counts.arrays(), WIDTH: np.array([self.counts.counts.shape[1]], np.int64)}


def fit(history: Events, hyperparameters: Mapping[str, Value], seed: int) -> Popularity:  # noqa: ARG001
    """Return how popular the items of `history` are; nothing is drawn."""
    counts = count_by_region(history, float(hyperparameters["half_life"]))
    return Popularity(counts, float(hyperparameters["own"]), history.regions)


def restore(arrays: Arrays, hyperparameters: Mapping[str, Value], regions: tuple[str, ...]) -> Popularity:
    """Return the model that `arrays` was taken from; KeyError or ValueError when they are wrong."""
    return Popularity(restore_counts(arrays, len(regions), take_width(arrays)), float(hyperparameters["own"]), regions)


def bytes_needed(size: Size, hyperparameters: Mapping[str, Value]) -> int:  # noqa: ARG001
    """Return how much memory `fit` takes at most."""
    return 40 * size.entries + 16 * size.items + 40 * size.customers
