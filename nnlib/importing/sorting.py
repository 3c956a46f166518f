"""Purchases brought into the order of customers and items, each pair once: numbers packed into keys, sorted in place.

A key has, from its highest bits to its lowest, customer, item, stage and day, so that of a pair's purchases the first
is the earliest of its earliest stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.data.overview import AsOf
from nnlib.data.rows import Floats, Ints
from nnlib.importing.purchases import PurchaseBlock, Purchases
from nnlib.importing.splits import TEST, TIME, Split, Stages, stages_of_days
from nnlib.util.arrays import Longs

Keys = NDArray[np.uint64]

KEY_BITS = 64
STAGE_BITS = 2
SOME = 1 << 17  # keys that are changed together


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """What some customers bought, customer after customer, items in order and each once."""

    counts: Longs  # (customers,): of items
    purchases: Longs  # (customers,): on different days, or in different stages
    items: Ints  # (pairs,)
    days: Ints  # (pairs,): of the first purchase
    stages: Stages  # (pairs,): bit s is set where there is a purchase of stage s
    quantities: Floats | None  # (pairs, stages): what was bought up to the end of each stage
    last: Ints | None  # (pairs, stages): the day of the last purchase up to there; None where buying again is nothing
    often: Ints | None  # (pairs, stages): on how many days there was one up to there, likewise


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a customer, an item, a stage and a day make one number: so many bits for an item and for a day."""

    item: int
    day: int
    first: int  # the day that counts as 0

    @property
    def pair(self) -> np.uint64:
        """How many bits are below those of customer and item."""
        return np.uint64(STAGE_BITS + self.day)

    @property
    def customers(self) -> int:
        """How many customers there is room for."""
        return 1 << max(0, KEY_BITS - self.item - STAGE_BITS - self.day)

    def pack(self, customers: Ints, items: Ints, stages: Stages, days: Ints) -> Keys:
        """Return the keys of purchases."""
        keys = customers.astype(np.uint64) << np.uint64(self.item) | items.astype(np.uint64)
        keys = keys << np.uint64(STAGE_BITS) | stages.astype(np.uint64)
        past = (days.astype(np.int64) - self.first).view(np.uint64)
        return keys << np.uint64(self.day) | past

    def customer(self, keys: Keys) -> Longs:
        """Return whose purchases they are."""
        return (keys >> (self.pair + np.uint64(self.item))).view(np.int64)

    def items(self, keys: Keys) -> Ints:
        """Return what was bought."""
        return (keys >> self.pair & np.uint64((1 << self.item) - 1)).astype(np.int32)

    def stages(self, keys: Keys) -> Stages:
        """Return the stages of purchases."""
        return (keys >> np.uint64(self.day) & np.uint64((1 << STAGE_BITS) - 1)).astype(np.uint8)

    def days(self, keys: Keys) -> Ints:
        """Return when it was bought."""
        return ((keys & np.uint64((1 << self.day) - 1)).view(np.int64) + self.first).astype(np.int32)


def sort_purchases(purchases: Purchases, split: Split, windows: AsOf, first: int) -> Iterator[Pairs]:
    """Yield the pairs of all customers, some customers after others; the rows of `purchases` are used up.

    `first` is the first day of the table.
    """
    customers = len(purchases.customers)
    layout = _Layout(_bits(len(purchases.items)), _bits(windows.end - first), first)
    for low in range(0, customers, layout.customers):  # usually all at once
        high = min(customers, low + layout.customers)
        keys, quantities = _keys(purchases, split, windows, layout, (low, high))
        if quantities is None:
            keys.sort()
        else:
            order = np.argsort(keys, kind="stable")
            keys, quantities = keys[order], quantities[order]
        yield _Merger(layout, high - low, split.repeats and purchases.timed).merge(keys, quantities)


