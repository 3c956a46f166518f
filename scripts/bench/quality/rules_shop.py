"""The retail example as a nightly pipeline sees it on any day, and the closed forms that compete in `rules`.

The families are short forms of those in `nnlib.families`, for one purpose: scores per customer that differ as
those of real candidates do.
"""

from __future__ import annotations

import csv
import datetime
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from scripts.bench.common.processes import REPOSITORY

TABLE = REPOSITORY / "workflows/examples/retail/purchases.csv.gz"
MIN_HISTORY, TOP = 5, 20
FOREVER = 1e9  # days; a half-life that ages nothing
DISCOUNT = 1 / np.log2(np.arange(2, TOP + 2))

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Shop:
    """The first purchase of every item by every customer, in the order of customers."""

    customer: Longs  # (purchases,)
    item: Longs
    day: Longs
    region: Longs  # (customers,): numbers into `regions`
    regions: tuple[str, ...]
    items: int

    @property
    def end(self) -> int:
        """The day after the last one."""
        return int(self.day.max()) + 1

    def before(self, day: int) -> History:
        """Return what is known on the morning of `day`."""
        known = self.day < day
        return History(self, day, self.customer[known], self.item[known], self.day[known])


@dataclass(frozen=True, eq=False)
class History:
    """All first purchases before `as_of`."""

    shop: Shop
    as_of: int
    customer: Longs
    item: Longs
    day: Longs

    def aged(self, half_life: float = FOREVER) -> sparse.csr_array:
        """Return customers x items with 2 ** (-age / half_life) at what was taken."""
        weights = np.exp2((self.day - self.as_of) / half_life).astype(np.float32)
        return sparse.csr_array((weights, (self.customer, self.item)), (len(self.shop.region), self.shop.items))


@dataclass(frozen=True, eq=False)
class Window:
    """Who is asked on the first day of some days, with at least MIN_HISTORY items before, and what he took in them."""

    history: History
    asked: Longs
    has: sparse.csr_array  # (asked, items)
    wanted: sparse.csr_array

    def ndcg(self, scores: Floats) -> Floats:
        """Return NDCG@20 of each customer asked; what he has is not ranked."""
        found = np.zeros(len(self.asked), np.float32)
        ideal = np.cumsum(DISCOUNT)
        for low in range(0, len(found), 512):
            rows = slice(low, low + 512)
            table = scores[rows].copy()
            table[self.has[rows].toarray() > 0] = -np.inf
            best = np.argpartition(-table, TOP, axis=1)[:, :TOP]
            order = np.argsort(-np.take_along_axis(table, best, axis=1), axis=1, kind="stable")
            best = np.take_along_axis(best, order, axis=1)
            wanted = self.wanted[rows].toarray()
            counts = np.minimum((wanted > 0).sum(axis=1), TOP)
            found[rows] = (np.take_along_axis(wanted, best, axis=1) * DISCOUNT).sum(axis=1) / ideal[counts - 1]
        return found


