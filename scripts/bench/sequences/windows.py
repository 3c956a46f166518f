"""Sequences cut into what one step of a training reads; NumPy alone, since the peers' environment has no more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]
NOTHING = -1  # no target


@dataclass(frozen=True, eq=False)
class Histories:
    """What each customer took, the earliest first."""

    indptr: Longs  # (customers + 1,)
    items: Longs  # (entries,)
    days: Longs  # (entries,), ascending for each customer
    width: int  # items there are
    as_of: int  # the first day that is to be predicted

    @property
    def customers(self) -> int:
        """How many customers."""
        return len(self.indptr) - 1

    def owner(self) -> Longs:
        """Return the customer of each entry."""
        return np.repeat(np.arange(self.customers), np.diff(self.indptr))

    def take(self, customers: Longs) -> Histories:
        """Return some customers, in that order."""
        lengths = np.diff(self.indptr)[customers]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[customers] - indptr[:-1], lengths)
        return replace(self, indptr=indptr, items=self.items[entries], days=self.days[entries])


@dataclass(frozen=True, eq=False)
class Part:
    """What is learned from, who is asked with which history, and what he wants."""

    fit: Histories
    asked: Histories
    wanted: Histories


@dataclass(frozen=True, eq=False)
class Batch:
    """Windows side by side (b, n), padded on the right with item 0."""

    taken: Longs
    places: Longs  # from the end: the last item of each window stands at `length` - 1
    targets: Longs  # or NOTHING
    weights: NDArray[np.float32]


def order_within_days(histories: Histories, random: np.random.Generator) -> Longs:
    """Return the order of entries in which those of a customer's day are mixed: nobody knows what came first there."""
    return np.lexsort((random.random(len(histories.items)), histories.days, histories.owner()))


def next_days(histories: Histories) -> tuple[Longs, Longs]:
    """Return where each entry's next day begins and ends; both are the customer's end where there is none."""
    owner, entries = histories.owner(), len(histories.items)
    new = np.flatnonzero((np.diff(owner, prepend=-1) > 0) | (np.diff(histories.days, prepend=-1) != 0))
    group = np.searchsorted(new, np.arange(entries), side="right")  # of the next one
    edges = np.append(new, [entries, entries])
    end = histories.indptr[owner + 1]
    return np.minimum(edges[group], end), np.minimum(edges[np.minimum(group + 1, len(new))], end)


def draw_targets(histories: Histories, items: Longs, ahead: str, random: np.random.Generator) -> Longs:
    """Return an item for each entry: the one after it, or one of the customer's next day at random."""
    entries = np.arange(len(items))
    begin, end = next_days(histories)
    if ahead == "item":
        begin, end = entries + 1, histories.indptr[histories.owner() + 1]
        chosen = begin
    else:
        chosen = begin + (random.random(len(items)) * (end - begin)).astype(np.int64)
    return np.where(begin < end, items[np.minimum(chosen, len(items) - 1)], NOTHING)


def cut(histories: Histories, length: int, random: np.random.Generator) -> tuple[Longs, Longs]:
    """Return begin and end of windows of at most `length` entries that cover everything, cut at random places."""
    sizes = np.diff(histories.indptr)
    first = np.where(sizes > length, random.integers(1, length + 1, len(sizes)), sizes)
    counts = 1 + -(-(sizes - first) // length)
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    start, first, size = (np.repeat(values, counts) for values in (histories.indptr[:-1], first, sizes))
    begin = start + np.where(number == 0, 0, first + (number - 1) * length)
    return begin, start + np.minimum(first + number * length, size)


def batches(
    histories: Histories, *, length: int, size: int, ahead: str, half_life: float, random: np.random.Generator
) -> Iterator[Batch]:
    """Yield an epoch: every entry once, windows of like length together, batches in random order."""
    order = order_within_days(histories, random)
    items = histories.items[order]
    targets = draw_targets(histories, items, ahead, random)
    weights = np.exp2(-np.maximum(histories.as_of - histories.days, 0) / half_life).astype(np.float32)
    begin, end = cut(histories, length, random)
    windows = np.lexsort((random.random(len(begin)), end - begin))
    parts = [windows[low : low + size] for low in range(0, len(windows), size)]
    for number in random.permutation(len(parts)):
        low, high = begin[parts[number]], end[parts[number]]
        places, inside = spread(low, high)
        taken, wanted = np.where(inside, items[places], 0), np.where(inside, targets[places], NOTHING)
        yield Batch(taken, count_from_end(inside, length), wanted, weights[places])


def spread(low: Longs, high: Longs) -> tuple[Longs, NDArray[np.bool_]]:
    """Return the numbers low to high of each row, (b, n), and whether they are that; elsewhere it is the last one."""
    steps = np.arange((high - low).max())
    return np.minimum(low[:, None] + steps, high[:, None] - 1), steps < (high - low)[:, None]


def count_from_end(inside: NDArray[np.bool_], length: int) -> Longs:
    """Return the places of a batch, of which the last one inside is `length` - 1."""
    first = length - inside.sum(axis=1, keepdims=True)
    return np.asarray(np.minimum(first + np.arange(inside.shape[1]), length - 1))
