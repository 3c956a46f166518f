"""Histories and windows that are made up."""

import numpy as np

from nnlib.data.events import Events, Window
from nnlib.data.rows import Csr, Dense, from_rows, offsets_of

REGIONS = ("North", "South")
INPUTS = 40


def events(taken, region=None, days=None, items=None, as_of=100, regions=REGIONS):
    """Events of lists of items, one a customer, and of lists of days beside them."""
    width = items or 1 + max(max(row, default=0) for row in taken)
    flat = None if days is None else np.array([day for row in days for day in row], np.int32)
    numbers = np.array(region if region is not None else [0] * len(taken), np.int32)
    return Events(from_rows(taken, width), tuple(f"i{n}" for n in range(width)), numbers, regions, flat, as_of)


def drawn(customers=60, items=24, seed=0, density=0.25, regions=REGIONS):
    """Events at random, with popular and rare items, and with dense inputs; customer 3 has no item."""
    random = np.random.default_rng(seed)
    likely = density * 2 * random.random(items)
    there = random.random((customers, items)) < likely
    there[3] = False
    days = random.integers(0, 100, there.sum()).astype(np.int32)
    rows = Csr(offsets_of(there.sum(axis=1)), np.nonzero(there)[1].astype(np.int32), items)
    region = random.integers(0, len(regions), customers).astype(np.int32)
    inputs = Dense(random.random((customers, INPUTS), np.float32))
    return Events(rows, tuple(f"i{n}" for n in range(items)), region, regions, days, 100, inputs=inputs)


def window(asked, seed=1, density=0.1):
    """A window of customers who take some of what they lack at random; the last one takes nothing."""
    wanted = np.random.default_rng(seed).random((asked.customers, asked.bought.width)) < density
    wanted[dense(asked) > 0] = False
    wanted[-1] = False
    rows = Csr(offsets_of(wanted.sum(axis=1)), np.nonzero(wanted)[1].astype(np.int32), asked.bought.width)
    return Window(asked, rows)


def dense(asked, half_life=1e9):
    """Customers x items in double precision."""
    return asked.aged(half_life).toarray().astype(np.float64)


def from_last(asked, half_life):
    """The same, what each customer took last counting 1."""
    found = dense(asked, half_life)
    latest = found.max(axis=1, keepdims=True)
    return found / np.where(latest > 0, latest, 1)


def everybody(asked):
    return np.arange(asked.customers)
