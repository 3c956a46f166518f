"""How long the windows of a split by time are where nobody says it: as short as 28 days, if enough customers are asked.

Long windows ask what will be wanted in months; short ones of sparse data ask too few to tell models apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nnlib.data.rows import Ints
from nnlib.importing.purchases import Purchases
from nnlib.importing.splits import TIME, Split
from nnlib.util.arrays import Longs

USUAL = 28  # days
ENOUGH = 200  # customers of a window: a difference of .015 NDCG between good models is then no noise
WORTH = 1.25  # by how much more customers a window of twice the length has to ask
HISTORY = 2  # of all days at most one in so many is in a window
MOST = 1 << 20  # purchases that are looked at, those of some customers if there are more


def settle_windows(purchases: Purchases, split: Split, first: int, last: int) -> Split:
    """Return a split with the lengths of its windows, for a table of the days from `first` to `last`.

    One of the two that is not given is as long as the other.
    """
    if split.kind != TIME or (split.test and split.validate):
        return split
    days = split.test or split.validate or _choose_length(purchases, split, first, last)
    return replace(split, test=split.test or days, validate=split.validate or days)


def _choose_length(purchases: Purchases, split: Split, first: int, last: int) -> int:
    span, length = last + 1 - first, USUAL
    while 2 * length * HISTORY > span and length > 1:
        length //= 2
    count = _Asked(purchases, split, last)
    asked = count.in_both(length)
    while asked < ENOUGH and 4 * length * HISTORY <= span:
        more = count.in_both(2 * length)
        if more < WORTH * asked:
            break
        length, asked = 2 * length, more
    return length


class _Asked:
    """Counts the customers that would be asked."""

    def __init__(self, purchases: Purchases, split: Split, last: int) -> None:
        self.split, self.end = split, last + 1
        self.step = max(1, math.ceil(purchases.rows.count / MOST))
        some = list(self._some(purchases))
        customer, item, days = (np.concatenate([block[n] for block in some]) for n in range(3))
        order = np.lexsort((days, item, customer))
        customer, item, days = customer[order], item[order], days[order]
        new = np.ones(len(days), np.bool_)
        new[1:] = (customer[1:] != customer[:-1]) | (item[1:] != item[:-1])
        self.customers = len(purchases.customers)
        self.first = customer[new], days[new]
        self.wanted = (customer, days) if split.repeats else self.first

    def in_both(self, length: int) -> int:
        """Return how many are asked in the smaller of two windows of so many days, up to the end."""
        return self.step * min(self._in_one(self.end - length, length), self._in_one(self.end - 2 * length, length))

    def _in_one(self, start: int, length: int) -> int:
        had = self._of_customers(self.first, -math.inf, start)
        took = self._of_customers(self.wanted, start, start + length)
        return int(np.count_nonzero((had >= self.split.min_history) & (took > 0)))

    def _of_customers(self, purchases: tuple[Ints, Ints], start: float, end: float) -> Longs:
        customer, days = purchases
        return np.bincount(customer[(days >= start) & (days < end)], minlength=self.customers)

    def _some(self, purchases: Purchases) -> Iterator[tuple[Ints, Ints, Ints]]:
        for block in purchases.rows.parts():
            customers = block.customers
            mine = customers % self.step == 0
            yield customers[mine], block.items[mine], block.days[mine]
