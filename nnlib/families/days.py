"""Day ridge: what a customer takes first from a day on, told by what he had before it and by the time of the year.

One row for each customer and each of his last MOST_DAYS days but his very first. With x what he had before that day,
each item 2 ** (-age / ask_half_life), then 1 and the sines and cosines of the day in the year; y what he took on that
day and later, 2 ** (-delay / ahead_half_life); and w = 2 ** (-age / fit_half_life) of the day itself, the weights are
B = (X^T W X + D)^-1 X^T W Y, a ridge regression with D = l2 for items and SEASON_L2 for the rest. Scores are x B of
the day that is asked about.

EASE gives a history back and so knows what goes together; here what comes next is learned from what was there before,
as is asked. With days of some months alone the season serves as each item's trend. It needs the days of purchases.
Where buying again counts, y has also what he had before and takes once more; of an item's purchases its first and last
days are known, and make rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import sparse
from scipy.linalg import lapack

from nnlib.data.events import Events
from nnlib.data.rows import Ints, entries_of, offsets_of
from nnlib.errors import DivergedError, NnlibError
from nnlib.families.common.products import add_product, times
from nnlib.families.family import Arrays, Size, Value
from nnlib.families.packing import WIDTH, take, take_width
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import workers

DEFAULTS: Mapping[str, Value] = {
    "l2": 1000.0,
    "fit_half_life": 60.0,  # days, of the rows that the weights are fitted on
    "ask_half_life": 10_000.0,  # days, of what a customer had, in the rows as in what is asked with
    "ahead_half_life": 20.0,  # days, of what he took later than on the row's day
}
YEAR = 365.25  # days
HARMONICS = 3  # the season is a sum of waves of a year, its half and its third
SEASON = 1 + 2 * HARMONICS
SEASON_L2 = 20.0
MOST_DAYS = 30  # of a customer: what he does every day would count for too much, and take long
LEAST_TARGET = 0.05  # what is taken so much later that it would count less is left out
ENTRIES = 1 << 21  # of histories that are computed with together, at most, but for a single row


@dataclass(frozen=True, slots=True, eq=False)
class Days:
    """Fitted weights."""

    weights: Floats  # B (items + SEASON, items), float32
    hyperparameters: Mapping[str, Value]

    def scores(self, asked: Events, rows: Longs) -> Floats:
        """Return float32 (len(rows), items): x B on the day `as_of`."""
        width = self.weights.shape[1]
        history = asked.take(rows).aged(float(self.hyperparameters["ask_half_life"]))
        season = season_of(np.array([asked.as_of]))[0]
        out = times(history, self.weights[:width])
        out += (season[:, None] * self.weights[width:]).sum(axis=0)
        return out

    def arrays(self) -> Arrays:
        """Return the weights."""
        return {"weights": self.weights, WIDTH: np.array([self.weights.shape[1]], np.int64)}


def fit(history: Events, hyperparameters: Mapping[str, Value], seed: int) -> Days:  # noqa: ARG001
    """Return the model of `history`; nothing is drawn. NnlibError without days, DivergedError where l2 is too small."""
    width = history.bought.width
    square = np.zeros((width + SEASON, width + SEASON), np.float32)  # X^T W X + D
    targets = np.zeros((width, width + SEASON), np.float32)  # Y^T W X
    for x, y in _rows(history, hyperparameters):
        add_product(square, x, x)
        add_product(targets, y, x)
    ridge = np.full(len(square), SEASON_L2, np.float32)
    ridge[:width] = hyperparameters["l2"]
    square[np.diag_indices(len(square))] += ridge
    return Days(_solve(square, targets), hyperparameters)


def restore(arrays: Arrays, hyperparameters: Mapping[str, Value], regions: tuple[str, ...]) -> Days:  # noqa: ARG001
    """Return the model that `arrays` was taken from; KeyError or ValueError when they are wrong."""
    width = take_width(arrays)
    return Days(take(arrays, "weights", np.float32, width + SEASON, width), hyperparameters)


def bytes_needed(size: Size, hyperparameters: Mapping[str, Value]) -> int:  # noqa: ARG001
    """Return how much memory `fit` takes at most: two matrices of items by items, and a block of rows."""
    return 8 * (size.items + SEASON) ** 2 + 160 * (size.entries + min(ENTRIES, MOST_DAYS * size.entries)) + (1 << 20)


def season_of(days: Ints | Longs) -> Floats:
    """Return float32 (len(days), SEASON): 1, and sines and cosines of days since 1970-01-01."""
    angles = 2 * np.pi / YEAR * np.outer(days, np.arange(1, HARMONICS + 1))
    return np.hstack([np.ones((len(days), 1)), np.sin(angles), np.cos(angles)]).astype(np.float32)


def list_days(history: Events) -> tuple[Longs, Ints]:
    """Return each row's customer and day, in order: the last MOST_DAYS days on which he took something, not the first.

    Of what he took several times these are the first and the last. Raises NnlibError when the history has no days.
    """
    if history.days is None:
        raise NnlibError(
            "days: these data have no times, so nothing comes before anything; import purchases with dates"
        )
    customer, day = np.repeat(np.arange(history.customers), np.diff(history.bought.indptr)), history.days
    if history.last is not None:
        customer, day = np.tile(customer, 2), np.concatenate([day, history.last])
    order = np.lexsort((day, customer))
    customer, day = customer[order], day[order]
    new = (np.diff(customer, prepend=-1) > 0) | (np.diff(day, prepend=0) != 0)
    customer, day = customer[new], day[new]
    left = offsets_of(np.bincount(customer, minlength=history.customers))[1:][customer] - np.arange(len(customer))
    some = (np.diff(customer, prepend=-1) == 0) & (left <= MOST_DAYS)
    return customer[some], day[some]


def _rows(history: Events, hyperparameters: Mapping[str, Value]) -> Iterator[tuple[sparse.csr_array, sparse.csr_array]]:
    """Yield blocks of X (b, items + SEASON) and Y (b, items), both times the root of W."""
    customer, day = list_days(history)
    number = np.cumsum(np.diff(history.bought.indptr)[customer]) // ENTRIES
    edges = [*np.flatnonzero(np.diff(number, prepend=-1)), len(customer)]
    for low, high in pairwise(edges):
        yield _block(history, customer[low:high], day[low:high], hyperparameters)


def _block(
    history: Events, customer: Longs, day: Ints, hyperparameters: Mapping[str, Value]
) -> tuple[sparse.csr_array, sparse.csr_array]:
    assert history.days is not None, "or there would be no rows"
    fit, ask, ahead = (np.float32(hyperparameters[f"{name}_half_life"]) for name in ("fit", "ask", "ahead"))
    indptr, entries = entries_of(history.bought.indptr, customer)
    items, lengths = history.bought.indices[entries], np.diff(indptr)
    today, first = np.repeat(day, lengths), history.days[entries]
    last = first if history.last is None else history.last[entries]
    age = (today - np.where(last < today, last, first)).astype(np.float32)  # of the latest purchase before the day
    wait = (np.where(first < today, last, first) - today).astype(np.float32)  # for the next one, from the day on
    later = np.exp2(-np.maximum(wait, 0) / ahead)
    root = np.exp2(np.maximum(history.as_of - day, 0) / (-2 * fit)).astype(np.float32)
    roots = np.repeat(root, lengths)
    had, taken = (
        sparse.csr_array(
            ((values * roots)[some], items[some], offsets_of(some)[indptr]), (len(day), history.bought.width)
        )
        for values, some in (
            (np.exp2(-np.maximum(age, 0) / ask), first < today),
            (later, (wait >= 0) & (later > LEAST_TARGET)),
        )
    )
    season = sparse.csr_array(season_of(day) * root[:, None])
    return sparse.hstack([had, season], format="csr"), taken


def _solve(square: Floats, targets: Floats) -> Floats:
    """Return square^-1 targets^T, row-contiguous, in the memory of `square`; `targets` is lost."""
    # LAPACK counts columns first: the transposed views are the same memory.
    with workers(1):
        factor, failed = lapack.spotrf(square.T, lower=1, clean=0, overwrite_a=1)
        if failed:
            raise DivergedError("days: the rows cannot be fitted with so small an l2; raise l2")
        found, _ = lapack.spotrs(factor, targets.T, lower=1, overwrite_b=1)
    weights = square.reshape(-1)[: found.size].reshape(found.shape)  # there is no memory for a third matrix
    weights[...] = found
    return weights
