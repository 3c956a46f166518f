"""Who took what and when: what the families but the networks learn from, and what they are asked with."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from nnlib.data.rows import Csr, Dense, Ints, entries_of
from nnlib.data.sets import entries_beside
from nnlib.util.arrays import Floats, Longs

FOREVER = 1e9  # days; a half-life from here on ages nothing
BESIDE = ("days", "last", "counts")  # what Events have for each entry


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """The items that each customer has taken, once each, and the day of the first time, or of the last one, too.

    Customers belong to regions; ages are counted back from `as_of`, the first day that is to be predicted.
    """

    bought: Csr  # (customers, items), boolean, units of a row in order and none twice
    items: tuple[str, ...]  # names of the units
    region: Ints  # (customers,): numbers into `regions`
    regions: tuple[str, ...]  # one at least; "" where data name none
    days: Ints | None = None  # (entries of bought,): days since 1970-01-01; None where the data have no times
    as_of: int = 0  # in the same days
    last: Ints | None = None  # (entries of bought,): day of the last purchase; None where only the first is known
    counts: Ints | None = None  # (entries of bought,): on how many days it was bought; None where that is not known
    repeats: bool = False  # whether what a customer has is ranked like anything else, as it may be bought again
    since: Floats | None = None  # (customers,): the age that `aged_from_last` takes for 0, where not the last day's
    inputs: Dense | None = None  # (customers, inputs), such as pictures, where they are told by these and were read

    @property
    def customers(self) -> int:
        """How many customers."""
        return self.bought.examples

    def ages(self) -> Floats:
        """Return the age of each entry's last purchase in days, 0 and above; zeros where there are no times."""
        days = self.days if self.last is None else self.last
        if days is None:
            return np.zeros(self.bought.nonzeros, np.float32)
        return np.maximum(self.as_of - days, 0).astype(np.float32)

    def aged(self, half_life: float) -> sparse.csr_array:
        """Return customers x items with 2 ** (-age / half_life) at what was taken."""
        return self._weighted(self.ages(), half_life)

    def aged_from_last(self, half_life: float) -> sparse.csr_array:
        """Return the same with ages from each customer's last day, so that what he took then counts 1.

        The order of scores that are linear in a history does not change, and those of a customer who has not been there
        for a hundred half-lives do not vanish in rounding.
        """
        lengths = np.diff(self.bought.indptr)
        since = self.youngest() if self.since is None else self.since
        return self._weighted(self.ages() - np.repeat(since, lengths), half_life)

    def youngest(self) -> Floats:
        """Return the age (customers,) of what each customer took last; 0 for one who has nothing."""
        lengths, found = np.diff(self.bought.indptr), np.zeros(self.customers, np.float32)
        some = np.flatnonzero(lengths)
        if len(some):
            found[some] = np.minimum.reduceat(self.ages(), self.bought.indptr[some])
        return found

    def _weighted(self, ages: Floats, half_life: float) -> sparse.csr_array:
        values = np.ones(self.bought.nonzeros, np.float32)
        if half_life < FOREVER and self.days is not None:
            values = np.exp2(-ages / np.float32(half_life))
        parts = (values, self.bought.indices, self.bought.indptr)
        return sparse.csr_array(parts, (self.customers, self.bought.width))

    def take(self, customers: Longs) -> Events:
        """Return some customers, in that order."""
        _, entries = entries_of(self.bought.indptr, customers)
        since = None if self.since is None else self.since[customers]
        inputs = None if self.inputs is None else self.inputs.take(customers)
        taken = replace(
            self, bought=self.bought.take(customers), region=self.region[customers], since=since, inputs=inputs
        )
        return taken.with_entries(self, entries)

    def with_entries(self, other: Events, entries: Longs) -> Events:
        """Return the same with what `other` has for each entry, of the entries of these numbers."""
        return replace(self, **entries_beside(other, BESIDE, entries))

    def unranked(self, customers: Longs) -> Csr | None:
        """Return the items that have no rank for some customers: what they have, or None where buying again counts."""
        return None if self.repeats else self.bought.take(customers)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Customers with what they had before a window of days, and what they took in it: questions and answers."""

    asked: Events  # as of the window's first day
    wanted: Csr  # (customers, items); a customer without any counts for nothing
