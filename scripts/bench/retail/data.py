"""The retail example's purchases under the next-items protocol, and what P@10 of a table of scores is."""

from __future__ import annotations

import csv
import datetime
import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from scripts.bench.common.processes import REPOSITORY

TABLE = REPOSITORY / "workflows/examples/retail/purchases.csv.gz"
MIN_ITEMS = 10
K = 10


@dataclass(frozen=True)
class Customer:
    """One customer's distinct items, oldest first (ties by item code), and the day each was first bought."""

    region: str
    items: NDArray[np.int64]
    days: NDArray[np.int64]


@dataclass(frozen=True)
class Shop:
    """All customers with enough items; `items` counts the catalogue."""

    customers: tuple[Customer, ...]
    items: int

    @property
    def regions(self) -> NDArray[np.str_]:
        """The region of every customer."""
        return np.array([customer.region for customer in self.customers])

    def histories(self, part: str) -> NDArray[np.int64]:
        """Return how many items each customer's history has, before those that `part` (valid, test) asks for."""
        history = np.array([len(customer.items) * 8 // 10 for customer in self.customers])
        return history if part == "test" else history - history // 10

    def wanted(self, part: str) -> NDArray[np.int64]:
        """Return where the items end that `part` asks for."""
        return np.array([len(c.items) for c in self.customers]) if part == "test" else self.histories("test")

    def matrix(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> sp.csr_array:
        """Return ones (customers, items) at each customer's items from `low` up to `high`."""
        pieces = [customer.items[a:b] for customer, a, b in zip(self.customers, low, high, strict=True)]
        starts = np.concatenate(([0], np.cumsum([len(piece) for piece in pieces])))
        columns = np.concatenate(pieces)
        return sp.csr_array((np.ones(len(columns), np.float32), columns, starts), (len(pieces), self.items))

    def history(self, part: str) -> sp.csr_array:
        """Return what each customer has bought before the items that `part` asks for."""
        return self.matrix(np.zeros(len(self.customers), np.int64), self.histories(part))


def read_shop() -> Shop:
    """Read the example's table."""
    first: dict[tuple[str, str], dict[str, int]] = {}
    with gzip.open(TABLE, "rt", encoding="utf-8", newline="") as file:
        for region, customer, item, date in _rows(file):
            day = datetime.date.fromisoformat(date[:10]).toordinal()
            days = first.setdefault((region, customer), {})
            days[item] = min(day, days.get(item, day))
    kept = {key: days for key, days in sorted(first.items()) if len(days) >= MIN_ITEMS}
    number = {item: n for n, item in enumerate(sorted({item for days in kept.values() for item in days}))}
    customers = []
    for (region, _), days in kept.items():
        items = sorted(days, key=lambda item: (days[item], item))
        customers.append(
            Customer(region, np.array([number[item] for item in items]), np.array([days[item] for item in items]))
        )
    return Shop(tuple(customers), len(number))


def _rows(file: Iterator[str]) -> Iterator[tuple[str, str, str, str]]:
    for row in csv.DictReader(file):
        yield row["region"], row["customer"], row["item"], row["date"]


Inputs = dict[str, Any]  # data set -> sparse or dense matrix, a row an example
Scores = Callable[[NDArray[np.int64]], NDArray[np.float32]]  # numbers of customers -> scores (b, items)


def precision(shop: Shop, part: str, scores: Scores, customers: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """Return P@10 of all customers or of some, 0 where `part` asks nothing; items of the history are not ranked."""
    history, wanted = shop.history(part), shop.matrix(shop.histories(part), shop.wanted(part))
    customers = np.arange(len(shop.customers)) if customers is None else customers
    found = []
    for low in range(0, len(customers), 512):
        rows = customers[low : low + 512]
        table = np.array(scores(rows), dtype=np.float32)
        table[history[rows].toarray() > 0] = -np.inf
        best = np.argsort(-table, axis=1, kind="stable")[:, :K]
        found.append(np.take_along_axis(wanted[rows].toarray(), best, axis=1).sum(axis=1) / K)
    return np.concatenate(found)


def asked(shop: Shop, part: str) -> NDArray[np.bool_]:
    """Return which customers `part` asks something of."""
    return shop.wanted(part) > shop.histories(part)
