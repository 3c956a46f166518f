"""ELSA: a linear autoencoder of low rank, for more items than EASE can take (Vancura et al. 2022).

Weights B = A A^T - 1 with rows of A of length one: "Scalable linear shallow autoencoder for collaborative filtering".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from nnlib.data.events import Events
from nnlib.families.family import Arrays, Size, Value
from nnlib.families.packing import take
from nnlib.optim.rules import Pace, adam
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import workers

DEFAULTS: Mapping[str, Value] = {
    "dims": 128,
    "epochs": 10,
    "learning_rate": 0.05,  # at the start; it falls to 0 along a cosine
    "batch": 256,  # customers
    "fit_half_life": 40.0,  # days, of the counts that are learned
    "ask_half_life": 80.0,  # days, of the history that is asked with
}
MOMENTUM, BETA2 = 0.9, 0.999
PIECE = 1 << 16  # numbers that are updated while they lie in the cache
TINY = 1e-12
AT_LEAST = 2  # items: from one alone nothing can be learned


@dataclass(frozen=True, slots=True, eq=False)
class Elsa:
    """Fitted directions of the items."""

    items: Floats  # A (items, dims), float32, rows of length one
    hyperparameters: Mapping[str, Value]

    def scores(self, asked: Events, rows: Longs) -> Floats:
        """Return float32 (len(rows), items): x A A^T - x."""
        history = asked.take(rows).aged_from_last(float(self.hyperparameters["ask_half_life"]))
        with workers(1):
            found = (history @ self.items) @ self.items.T
        found[np.repeat(np.arange(len(rows)), np.diff(history.indptr)), history.indices] -= history.data
        return np.asarray(found)

    def arrays(self) -> Arrays:
        """Return the directions."""
        return {"items": self.items}


def fit(history: Events, hyperparameters: Mapping[str, Value], seed: int) -> Elsa:
    """Return directions learned by Adam from batches of customers with two items or more."""
    counts = history.aged(float(hyperparameters["fit_half_life"]))
    there = np.diff(counts.indptr) >= AT_LEAST
    there &= (counts * counts).sum(axis=1) > TINY  # what is many half-lives old has no direction left
    counts = counts[np.flatnonzero(there)]
    random = np.random.default_rng(seed)
    weights = random.standard_normal((counts.shape[1], int(hyperparameters["dims"])), np.float32)
    state, scratch = (np.zeros_like(weights), np.zeros_like(weights)), np.empty(PIECE, np.float32)
    batch, epochs = int(hyperparameters["batch"]), int(hyperparameters["epochs"])
    starts, step = range(0, counts.shape[0], batch), 0
    with workers(1):
        for _ in range(epochs):
            order = random.permutation(counts.shape[0])
            for low in starts:
                share = step / (epochs * len(starts))
                rate = float(hyperparameters["learning_rate"]) * 0.5 * (1 + np.cos(np.pi * share))
                step += 1
                _, slope = loss_and_gradient(counts[order[low : low + batch]], weights)
                _update(weights, slope, state, Pace(step, rate, MOMENTUM, BETA2), scratch)
    return Elsa(_directions(weights)[0], hyperparameters)


def restore(arrays: Arrays, hyperparameters: Mapping[str, Value], regions: tuple[str, ...]) -> Elsa:  # noqa: ARG001
    """Return the model that `arrays` was taken from; KeyError or ValueError when they are wrong."""
    return Elsa(take(arrays, "items", np.float32, None, int(hyperparameters["dims"])), hyperparameters)


def bytes_needed(size: Size, hyperparameters: Mapping[str, Value]) -> int:
    """Return how much memory `fit` takes at most beside its data."""
    dims = int(hyperparameters["dims"])
    weights = 4 * dims * size.items
    return 20 * size.entries + 8 * weights + 20 * dims * int(hyperparameters["batch"]) + 8 * dims * dims


def loss_and_gradient(x: sparse.csr_array, weights: Floats) -> tuple[float, Floats]:
    """Return the mean over customers of w |y/|y| - x/|x||^2 with y = x A A^T - x, and its gradient by `weights` W.

    A are the rows of W divided by their lengths; w is |x|^2 by item, 1 without ages: lengths of one would let who came
    last year count as much as who came last week. With h = x A, G = A^T A and c = cosine(x, y), p = 2 w c / |y|^2 and
    q = 2 w / (|x| |y|) the gradient by A is A (h^T p h) + x^T (p h G - 2 (p + q) h); |y|^2 = h G h - 2 h h + x x and
    x y = h h - x x. So y, a number for each customer and item, is never made.
    """
    a, lengths = _directions(weights)
    h = x @ a
    seen = h @ (a.T @ a)
    hh, hgh = np.einsum("bd,bd->b", h, h, dtype=np.float64), np.einsum("bd,bd->b", h, seen, dtype=np.float64)
    xx = np.add.reduceat(x.data.astype(np.float64) ** 2, x.indptr[:-1])
    yy = np.maximum(hgh - 2 * hh + xx, TINY)
    cosine = (hh - xx) / np.sqrt(xx * yy)
    weight = xx / np.diff(x.indptr)
    p, q = 2 * weight / len(xx) * cosine / yy, 2 * weight / len(xx) / np.sqrt(xx * yy)
    p, both = p.astype(h.dtype)[:, None], (p + q).astype(h.dtype)[:, None]
    slope = a @ (h.T @ (p * h)) + x.T @ (p * seen - 2 * both * h)
    slope -= a * np.einsum("id,id->i", slope, a)[:, None]  # along a direction its length is divided out
    slope /= lengths
    return float(np.mean(weight * (2 - 2 * cosine))), slope


def _directions(weights: Floats) -> tuple[Floats, Floats]:
    """Return rows of length one, and the lengths (items, 1) that they had."""
    lengths = np.sqrt(np.einsum("id,id->i", weights, weights))[:, None] + weights.dtype.type(TINY)
    return weights / lengths, lengths


def _update(weights: Floats, slope: Floats, state: tuple[Floats, Floats], pace: Pace, scratch: Floats) -> None:
    """Do a step of Adam in place, in pieces that fit the cache."""
    flat, gradient, (mean, square) = weights.reshape(-1), slope.reshape(-1), (part.reshape(-1) for part in state)
    for low in range(0, flat.size, PIECE):
        part = slice(low, min(low + PIECE, flat.size))
        adam(flat[part], gradient[part], (mean[part], square[part]), pace, scratch[: part.stop - part.start])
