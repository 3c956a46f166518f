"""A blend: the sum of its members' scores, each customer's scores standardized, times weights that hold everywhere.

Standardized is (score - mean) / deviation over all items, those that the customer has included. The weights are found
on a window by coordinate ascent on few values, which is all that a window of some thousand customers can tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnlib.data.blockwise import choose_block_size
from nnlib.data.events import Events, Window
from nnlib.errors import NnlibError
from nnlib.evaluation.metrics import hits_of, values_at
from nnlib.families.family import Arrays, Fitted
from nnlib.ops.ranking import top
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import Each, map_in_turn

K = 20  # of the NDCG that weights are found by, where nothing else is said
GRID = (0.0, 0.25, 0.5, 1.0, 1.5)
SWEEPS = 2
BETTER = 1e-5  # by which a metric must rise for weights to change
FOLDS = 5  # parts of the customers, each judged by weights that were found on the others
LEAST_OF_FOLD = 4  # customers; with fewer in all, parts would say nothing
MOST_BYTES = 1 << 29  # of standardized scores that are kept while weights are tried


@dataclass(frozen=True, slots=True, eq=False)
class Blend:
    """Fitted members and their weights."""

    members: tuple[Fitted, ...]
    weights: tuple[float, ...]

    def scores(self, asked: Events, rows: Longs) -> Floats:
        """Return float32 (len(rows), items)."""
        total = np.zeros((len(rows), asked.bought.width), np.float32)
        for member, weight in zip(self.members, self.weights, strict=True):
            if weight:
                total += np.float32(weight) * standardize(member.scores(asked, rows))
        return total

    def arrays(self) -> Arrays:
        """Return the members' arrays, their names begun with `member<n>_`."""
        named = ((f"member{n}_", member.arrays()) for n, member in enumerate(self.members))
        return {begin + name: values for begin, arrays in named for name, values in arrays.items()}


def standardize(scores: Floats) -> Floats:
    """Return (score - mean) / deviation of each row, in the memory of `scores`; zeros where all are the same."""
    scores -= scores.mean(axis=1, dtype=np.float64, keepdims=True).astype(np.float32)
    scores /= np.sqrt(np.square(scores).mean(axis=1, dtype=np.float64, keepdims=True)).astype(np.float32) + 1e-9
    return scores


@dataclass(frozen=True, slots=True, eq=False)
class CrossFitted:
    """Members with weights of each customer's own, to be asked about the customers of one window alone."""

    members: tuple[Fitted, ...]
    weights: Floats  # (customers of the window, members)

    def scores(self, asked: Events, rows: Longs) -> Floats:
        """Return float32 (len(rows), items)."""
        total = np.zeros((len(rows), asked.bought.width), np.float32)
        for member, weights in zip(self.members, self.weights[rows].T, strict=True):
            if weights.any():
                total += weights.astype(np.float32)[:, None] * standardize(member.scores(asked, rows))
        return total

    def arrays(self) -> Arrays:
        """Raise NotImplementedError: it serves nobody."""
        raise NotImplementedError("weights of a window's customers are no model")


def find_weights(
    members: Sequence[Fitted],
    window: Window,
    k: int = K,
    seed: int = 1,
    each: Each = map_in_turn,
    most_bytes: int = MOST_BYTES,
) -> tuple[float, ...]:
    """Return the weights of the blend with the best NDCG@k in the mean over a window's customers.

    Coordinate ascent over GRID, SWEEPS times, from the best member alone; the same whatever the number of threads.
    Where the members' scores of all customers take more than `most_bytes`, customers are drawn by `seed`.
    Raises NnlibError when no customer has a target.
    """
    return _Standardized(members, window, _draw_customers(members, window, seed, most_bytes), k, each).ascend()


def cross_fit_weights(
    members: Sequence[Fitted],
    window: Window,
    k: int = K,
    seed: int = 1,
    each: Each = map_in_turn,
    most_bytes: int = MOST_BYTES,
) -> tuple[tuple[float, ...], CrossFitted]:
    """Return the same weights, and what says how good they are: each customer by weights that were found on others.

    Measured on the customers on whom they were found, weights look better than they are; so those are dealt into
    FOLDS parts by `seed`, and a part is asked by the weights of the others. All as `find_weights` has it.
    """
    customers = _draw_customers(members, window, seed, most_bytes)
    kept = _Standardized(members, window, customers, k, each)
    found = kept.ascend()
    weights = np.tile(np.array(found, np.float32), (window.asked.customers, 1))
    fold = np.random.default_rng(seed).permutation(len(customers)) % FOLDS
    for number in range(FOLDS if len(customers) >= FOLDS * LEAST_OF_FOLD else 0):
        weights[customers[fold == number]] = kept.ascend(fold != number)
    return found, CrossFitted(tuple(members), weights)


def _draw_customers(members: Sequence[Fitted], window: Window, seed: int, most_bytes: int) -> Longs:
    """Return the customers with targets, or as many of them, in order, as `most_bytes` has room for."""
    some = np.flatnonzero(np.diff(window.wanted.indptr))
    if not len(some):
        raise NnlibError("no customer of the window has a target, so no weights can be found; take a longer window")
    room = max(1, most_bytes // (4 * len(members) * window.asked.bought.width))
    if len(some) > room:
        some = np.sort(np.random.default_rng(seed).choice(some, room, replace=False))
    return some


class _Standardized:
    """The members' standardized scores of some customers, a block after the other, to try weights on."""

    def __init__(self, members: Sequence[Fitted], window: Window, customers: Longs, k: int, each: Each) -> None:
        size = choose_block_size(window.asked.bought.width)
        self.blocks = [customers[low : low + size] for low in range(0, len(customers), size)]
        self.window, self.k, self.each, self.members = window, k, each, len(members)
        self.measured: dict[tuple[float, ...], Floats] = {}

        def block(n: int) -> list[Floats]:
            return [standardize(member.scores(window.asked, self.blocks[n])) for member in members]

        self.scores = list(each(block, range(len(self.blocks))))

    def ascend(self, some: NDArray[np.bool_] | slice = slice(None)) -> tuple[float, ...]:
        """Return the best weights for `some` of the customers."""
        alone = [float(self.measure(weights)[some].mean()) for weights in np.eye(self.members)]
        weights = np.eye(self.members)[int(np.argmax(alone))]
        best = max(alone)
        for _ in range(SWEEPS):
            before = weights.copy()
            for n in range(self.members):
                for value in GRID:
                    tried = weights.copy()
                    tried[n] = value
                    if value == weights[n] or not tried.any():
                        continue
                    found = float(self.measure(tried)[some].mean())
                    if found > best + BETTER:
                        best, weights = found, tried
            if np.array_equal(weights, before):
                break
        return tuple(map(float, weights))

    def measure(self, weights: Floats) -> Floats:
        """Return the NDCG@k (customers,) by a blend."""

        def block(n: int) -> Floats:
            rows = self.blocks[n]
            total = np.zeros_like(self.scores[n][0])
            for scores, weight in zip(self.scores[n], weights, strict=True):
                if weight:
                    total += np.float32(weight) * scores
            wanted = self.window.wanted.take(rows)
            hits = hits_of(top(total, self.k, self.window.asked.unranked(rows))[0], wanted)
            return dict(values_at(hits, np.diff(wanted.indptr), [self.k]))[f"ndcg@{self.k}"]

        key = tuple(map(float, weights))
        if key not in self.measured:  # parts of the customers have most of their steps in common
            self.measured[key] = np.concatenate(list(self.each(block, range(len(self.blocks)))))
        return self.measured[key]
