"""From values of trials to curves, regrets and the number of trials that were needed. Pure.

A trial's value is what the tuner saw: the metric of one training. A point's worth is the mean metric of several others.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BATCH = 4
START = 8  # trials of a country alone that are spread over the space, whatever came out
Values = Mapping[str, Sequence[float | None]]  # country -> the metric of each trial in order; None: it diverged
Curves = Mapping[str, Sequence[float]]  # country -> what its best point is worth after each batch


@dataclass(frozen=True)
class Scale:
    """A country's scale of regrets: 0 is the best worth known, 1 the median of points spread over the space."""

    best: float
    usual: float

    def regret(self, worth: float) -> float:
        """Return how far a point lies behind the best one known."""
        return (self.best - worth) / (self.best - self.usual)


def scales(alone: Sequence[Values], curves: Sequence[Curves]) -> dict[str, Scale]:
    """Return every country's scale: the best worth of all runs, and the median of how runs without sharing start.

    A country in which the best is no better than that says nothing, and is left out.
    """
    found = {}
    for slug in alone[0]:
        best = max(worth for run in curves for worth in run[slug])
        usual = statistics.median(value or 0.0 for run in alone for value in run[slug][:START])
        if best > usual:
            found[slug] = Scale(best, usual)
    return found


def mean_regrets(runs: Sequence[Curves], by: Mapping[str, Scale]) -> list[float]:
    """Return the mean regret over countries and runs after each batch."""
    curves = [[scale.regret(worth) for worth in run[slug]] for run in runs for slug, scale in by.items()]
    return [statistics.fmean(column) for column in zip(*curves, strict=True)]


def mean_worths(runs: Sequence[Curves]) -> list[float]:
    """Return the mean worth over countries and runs after each batch."""
    return [statistics.fmean(column) for column in zip(*(curve for run in runs for curve in run.values()), strict=True)]


def needed(curve: Sequence[float], goal: float) -> int | None:
    """Return the trials, in whole batches, after which a falling curve is at the goal; None if it never is."""
    return next((BATCH * (number + 1) for number, value in enumerate(curve) if value <= goal), None)