def _keys(
    purchases: Purchases, split: Split, windows: AsOf, layout: _Layout, some: tuple[int, int]
) -> tuple[Keys, Floats | None]:
    """Return keys and quantities of the customers from some[0] to before some[1]; with the last go the rows."""
    (low, high), rows = some, purchases.rows
    last = high == len(purchases.customers)
    keys: Keys = np.empty(rows.count, dtype=np.uint64)
    quantities = np.empty(rows.count, dtype=np.float32) if rows.has_quantities else None
    filled = 0
    for block in rows.parts(use_up=last):
        customers = block.customers
        mine = np.flatnonzero((customers >= low) & (customers < high)) if low or not last else slice(None)
        of_some: list[Any] = [column[mine] for column in block]
        block = PurchaseBlock(*of_some)
        stages = stages_of_days(block.days, windows) if split.kind == TIME else block.stages
        end = filled + len(block.customers)
        keys[filled:end] = layout.pack(customers[mine] - low, block.items, stages, block.days)
        if quantities is not None:
            quantities[filled:end] = block.quantities
        filled = end
    keys.resize(filled, refcheck=False)
    return keys, None if quantities is None else quantities[:filled]


class _Merger:
    """Makes pairs of sorted keys, in the keys' own memory while it can."""

    def __init__(self, layout: _Layout, customers: int, repeats: bool) -> None:
        self.layout, self.repeats = layout, repeats
        self.purchases: Longs = np.zeros(customers, dtype=np.int64)
        self.counts: Longs = np.zeros(customers, dtype=np.int64)

    def merge(self, keys: Keys, quantities: Floats | None) -> Pairs:
        """Return the pairs; the keys are used up."""
        stages: Stages = np.zeros(len(keys), dtype=np.uint8)
        sums = None if quantities is None else np.zeros((len(keys), TEST + 1), dtype=np.float32)
        last = often = None
        if self.repeats:
            last = np.full((len(keys), TEST + 1), np.iinfo(np.int32).min, dtype=np.int32)
            often = np.zeros((len(keys), TEST + 1), dtype=np.int32)
        kept, before = 0, None
        for start in range(0, len(keys), SOME):
            some = keys[start : start + SOME].copy()
            new = np.ones(len(some), dtype=np.bool_)  # a day's first purchase of a pair
            new[1:] = some[1:] != some[:-1]
            new[0] = some[0] != before
            above = some >> self.layout.pair
            first = np.ones(len(some), dtype=np.bool_)
            first[1:] = above[1:] != above[:-1]
            first[0] = before is None or above[0] != before >> self.layout.pair
            before = some[-1]
            place = kept - 1 + np.cumsum(first)
            stage = self.layout.stages(some)
            np.bitwise_or.at(stages, place, np.left_shift(np.uint8(1), stage))
            if sums is not None and quantities is not None:
                for end in range(TEST + 1):
                    np.add.at(sums[:, end], place, np.where(stage <= end, quantities[start : start + SOME], 0))
            if last is not None and often is not None:
                for end in range(TEST + 1):
                    there = np.flatnonzero(stage <= end)
                    np.maximum.at(last[:, end], place[there], self.layout.days(some[there]))
                    np.add.at(often[:, end], place[there], new[there].astype(np.int32))
            self._count(self.purchases, some[new])
            self._count(self.counts, some[first])
            end = kept + int(np.count_nonzero(first))
            keys[kept:end] = some[first]
            kept = end
        items, days = self._unpack(keys, kept)
        by_stage: tuple[Any, ...] = (sums, last, often)
        found = [None if of is None else of[:kept].copy() for of in by_stage]
        return Pairs(self.counts, self.purchases, items, days, stages[:kept].copy(), *found)

    def _count(self, counts: Longs, keys: Keys) -> None:
        """Add to each customer's count how many of the sorted keys are his."""
        if len(keys):
            customers = self.layout.customer(keys)
            found = np.bincount(customers - customers[0])
            counts[customers[0] : customers[0] + len(found)] += found

    def _unpack(self, keys: Keys, count: int) -> tuple[Ints, Ints]:
        """Return items and days of the first `count` keys, whose memory is given back as theirs fills."""
        items: Ints = np.empty(count, dtype=np.int32)
        days: Ints = np.empty(count, dtype=np.int32)
        for start in reversed(range(0, count, SOME)):  # from the end, where memory can be given back
            some = keys[start : min(start + SOME, count)].copy()
            items[start : start + len(some)] = self.layout.items(some)
            days[start : start + len(some)] = self.layout.days(some)
            keys.resize(start, refcheck=False)
        return items, days


def _bits(count: int) -> int:
    """Return how many bits the numbers below `count` take."""
    return max(1, (count - 1).bit_length())
