"""How purchases are divided: what is history, what is to be predicted for validation, and what for the test.

Every purchase is of one stage: TRAIN, VALID or TEST. A day is never cut, and nothing is decided by an item's code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnlib.data.overview import AsOf
from nnlib.data.rows import Csr, Ints
from nnlib.errors import DataError
from nnlib.util.arrays import Longs
from nnlib.util.days import show_day

Stages = NDArray[np.uint8]

TRAIN, VALID, TEST = 0, 1, 2
STAGES = {"train": TRAIN, "valid": VALID, "test": TEST}  # as a column of the table says them
TIME, LEAVE_ONE_OUT, COLUMN, RANDOM = "time", "leave-one-out", "column", "random"
HELD_OUT = 10  # of a customer's items one in so many validates, and as many test, in a random split


@dataclass(frozen=True, slots=True)
class Split:
    """What to divide by: one of the kinds above; of COLUMN the table itself says it."""

    kind: str = TIME
    test: int = 0  # days of the window, up to the last day of the table; 0: `settle_windows` says
    validate: int = 0  # days of the window before, likewise
    min_history: int = 5  # items that a customer must have before a window to be asked in it
    repeats: bool = False  # whether items that a customer had before are targets as well
    seed: int = 0  # of the kind RANDOM


def find_windows(split: Split, first: int, last: int) -> AsOf:
    """Return the windows of a table of the days from `first` to `last`; DataError when no history is left.

    Splits that are not by time have none: whatever they hold out is asked about as of the end.
    """
    end = last + 1
    if split.kind != TIME:
        return AsOf(end, end, end)
    windows = AsOf(end - split.test - split.validate, end - split.test, end)
    if windows.valid <= first:
        shorter = "take shorter ones (--validate 7d --test 7d), or " if max(split.test, split.validate) > 7 else ""
        raise DataError(
            f"the purchases are of {end - first} days ({show_day(first)} to {show_day(last)}), and windows of "
            f"{split.validate} and {split.test} days leave no history before them; {shorter}--split leave-one-out"
        )
    return windows


def stages_of_days(days: Ints, windows: AsOf) -> Stages:
    """Return the stage of purchases on these days, in a split by time."""
    return (days >= windows.valid).astype(np.uint8) + (days >= windows.test)


def leave_last_out(bought: Csr, days: Ints, min_history: int) -> Stages:
    """Return the stages of entries: the last day on which a customer took something new is TEST, the one before VALID.

    All of a day's items go together. Customers with fewer than `min_history` items before that day keep all of them.
    """
    counts = np.diff(bought.indptr)
    owner = np.repeat(np.arange(bought.examples), counts)
    stages = np.full(bought.nonzeros, TRAIN, np.uint8)
    rest = np.ones(bought.nonzeros, np.bool_)
    for stage in (TEST, VALID):
        last = np.full(bought.examples, np.iinfo(np.int32).min, np.int32)
        np.maximum.at(last, owner[rest], days[rest])
        held = rest & (days == last[owner])
        stages[held] = stage
        rest &= ~held
    return _keep_short(stages, owner, counts, min_history)


def hold_out_at_random(bought: Csr, seed: int, min_history: int) -> Stages:
    """Return the stages of entries: of each customer's items a tenth TEST and a tenth VALID, at least one of each.

    Customers with fewer than `min_history` items besides those for the test keep all of them.
    """
    counts = np.diff(bought.indptr)
    owner = np.repeat(np.arange(bought.examples), counts)
    order = np.lexsort((np.random.default_rng(seed).random(bought.nonzeros), owner))
    held = np.maximum(1, counts // HELD_OUT)[owner]
    place = np.arange(bought.nonzeros) - bought.indptr[owner]  # in a row of the random order
    stages = np.empty(bought.nonzeros, np.uint8)
    stages[order] = np.where(place < held, TEST, np.where(place < 2 * held, VALID, TRAIN))
    return _keep_short(stages, owner, counts, min_history)


def _keep_short(stages: Stages, owner: Longs, counts: Longs, min_history: int) -> Stages:
    """Return the stages with nothing held out of customers who have too little left to be asked."""
    held = np.bincount(owner[stages == TEST], minlength=len(counts))
    short = counts - held < min_history
    return np.where(short[owner], np.uint8(TRAIN), stages)
