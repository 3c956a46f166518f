"""From values of trials to curves, regrets and the number of trials that were needed. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BATCH = 4
START = 8  # trials of a country alone that are spread over the space, whatever came out
Values = Mapping[str, Sequence[float | None]]  # country -> the metric of each trial in order; None: it diverged


@dataclass(frozen=True)
class Scale:
    """A country's scale of regrets: 0 is the best value known, 1 the median of points spread over the space."""

    best: float
    usual: float

    def regret(self, value: float) -> float:
        """Return how far a value lies behind the best one known."""
        return (self.best - value) / (self.best - self.usual)


def curve(values: Sequence[float | None]) -> list[float]:
    """Return the best value after each batch; a country in which all diverged has 0, the worst of any ranking."""
    best = list(itertools.accumulate((0.0 if value is None else value for value in values), max))
    return best[BATCH - 1 :: BATCH]


def scales(alone: Sequence[Values], everything: Sequence[Values]) -> dict[str, Scale]:
    """Return every country's scale: the best value of all runs, and the median of how runs without sharing start.

    A country in which the best is no better than that says nothing, and is left out.
    """
    found = {}
    for slug in alone[0]:
        best = max(value for run in everything for value in run[slug] if value is not None)
        usual = statistics.median(value or 0.0 for run in alone for value in run[slug][:START])
        if best > usual:
            found[slug] = Scale(best, usual)
    return found


def mean_regrets(runs: Sequence[Values], by: Mapping[str, Scale]) -> list[float]:
    """Return the mean regret over countries and runs after each batch."""
    curves = [[scale.regret(value) for value in curve(run[slug])] for run in runs for slug, scale in by.items()]
    return [statistics.fmean(column) for column in zip(*curves, strict=True)]


def mean_values(runs: Sequence[Values]) -> list[float]:
    """Return the mean of the best values over countries and runs after each batch."""
    curves = [curve(values) for run in runs for values in run.values()]
    return [statistics.fmean(column) for column in zip(*curves, strict=True)]


def needed(curve: Sequence[float], goal: float) -> int | None:
    """Return the trials, in whole batches, after which a falling curve is at the goal; None if it never is."""
    return next((BATCH * (number + 1) for number, value in enumerate(curve) if value <= goal), None)
