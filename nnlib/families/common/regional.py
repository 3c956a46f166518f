"""What models of the items' likeness have in common: a region's own weight, and its popularity added to the scores.

The rows of a region's customers can count `own_weight` times for it, which makes matrices of its own: they are made
when its customers are asked about, and only the last few are kept. `bias` times the own popularity p is added to the
scores: raw p / customers, or log(1 + p).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from scipy import sparse

from nnlib.data.events import Events
from nnlib.families.common.regions import ALL, RegionCounts, count_by_region, restore_counts, split_by_region
from nnlib.families.family import Arrays, Value
from nnlib.families.packing import WIDTH, pack, take, take_width, unpack
from nnlib.util.arrays import Floats, Longs

KEPT = 2  # regions whose matrices are kept
RAW, LOG = "raw", "log"
DEFAULTS: Mapping[str, Value] = {
    "fit_half_life": 40.0,
    "ask_half_life": 80.0,
    "own_weight": 1.0,
    "bias": 0.0,
    "bias_scale": RAW,
}


class Likeness(Protocol):
    """Which items go with which."""

    def scores(self, taken: sparse.csr_array) -> Floats:
        """Return float32 (b, items), new memory, of histories (b, items)."""

    def arrays(self) -> Arrays:
        """Return what the model file keeps."""


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """The aged counts that a model was fitted on, where regions have a weight of their own."""

    counts: sparse.csr_array  # (customers, items)
    region: Longs  # (customers,)

    def of(self, region: int) -> sparse.csr_array:
        """Return the rows of a region's customers that have any item."""
        return self.counts[np.flatnonzero((self.region == region) & (np.diff(self.counts.indptr) > 0))]


@dataclass(slots=True, eq=False)
class Latest:
    """What was made for the last few regions; several threads that need the same have it made once."""

    made: OrderedDict[int, Likeness] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, region: int, make: Callable[[int], Likeness]) -> Likeness:
        """Return what `make` gives for a region."""
        with self.lock:
            if region not in self.made:
                while len(self.made) >= KEPT:
                    self.made.popitem(last=False)
                self.made[region] = make(region)
            self.made.move_to_end(region)
            return self.made[region]


@dataclass(frozen=True, slots=True, eq=False)
class Regional:
    """A fitted model of likeness: that of all, and what regions have of their own."""

    likeness: Likeness
    width: int
    hyperparameters: Mapping[str, Value]
    regions: tuple[str, ...]
    refit: Callable[[Learned, int], Likeness]  # that of the region of this number
    learned: Learned | None  # None: all rows count alike everywhere
    popular: RegionCounts | None  # None: no bias
    latest: Latest = field(default_factory=Latest)

    def scores(self, asked: Events, rows: Longs) -> Floats:
        """Return float32 (len(rows), items)."""
        out = np.empty((len(rows), self.width), np.float32)
        for region, places in split_by_region(asked, rows, self.regions):
            taken = asked.take(rows[places]).aged_from_last(float(self.hyperparameters["ask_half_life"]))
            found = self._likeness_of(region).scores(taken)
            if self.popular is not None:
                found += self._bias(self.popular, region)
            if len(places) == len(rows):
                return found
            out[places] = found
        return out

    def arrays(self) -> Arrays:
        """Return what `restore_regional` makes the same model of."""
        found = {**self.likeness.arrays(), WIDTH: np.array([self.width], np.int64)}
        if self.learned is not None:
            found |= pack("learned", self.learned.counts) | {"learned_region": self.learned.region}
        return found | (self.popular.arrays() if self.popular is not None else {})

    def _likeness_of(self, region: int) -> Likeness:
        learned = self.learned
        if learned is None or region == ALL:
            return self.likeness
        return self.latest.get(
            region, lambda number: self.refit(learned, number) if learned.of(number).shape[0] else self.likeness
        )

    def _bias(self, popular: RegionCounts, region: int) -> Floats:
        raw = self.hyperparameters["bias_scale"] == RAW
        return np.float32(self.hyperparameters["bias"]) * (
            popular.share(region) if raw else np.log1p(popular.count(region))
        )


def fit_regional(
    history: Events,
    hyperparameters: Mapping[str, Value],
    likeness: Callable[[sparse.csr_array], Likeness],
    refit: Callable[[Likeness, Learned, int], Likeness],
) -> Regional:
    """Return the model of the aged counts of `history`; `refit` gets the likeness of all and makes a region's."""
    half_life = float(hyperparameters["fit_half_life"])
    counts = history.aged(half_life)
    common = likeness(counts)
    learned = Learned(counts, history.region.astype(np.int64)) if hyperparameters["own_weight"] != 1 else None
    popular = count_by_region(history, half_life) if hyperparameters["bias"] else None
    return Regional(
        common,
        counts.shape[1],
        hyperparameters,
        history.regions,
        lambda rows, region: refit(common, rows, region),
        learned,
        popular,
    )


def restore_regional(
    arrays: Arrays,
    hyperparameters: Mapping[str, Value],
    regions: tuple[str, ...],
    likeness: Callable[[Arrays, int], Likeness],
    refit: Callable[[Likeness, Learned, int], Likeness],
) -> Regional:
    """Return the model that `arrays` was taken from; KeyError or ValueError when they are wrong."""
    width = take_width(arrays)
    common = likeness(arrays, width)
    learned = None
    if hyperparameters["own_weight"] != 1:
        counts = unpack(arrays, "learned", width)
        region = take(arrays, "learned_region", np.int64, counts.shape[0])
        if len(region) and not (region.min() >= 0 and region.max() < len(regions)):
            raise ValueError(f"learned_region: legal: 0 to {len(regions) - 1}")
        learned = Learned(counts, region)
    popular = restore_counts(arrays, len(regions), width) if hyperparameters["bias"] else None
    return Regional(
        common, width, hyperparameters, regions, lambda rows, number: refit(common, rows, number), learned, popular
    )
