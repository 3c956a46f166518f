"""From purchases to the parts of every region: what was known before a window of days, and what was taken in it.

An entry of a history is a customer and an item, once, with the day of its first purchase; where buying again counts,
also with that of the last one before the window, and on how many days there was one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from nnlib.data.overview import AsOf
from nnlib.data.rows import Csr, Floats, Ints, offsets_of
from nnlib.data.sets import Data, DataSet
from nnlib.importing.purchases import PurchaseRows, Purchases
from nnlib.importing.sorting import SOME, Pairs, sort_purchases
from nnlib.importing.splits import (
    LEAVE_ONE_OUT,
    RANDOM,
    TEST,
    TRAIN,
    VALID,
    Split,
    Stages,
    find_windows,
    hold_out_at_random,
    leave_last_out,
)
from nnlib.importing.windows import settle_windows
from nnlib.util.arrays import Longs

Mask = NDArray[np.bool_]

PARTS = ("train", "valid", "final", "test", "all")
UP_TO = {"train": TRAIN, "valid": TRAIN, "final": VALID, "test": VALID, "all": TEST}  # the last stage of the history


@dataclass(frozen=True, eq=False)
class PurchaseHistory:
    """What each customer took and when, region by region."""

    regions: tuple[str, ...]
    first: Longs  # (regions + 1,): the first customer of each region
    customers: Sequence[str]
    items: tuple[str, ...]  # all that any customer bought, sorted: the units of every region's model
    bought: Csr  # (customers, items), units of a row in order
    stages: Stages  # (entries,): bit s is set where the item was bought in stage s
    days: Ints | None  # (entries,): of the first purchase, since 1970-01-01; None where the table has no times
    quantities: Floats | None  # (entries, stages): what was bought up to the end of each stage
    last: Ints | None  # (entries, stages): the day of the last purchase up to there; None without times or repeats
    often: Ints | None  # (entries, stages): on how many days there was one up to there, likewise
    purchases: Longs  # (customers,): of an item on a day
    windows: AsOf
    split: Split

    def part_data(self, region: str, part: str) -> Data | None:
        """Return one of PARTS of a region; None for `valid` and `test` when nobody is asked there.

        In `train`, `final` and `all` are the customers with a history by then, or all when none has: a file without
        examples is not legal, and a region without one could not be served at all.
        """
        n = self.regions.index(region)
        low, high = int(self.first[n]), int(self.first[n + 1])
        entries = slice(int(self.bought.indptr[low]), int(self.bought.indptr[high]))
        rows = Csr(self.bought.indptr[low : high + 1] - entries.start, self.bought.indices[entries], len(self.items))
        had = _taken(self.stages[entries], UP_TO[part])
        history = self._input(rows, entries, UP_TO[part]).keep(had)
        counts = np.diff(cast(Csr, history.rows).indptr)
        targets, rows_of = history.rows, np.flatnonzero(counts)
        if part in ("valid", "test"):
            targets = rows.keep(self._wanted(self.stages[entries], UP_TO[part] + 1))
            rows_of = np.flatnonzero((counts >= self.split.min_history) & (np.diff(targets.indptr) > 0))
            if not len(rows_of):
                return None
        elif not len(rows_of):
            rows_of = np.arange(high - low)
        whole = len(rows_of) == high - low
        inputs = history if whole else history.take(rows_of)
        outputs = targets if whole else targets.take(rows_of)
        names = tuple(self.customers[low + row] for row in rows_of.tolist())
        sets = (inputs, DataSet("output", outputs, self.items))
        return Data(sets, names, region, self._as_of(part), repeats=self.split.repeats)

    def anybody_asked(self) -> bool:
        """Whether there is a customer to validate or to test with."""
        return any(self.part_data(region, part) is not None for part in ("valid", "test") for region in self.regions)

    @cached_property
    def seen_items(self) -> Mask:
        """Of each item whether it is in anybody's history before the test."""
        seen = np.zeros(len(self.items), dtype=np.bool_)
        for start in range(0, self.bought.nonzeros, SOME):
            some = slice(start, start + SOME)
            seen[self.bought.indices[some][_taken(self.stages[some], VALID)]] = True
        return seen

    @cached_property
    def share_of_repeats(self) -> float:
        """Which part of all that was taken in the windows, a customer's item once in each, he had before it."""
        taken = repeated = 0
        for start in range(0, self.bought.nonzeros, SOME):
            stages = self.stages[start : start + SOME]
            for stage in (VALID, TEST):
                some = stages[_bought_in(stages, stage)]
                taken += len(some)
                repeated += int(np.count_nonzero(_taken(some, stage - 1)))
        return repeated / max(taken, 1)

    def _wanted(self, stages: Stages, stage: int) -> Mask:
        """Return which entries are targets of a window."""
        wanted = _bought_in(stages, stage)
        return wanted if self.split.repeats else wanted & ~_taken(stages, stage - 1)

    def _input(self, rows: Csr, entries: slice, stage: int) -> DataSet:
        days = None if self.days is None else self.days[entries]
        by_stage: tuple[Any, ...] = (self.quantities, self.last, self.often)
        quantities, last, often = (None if of is None else of[entries, stage] for of in by_stage)
        return DataSet("input", rows, self.items, days=days, quantities=quantities, last=last, counts=often)

    def _as_of(self, part: str) -> int | None:
        if self.days is None:
            return None
        return (self.windows.valid, self.windows.test, self.windows.end)[UP_TO[part]]


def build_history(purchases: Purchases, split: Split) -> PurchaseHistory:
    """Return what each customer took and when; the rows of `purchases` are used up.

    DataError when the windows leave no history.
    """
    first, last = _find_days(purchases.rows)
    split = settle_windows(purchases, split, first, last)
    windows = find_windows(split, first, last)
    found = _join(list(sort_purchases(purchases, split, windows, first)))
    bought = Csr(offsets_of(found.counts), found.items, len(purchases.items))
    history = PurchaseHistory(
        purchases.regions,
        purchases.first,
        purchases.customers,
        tuple(purchases.items),
        bought,
        found.stages,
        found.days if purchases.timed else None,
        found.quantities,
        found.last,
        found.often,
        found.purchases,
        windows,
        split,
    )
    if split.kind == LEAVE_ONE_OUT:
        stages = leave_last_out(bought, found.days, split.min_history)
    elif split.kind == RANDOM:
        stages = hold_out_at_random(bought, split.seed, split.min_history)
    else:
        return history
    return replace(history, stages=np.left_shift(np.uint8(1), stages))


def _bought_in(stages: Stages, stage: int) -> Mask:
    """Return which entries were bought in a stage."""
    return (stages >> np.uint8(stage) & np.uint8(1)).astype(np.bool_)


def _taken(stages: Stages, stage: int) -> Mask:
    """Return which entries were bought in a stage up to this one."""
    return (stages & np.uint8((2 << stage) - 1)) > 0


def _find_days(rows: PurchaseRows) -> tuple[int, int]:
    """Return the first and the last day."""
    spans = [(int(block.days.min()), int(block.days.max())) for block in rows.parts()] or [(0, 0)]
    return min(low for low, _ in spans), max(high for _, high in spans)


def _join(some: Sequence[Pairs]) -> Pairs:
    if len(some) == 1:
        return some[0]
    columns = [[getattr(pairs, one.name) for pairs in some] for one in fields(Pairs)]
    joined: list[Any] = [None if of[0] is None else np.concatenate(of) for of in columns]
    return Pairs(*joined)
