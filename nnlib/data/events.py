"""Who took what and when: what the families but the networks learn from, and what they are asked with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from nnlib.data.rows import Csr, Ints, entries_of
from nnlib.util.arrays import Floats, Longs

FOREVER = 1e9  # days; a half-life from here on ages nothing


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """The items that each customer has taken, once each, and the day of the first time.

    Customers belong to regions; ages are counted back from `as_of`, the first day that is to be predicted.
    """

    bought: Csr  # (customers, items), boolean, units of a row in order and none twice
    items: tuple[str, ...]  # names of the units
    region: Ints  # (customers,): numbers into `regions`
    regions: tuple[str, ...]  # one at least; "" where data name none
    days: Ints | None = None  # (entries of bought,): days since 1970-01-01; None where the data have no times
    as_of: int = 0  # in the same days

    @property
    def customers(self) -> int:
        """How many customers."""
        return self.bought.examples

    def ages(self) -> Floats:
        """Return the age of each entry in days, 0 and above; zeros where there are no times."""
        if self.days is None:
            return np.zeros(self.bought.nonzeros, np.float32)
        return np.maximum(self.as_of - self.days, 0).astype(np.float32)

    def aged(self, half_life: float) -> sparse.csr_array:
        """Return customers x items with 2 ** (-age / half_life) at what was taken."""
        return self._weighted(self.ages(), half_life)

    def aged_from_last(self, half_life: float) -> sparse.csr_array:
        """Return the same with ages from each customer's last day, so that what he took then counts 1.

        The order of scores that are linear in a history does not change, and those of a customer who has not been there
        for a hundred half-lives do not vanish in rounding.
        """
        ages, lengths = self.ages(), np.diff(self.bought.indptr)
        some = np.flatnonzero(lengths)
        if len(some):
            ages -= np.repeat(np.minimum.reduceat(ages, self.bought.indptr[some]), lengths[some])
        return self._weighted(ages, half_life)

    def _weighted(self, ages: Floats, half_life: float) -> sparse.csr_array:
        values = np.ones(self.bought.nonzeros, np.float32)
        if half_life < FOREVER and self.days is not None:
            values = np.exp2(-ages / np.float32(half_life))
        parts = (values, self.bought.indices, self.bought.indptr)
        return sparse.csr_array(parts, (self.customers, self.bought.width))

    def take(self, customers: Longs) -> Events:
        """Return some customers, in that order."""
        _, entries = entries_of(self.bought.indptr, customers)
        bought = self.bought.take(customers)
        days = None if self.days is None else self.days[entries]
        return Events(bought, self.items, self.region[customers], self.regions, days, self.as_of)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Customers with what they had before a window of days, and what they took in it: questions and answers."""

    asked: Events  # as of the window's first day
    wanted: Csr  # (customers, items); a customer without any counts for nothing
