"""What candidates are compared by: the metric of every customer of a window by every candidate, region after region."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regiondag.errors import RegiondagError

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The metric of every customer by every candidate, on one window.

    A row is a candidate, a column a customer; the customers of a region stand together, regions in the order of
    `regions`. NaN (or an infinite value) says that a candidate has no metric for a customer: a region's own trial has
    values for that region alone.
    """

    values: Array  # (candidates, customers)
    candidates: tuple[str, ...]
    regions: tuple[str, ...]
    counts: tuple[int, ...]  # (regions,): customers of each
    minimize: bool = False

    def __post_init__(self) -> None:
        wanted = (len(self.candidates), sum(self.counts))
        if self.values.shape != wanted:
            raise RegiondagError(f"scores are {self.values.shape}, but there are {wanted} candidates and customers")
        if len(self.counts) != len(self.regions):
            raise RegiondagError(f"{len(self.regions)} regions, but customers of {len(self.counts)}")
        for what, names in (("candidates", self.candidates), ("regions", self.regions)):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise RegiondagError(f"{what} of scores stand there twice: {', '.join(twice)}")

    def gains(self) -> Array:
        """Return the values so that more is better."""
        return -self.values if self.minimize else self.values

    def columns(self, region: str) -> slice:
        """Return where a region's customers stand; nowhere for one that has none."""
        if region not in self.regions:
            return slice(0, 0)
        number = self.regions.index(region)
        start = sum(self.counts[:number])
        return slice(start, start + self.counts[number])

    def row(self, candidate: str) -> int:
        """Return the number of a candidate; RegiondagError for one that is none."""
        if candidate not in self.candidates:
            known = ", ".join(self.candidates) or "none"
            raise RegiondagError(f"no scores of {candidate!r}: candidates are {known}")
        return self.candidates.index(candidate)

    def of(self, candidate: str, region: str | None = None) -> Array:
        """Return a candidate's metric of all customers, or of a region's."""
        where = slice(None) if region is None else self.columns(region)
        return self.values[self.row(candidate), where]

    def rivals(self, candidate: str, columns: slice = slice(None)) -> NDArray[np.intp]:
        """Return the candidates that have a metric of every customer that `candidate` has one of; itself, too.

        Only these can be compared fairly: a mean over other customers says nothing about the same ones.
        """
        known = np.isfinite(self.values[:, columns])
        return np.flatnonzero((known | ~known[self.row(candidate)]).all(axis=1))


def best_of(scores: Scores, candidates: Iterable[str]) -> str:
    """Return the best of some candidates by the mean over all regions' customers, the first of equals.

    Means are of the customers that all of them have a metric of. RegiondagError when there is none to choose from.
    """
    names = list(candidates)
    if not names:
        raise RegiondagError("there is no candidate to choose from: give one at least")
    values = scores.gains()[[scores.row(name) for name in names]]
    shared = np.isfinite(values).all(axis=0)
    return names[int(values[:, shared].mean(axis=1).argmax())] if shared.any() else names[0]
