"""From purchases to the parts of every region, as the next-items protocol has it.

Of each customer of a region the first date of each distinct item counts; customers with fewer than `min_items` are
dropped. Items are sorted by that date, ties by item code; the first floor(0.8 n) are the history, the rest the test
items; the last floor(0.1 h) of h history items are for validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnlib.contract import slug_of
from nnlib.data.rows import Csr, Ints, offsets_of
from nnlib.data.sets import Data, DataSet
from nnlib.errors import DataError
from nnlib.importing.purchases import PurchaseRows, Purchases, Times
from nnlib.util.arrays import Longs

Keys = NDArray[np.uint64]

MIN_ITEMS = 10
LEAST_VALIDATED = 13  # of these ten are history, and the last of the ten is for validation
PARTS = ("train", "valid", "final", "test")
KEY_BITS = 64
SOME = 1 << 17  # keys that are changed together


@dataclass(frozen=True, slots=True, eq=False)
class PurchaseHistory:
    """The distinct items, oldest first, of each customer with enough of them, region by region."""

    regions: tuple[str, ...]
    first: Longs  # (regions + 1,): the first customer of each region
    customers: Sequence[str]
    bought: Csr  # of each customer
    items: tuple[str, ...]  # all that any customer here bought, sorted: the units of every region's model

    def can_validate(self, region: str) -> bool:
        """Whether a customer of the region has an item to validate."""
        return bool(np.any(_cuts(self._counts(region))[1]))

    def split(self, region: str) -> RegionParts:
        """Return the parts of a region that is validated."""
        n = self.regions.index(region)
        low, high = int(self.first[n]), int(self.first[n + 1])
        counts = self._counts(region)
        cut, held = _cuts(counts)
        start = self.bought.indptr[low:high]
        position = np.arange(counts.sum()) - np.repeat(start - self.bought.indptr[low], counts)
        part = (position >= np.repeat(cut - held, counts)).astype(np.int64) + (position >= np.repeat(cut, counts))
        units = self.bought.indices[self.bought.indptr[low] : self.bought.indptr[high]]
        keys = (np.repeat(np.arange(high - low), counts) * len(self.items) + units) * 3 + part
        keys.sort()  # by customer and unit
        part = keys % 3
        rows = Csr(offsets_of(counts), (keys // 3 % len(self.items)).astype(np.int32), len(self.items))
        names = tuple(self.customers[low:high])
        kept, past, test = rows.keep(part == 0), rows.keep(part < 2), rows.keep(part == 2)
        to_validate = np.flatnonzero(held)
        valid = (kept.take(to_validate), rows.keep(part == 1).take(to_validate))
        validated = tuple(names[row] for row in to_validate.tolist())
        parts = {
            "train": self._data(region, names, kept, kept),
            "valid": self._data(region, validated, *valid),
            "final": self._data(region, names, past, past),
            "test": self._data(region, names, past, test),
        }
        return RegionParts(region, slug_of(region), parts)

    def _counts(self, region: str) -> Longs:
        n = self.regions.index(region)
        return np.diff(self.bought.indptr[self.first[n] : self.first[n + 1] + 1])

    def _data(self, region: str, names: tuple[str, ...], inputs: Csr, targets: Csr) -> Data:
        sets = (DataSet("input", inputs, self.items), DataSet("output", targets, self.items))
        return Data(sets, names, region)


@dataclass(frozen=True, slots=True, eq=False)
class RegionParts:
    """The four data files of a region, by the names in PARTS."""

    region: str
    slug: str
    parts: Mapping[str, Data]


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a customer, an item and a time make one number: so many bits each, the customer in the highest."""

    customer: int
    item: int
    time: int

    def pack(self, customers: Keys, items: Keys, times: Keys) -> Keys:
        """Return keys with the time in the lowest bits."""
        return ((customers << np.uint64(self.item)) | items) << np.uint64(self.time) | times

    def units(self, keys: Keys, wanted: NDArray[np.bool_]) -> Ints:
        """Return the items of the wanted of keys by time."""
        units: Ints = np.empty(int(np.count_nonzero(wanted)), dtype=np.int32)
        filled = 0
        for start in range(0, len(keys), SOME):
            some = keys[start : start + SOME][wanted[start : start + SOME]] & np.uint64((1 << self.item) - 1)
            units[filled : filled + len(some)] = some
            filled += len(some)
        return units

    def by_time(self, keys: Keys) -> Keys:
        """Return keys with the item in the lowest bits, below the time."""
        time = keys & np.uint64((1 << self.time) - 1)
        above = keys >> np.uint64(self.time)
        item = above & np.uint64((1 << self.item) - 1)
        customer = above >> np.uint64(self.item)
        return ((customer << np.uint64(self.time)) | time) << np.uint64(self.item) | item


