"""What data of regions are like, as a table and as warnings: what one has to know before believing a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnlib.data.rows import Csr, Ints
from nnlib.util.columns import SHORTEST, Narrow
from nnlib.util.days import show_day

FEW = 30  # customers, of whom a mean says little
LISTED = 5  # regions in a warning
MOSTLY = 0.5
LARGE = 0.1  # share of all purchases that one customer rarely has, where there are FEW others
COPIES = 0.05  # share of rows like another: tills and baskets of two make some, a table that was read twice makes many
# What a narrow terminal has no room for goes in this order.
NARROW = Narrow(("files", "density", "entries", "items", "from", "repeats", "to"), {"region": SHORTEST})
HEADINGS = ("region", "from", "to", "customers", "items", "entries", "density", "repeats", "valid", "test", "cold")


@dataclass(frozen=True, slots=True)
class AsOf:
    """The first days, since 1970-01-01, of the windows to validate and to test, and the day after the last of all."""

    valid: int
    test: int
    end: int


@dataclass(frozen=True, slots=True)
class RegionOverview:
    """What the data of one region hold; an entry is a customer and an item, once."""

    region: str
    days: tuple[int, int] | None  # of the first and the last entry, None without times
    customers: int
    items: int  # different ones
    entries: int
    most: int  # entries of one customer
    asked: tuple[int, int]  # customers in validation and test
    targets: int  # of the test
    cold: int  # of these on items that no history has
    repeats: float | None = None  # share of purchases of what the customer had; None: not known

    @property
    def density(self) -> float:
        """Which part of all pairs of its customers and items is there."""
        return self.entries / (self.customers * self.items) if self.entries else 0.0


@dataclass(frozen=True, slots=True)
class Suspicions:
    """What only the table of purchases tells, or all regions together."""

    rows: int = 0
    duplicates: int = 0  # rows of the same customer, item and day as another
    busiest: str = ""  # the customer with most purchases, of regions that have FEW at least
    share: float = 0.0  # of all purchases that are his

    @property
    def copies(self) -> str:
        """How many rows are like others, in words; nothing where none is."""
        if not self.duplicates:
            return ""
        part = f"{self.duplicates:,} of {self.rows:,} rows ({self.duplicates / self.rows:.1%})"
        return f"{part} have customer, item and day of another row"


def describe_region(
    region: str,
    bought: Csr,
    days: Ints | None,
    asked: tuple[int, int],
    targets: NDArray[np.int32],
    seen: NDArray[np.bool_],
    repeats: float | None = None,
) -> RegionOverview:
    """Return the overview of a region; `targets` are the test's items, `seen` says which items a history has."""
    span = None if days is None or not len(days) else (int(days.min()), int(days.max()))
    items = int(np.count_nonzero(np.bincount(bought.indices, minlength=1)))
    cold = int(np.count_nonzero(~seen[targets]))
    most = int(np.diff(bought.indptr).max())
    sizes = (bought.examples, items, bought.nonzeros, most)
    return RegionOverview(region, span, *sizes, asked, len(targets), cold, repeats)


def table_row(one: RegionOverview) -> tuple[str, ...]:
    """Return a region as cells under HEADINGS."""
    first, last = ("-", "-") if one.days is None else map(show_day, one.days)
    counts = (one.customers, one.items, one.entries)
    cold = f"{one.cold / one.targets:.1%}" if one.targets else "-"
    repeats = "-" if one.repeats is None else f"{one.repeats:.1%}"
    name = one.region if one.region.isprintable() else repr(one.region)
    return (name, first, last, *map(str, counts), f"{one.density:.2%}", repeats, *map(str, one.asked), cold)


def find_warnings(
    regions: Sequence[RegionOverview], as_of: AsOf | None, today: int, suspicions: Suspicions | None = None
) -> list[str]:
    """Return what makes figures of these data doubtful, a line each; `today` in days since 1970-01-01."""
    found = []
    few = _list(regions, lambda one: one.asked[1] < FEW, lambda one: str(one.asked[1]))
    if few:
        found.append(f"fewer than {FEW} customers to test on: {few}; what is measured there is mostly chance")
    cold = _list(regions, lambda one: one.cold > MOSTLY * one.targets, lambda one: f"{one.cold / one.targets:.0%}")
    if cold:
        found.append(f"most of what the test asks for is in nobody's history: {cold}; check the item column, or wait")
    if as_of is not None:
        found += _warn_of_time(regions, as_of, today)
    if suspicions and suspicions.duplicates >= COPIES * suspicions.rows > 0:
        found.append(f"{suspicions.copies}; if they are copies, remove them: quantities add up")
    if suspicions and suspicions.share > LARGE:
        found.append(
            f"{suspicions.busiest} has {suspicions.share:.0%} of all purchases; is that one customer? "
            "A till or an unknown buyer is better left out"
        )
    return found


def _warn_of_time(regions: Sequence[RegionOverview], as_of: AsOf, today: int) -> list[str]:
    found = []
    windows = (as_of.test - as_of.valid, as_of.end - as_of.test)

    def before(one: RegionOverview) -> int:
        return max(0, as_of.valid - one.days[0]) if one.days else 0

    if any(windows):
        short = _list(regions, lambda one: before(one) < max(windows), lambda one: f"{before(one)} days")
        if short:
            found.append(
                f"windows of {windows[0]} and {windows[1]} days are longer than the history before them: {short}; "
                "take shorter ones, or wait"
            )
    if as_of.end - 1 > today:
        found.append(
            f"the last purchase, of {show_day(as_of.end - 1)}, lies after today, {show_day(today)}; correct the dates: "
            "windows are counted back from the last one"
        )
    return found


def _list(
    regions: Sequence[RegionOverview],
    doubtful: Callable[[RegionOverview], bool],
    why: Callable[[RegionOverview], str],
) -> str:
    """Return the doubtful regions, each with a reason in brackets, the largest first; empty without any."""
    found = sorted((one for one in regions if doubtful(one)), key=lambda one: -one.customers)
    names = [f"{one.region or 'the data'} ({why(one)})" for one in found[:LISTED]]
    more = [f"and {len(found) - LISTED} more"] if len(found) > LISTED else []
    return ", ".join([*names, *more])