@cache
def read_shop() -> Shop:
    """Read the example's table."""
    first: dict[tuple[str, str, str], str] = {}
    with gzip.open(TABLE, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = row["region"], row["customer"], row["item"]
            first[key] = min(row["date"][:10], first.get(key, "9999"))
    keys = sorted(first)
    who = sorted({key[:2] for key in keys})
    regions = sorted({region for region, _ in who})
    numbers = {name: number for number, name in enumerate(who)}
    items = {item: number for number, item in enumerate(sorted({key[2] for key in keys}))}
    return Shop(
        np.array([numbers[key[:2]] for key in keys]),
        np.array([items[key[2]] for key in keys]),
        np.array([datetime.date.fromisoformat(first[key]).toordinal() for key in keys]),
        np.array([regions.index(region) for region, _ in who]),
        tuple(regions),
        len(items),
    )


def window(shop: Shop, start: int, days: int) -> Window:
    """Return the customers who are asked on day `start` for what they take in so many days."""
    history = shop.before(start)
    taken = (shop.day >= start) & (shop.day < start + days)
    ones = np.ones(np.count_nonzero(taken), np.float32)
    wanted = sparse.csr_array((ones, (shop.customer[taken], shop.item[taken])), (len(shop.region), shop.items))
    has = history.aged()
    asked = np.flatnonzero((np.diff(has.indptr) >= MIN_HISTORY) & (np.diff(wanted.indptr) > 0))
    return Window(history, asked, has[asked], wanted[asked])


Model = Callable[[Window], Floats]  # scores (asked, items)


def popularity(history: History, half_life: float = FOREVER, own: float = 0.0) -> Model:
    """First purchases per customer, aged; the region's own count `own` times as much as all regions'."""
    shop = history.shop
    table = np.zeros((len(shop.regions), shop.items))
    weights = np.exp2((history.day - history.as_of) / half_life)
    np.add.at(table, (shop.region[history.customer], history.item), weights)
    customers = np.bincount(shop.region[np.unique(history.customer)], minlength=len(shop.regions))[:, None]
    table = (table.sum(axis=0) / customers.sum() + own * table / np.maximum(customers, 1)).astype(np.float32)
    return lambda asked: table[shop.region[asked.asked]]


def _gram(history: History, half_life: float) -> Floats:
    aged = history.aged(half_life)
    return np.asarray((aged.T @ aged).toarray(), np.float32)


def knn(history: History, counts: float, asked_with: float, neighbours: int = 100, norm: float = 0.5) -> Model:
    """Item cosine of aged counts; the columns' norms to the power of 2 `norm`."""
    similar = _gram(history, counts)
    length = np.maximum(np.diag(similar), 1e-9) ** np.float32(norm)
    similar /= length[:, None] * length
    np.fill_diagonal(similar, 0)
    similar[similar < np.partition(similar, -neighbours, axis=0)[-neighbours]] = 0
    weights = sparse.csr_array(similar)
    return lambda asked: np.asarray((asked.history.aged(asked_with)[asked.asked] @ weights).toarray())


def ease(history: History, counts: float, asked_with: tuple[float, ...], ridge: float = 300.0) -> list[Model]:
    """EASE (Steck 2019) of aged counts, a model for each half-life of the histories that it is asked with."""
    gram = _gram(history, counts)
    gram[np.diag_indices_from(gram)] += ridge
    factor, _ = linalg.lapack.spotrf(gram, lower=1, overwrite_a=1)
    inverse, _ = linalg.lapack.spotri(factor, lower=1, overwrite_c=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    return [lambda asked, h=h: asked.history.aged(h)[asked.asked] @ weights for h in asked_with]  # type: ignore[misc]


def ials(history: History, counts: float, asked_with: float, width: int = 64, rest: float = 0.3) -> Model:
    """IALS (Rendle et al. 2021): `rest` is what every pair counts; six sweeps."""
    aged = history.aged(counts)
    turned = sparse.csr_array(aged.T.tocsr())
    random = np.random.Generator(np.random.PCG64(0))
    columns = (random.standard_normal((aged.shape[1], width)) * 0.1 / np.sqrt(width)).astype(np.float32)

    def half(counted: sparse.csr_array, fixed: Floats) -> Floats:
        gram, eye = rest * (fixed.T @ fixed), np.eye(width, dtype=np.float32)
        found = np.zeros((counted.shape[0], width), np.float32)
        for row, (start, end) in enumerate(zip(counted.indptr[:-1], counted.indptr[1:], strict=True)):
            if start < end:
                known, weights = fixed[counted.indices[start:end]], counted.data[start:end]
                weighted = known * weights[:, None]
                ridge = 0.003 * (weights.sum() + rest * len(fixed))
                found[row] = linalg.lapack.sposv(gram + weighted.T @ known + ridge * eye, weighted.sum(axis=0))[1]
        return found

    for _ in range(6):
        columns = half(turned, half(aged, columns))
    return lambda asked: half(asked.history.aged(asked_with)[asked.asked], columns) @ columns.T


def standard(scores: Floats) -> Floats:
    """Return each customer's scores with mean 0 and standard deviation 1."""
    return np.asarray((scores - scores.mean(axis=1, keepdims=True)) / (scores.std(axis=1, keepdims=True) + 1e-9))