def build_histories(purchases: Purchases, min_items: int = MIN_ITEMS) -> PurchaseHistory:
    """Return each customer's distinct items, oldest first; the rows of `purchases` are used up."""
    counts, units = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int32)]
    for some_counts, some_units in _sort(purchases, min_items):
        counts.append(some_counts)
        units.append(some_units)
    count = np.concatenate(counts)
    unit = np.concatenate(units) if len(units) > 2 else units[-1]
    used = np.zeros(len(purchases.items), dtype=np.bool_)
    used[unit] = True
    number = (np.cumsum(used) - 1).astype(np.int32)
    for start in range(0, len(unit), SOME):
        unit[start : start + SOME] = number[unit[start : start + SOME]]
    kept = np.flatnonzero(count)
    return PurchaseHistory(
        purchases.regions,
        np.searchsorted(kept, purchases.first).astype(np.int64),
        [purchases.customers[n] for n in kept.tolist()],
        Csr(offsets_of(count[kept]), unit, int(used.sum())),
        tuple(purchases.items[n] for n in np.flatnonzero(used).tolist()),
    )


def check_slugs(regions: Sequence[str]) -> None:
    """Raise DataError when two regions would share their files."""
    taken: dict[str, str] = {}
    for region in regions:
        other = taken.setdefault(slug_of(region), region)
        if other != region:
            raise DataError(f"regions {other!r} and {region!r} are both {slug_of(region)!r} as a file name; rename one")


def _cuts(counts: Longs) -> tuple[Longs, Longs]:
    """Return how many items of each customer are history, and how many of these are for validation."""
    cut = counts * 8 // 10
    return cut, cut // 10


def _sort(purchases: Purchases, min_items: int) -> Iterator[tuple[Longs, Ints]]:
    """Yield, for some customers after others, how many distinct items each has, and the items, oldest first.

    Customers with fewer than `min_items` have none.
    """
    customers, items = len(purchases.customers), len(purchases.items)
    clock = _clock(purchases.rows, KEY_BITS - _bits(customers) - _bits(items))
    layout = _Layout(KEY_BITS - _bits(items) - _bits(clock.ticks), _bits(items), _bits(clock.ticks))
    together = 1 << layout.customer  # usually all
    for low in range(0, customers, together):
        high = min(customers, low + together)
        keys = _keys(purchases, clock, layout, low, high)
        keys.sort()
        keys = keys[: _keep_first(keys, np.uint64(layout.time))]
        for start in range(0, len(keys), SOME):
            keys[start : start + SOME] = layout.by_time(keys[start : start + SOME])
        keys.sort()
        bounds = np.arange(1, high - low, dtype=np.uint64) << np.uint64(layout.item + layout.time)
        counts = np.diff(np.concatenate(([0], np.searchsorted(keys, bounds), [len(keys)])))
        enough = counts >= min_items
        yield counts * enough, layout.units(keys, np.repeat(enough, counts))


def _keys(purchases: Purchases, clock: _Clock, layout: _Layout, low: int, high: int) -> Keys:
    """Return the keys of purchases of the customers from `low` to before `high`; with the last go the rows."""
    last = high == len(purchases.customers)
    keys = np.empty(purchases.rows.count, dtype=np.uint64)
    filled = 0
    for numbers, items, times in purchases.rows.parts(use_up=last):
        customers = purchases.customer_rank[numbers]
        mine = np.flatnonzero((customers >= low) & (customers < high)) if low or not last else slice(None)
        some = layout.pack(
            (customers[mine] - low).astype(np.uint64),
            purchases.item_rank[items[mine]].astype(np.uint64),
            clock.read(times[mine]),
        )
        keys[filled : filled + len(some)] = some
        filled += len(some)
    return keys[:filled]


def _keep_first(keys: Keys, time_bits: np.uint64) -> int:
    """Move to the front, of sorted keys that differ in the time alone, the first, and return how many there are."""
    kept, before = 0, None
    for start in range(0, len(keys), SOME):
        above = keys[start : start + SOME] >> time_bits
        first = np.ones(len(above), dtype=np.bool_)
        first[1:] = above[1:] != above[:-1]
        first[0] = above[0] != before
        before = above[-1]
        some = keys[start : start + SOME][first]
        keys[kept : kept + len(some)] = some
        kept += len(some)
    return kept


@dataclass(frozen=True, slots=True, eq=False)
class _Clock:
    """Times as numbers from 0: how long after the first, or the place among all times that there are."""

    first: int
    ticks: int
    distinct: Longs | None = None

    def read(self, times: Times) -> Keys:
        """Return times as such numbers."""
        if self.distinct is not None:
            return np.searchsorted(self.distinct, times).astype(np.uint64)
        return (times.astype(np.int64) - self.first).view(np.uint64)


def _clock(rows: PurchaseRows, bits: int) -> _Clock:
    """Return a clock; one of places when the times do not fit into so many bits."""
    spans = [(int(times.min()), int(times.max())) for *_, times in rows.parts()] or [(0, 0)]
    first, last = min(low for low, _ in spans), max(high for _, high in spans)
    if _bits(last - first + 1) <= bits:
        return _Clock(first, last - first + 1)
    distinct: Longs = np.zeros(0, dtype=np.int64)
    for *_, times in rows.parts():
        distinct = np.union1d(distinct, times)
    return _Clock(0, len(distinct), distinct)


def _bits(count: int) -> int:
    """Return how many bits the numbers below `count` take."""
    return max(1, (count - 1).bit_length())
