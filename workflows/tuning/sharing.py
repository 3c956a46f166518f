"""What a region may know of others: their trials, told to `propose` as plain data, and when it may use them.

Every region starts on its own block of one Sobol sequence, so that together they have spread over the space before any
of them has tried much. What others found takes part from the second batch on; half of that batch still comes from the
region's own block, because nothing is known of the similarity before the region has seen something itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from regiondag.study.space import Point

SHARING = ("off", "warm", "model")  # what `share` may be, each with all before it
MOST_BLOCKS = 4096  # regions whose blocks lie side by side
START_LEAST, START_MOST = 2, 8
EACH = 24  # trials of one neighbour that a model is told at the most: its best ones and its first ones, half and half


@dataclass(frozen=True, slots=True)
class Observation:
    """One settled trial. `loss` is better when small and None when the trial failed."""

    point: Point
    loss: float | None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another region, or an earlier run: its settled trials. Losses need not be comparable with one's own."""

    name: str
    history: Sequence[Observation]
    earlier: bool = False  # a run of the same region before this one

    @property
    def best(self) -> Point:
        """Its best point; there must be one that succeeded."""
        return min((o for o in self.history if o.loss is not None), key=lambda o: o.loss or 0.0).point


@dataclass(frozen=True, slots=True)
class Shared:
    """Which block of the common sequence is the region's, and who else there is."""

    block: int
    neighbours: tuple[Neighbour, ...] = ()


def rank_key(history: Sequence[Observation], index: int) -> tuple[bool, float, int]:
    """Return by what trials are sorted from the best to the worst, failures last, the earlier one of equals first."""
    loss = history[index].loss
    return loss is None, loss or 0.0, index


def select_best_and_first(history: Sequence[Observation], most: int) -> list[Observation]:
    """Return `most` trials at the most: the best ones, and the first ones, which are spread over the space."""
    return [history[index] for index in find_best_and_first([o.loss for o in history], most, lambda _: True)]


def find_best_and_first(losses: Sequence[float | None], most: int, fits: Callable[[int], bool]) -> list[int]:
    """Return the same as numbers in order, of those trials that fit, looking at no more of them than need be."""
    values = [loss or 0.0 for loss in losses]
    ended = sorted((index for index, loss in enumerate(losses) if loss is not None), key=values.__getitem__)
    failed = (index for index, loss in enumerate(losses) if loss is None)
    best = set(islice(filter(fits, chain(ended, failed)), most // 2))
    first = islice((index for index in range(len(losses)) if index not in best and fits(index)), most - len(best))
    return sorted({*best, *first})


def count_first_trials(parallel: int) -> int:
    """Return the number of trials with which a region that learns from others starts."""
    return min(max(parallel, START_LEAST), START_MOST)


def is_from_block(number: int, parallel: int, shared: Shared) -> bool:
    """Return whether trial `number` (from 0) of a region comes from its block of the Sobol sequence."""
    first = count_first_trials(parallel)
    if any(neighbour.earlier and neighbour.history for neighbour in shared.neighbours):
        return number < first and number % 2 == 1
    return number < first or (number < 2 * first and number % 2 == 1)


def index_in_sequence(number: int, parallel: int, block: int) -> int:
    """Return which point of the common sequence belongs to trial `number` of a region.

    The first trials of all regions together are the sequence's beginning, and each region's are neighbours in it.

    >>> [index_in_sequence(number, 4, block) for block in (0, 1) for number in range(4)]
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    size = 1 << (count_first_trials(parallel) - 1).bit_length()
    turn, place = divmod(number, size)
    return (turn * MOST_BLOCKS + block) * size + place
