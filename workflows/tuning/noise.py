"""When a search is over because what another trial would gain is lost in noise. Pure.

A trial's metric is a mean over customers and has a standard error. Where the improvement that the model expects of the
best next point is small beside it, twice running, more trials would only find what chance likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

KINDS = ("noise", "none")
SMALL = 0.05  # standard errors
TWICE = 2
LEAST = 8  # trials before anything is said


@dataclass(frozen=True, slots=True)
class Gain:
    """By how much the best of the next points is expected to beat the best so far, in the metric's unit."""

    mean: float
    low: float
    high: float  # 95 % of what it may gain, by the model; never below the mean


def is_lost_in_noise(gains: Sequence[float], ended: int, first: int = 0) -> bool:
    """Return whether a search of `ended` trials is over; `gains` were expected, in standard errors, latest last.

    It is not before the `first` trials, which were not the search's to choose, have ended.

    >>> is_lost_in_noise([0.3, 0.04, 0.01], 16), is_lost_in_noise([0.04, 0.3, 0.01], 16)
    (True, False)
    """
    return ended >= max(LEAST, first) and len(gains) >= TWICE and all(gain < SMALL for gain in gains[-TWICE:])
