"""Ranking metrics, averaged over the examples that have at least one target, and plain popularity to compare with.

Where inputs and targets are the same units, the items of an example's own input are not ranked; equal scores are
ranked by item number. With h_i = 1 when the item at rank i is a target, and c targets: P@k = sum(h_i) / k,
recall@k = sum(h_i) / c,
NDCG@k = sum(h_i / log2(i + 1)) / sum(1 / log2(i + 1) for i up to min(c, k)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib import network as net
from nnlib.data import Csr
from nnlib.errors import DivergedError
from nnlib.network import Network
from nnlib.threads import Each, one_by_one

Scorer = Callable[[Csr], NDArray[Any]]  # inputs (b, in) -> scores (b, items), memory that may be overwritten

BATCH = 256  # examples scored at a time, so that examples x items never exists
USUAL_KS = (5, 10, 20, 100)


def measure(
    score: Scorer,
    inputs: Csr,
    targets: Csr,
    ks: Iterable[int] = USUAL_KS,
    each: Each = one_by_one,
    same_units: bool = True,
) -> dict[str, float]:
    """Return p@k, recall@k and ndcg@k for every k; targets must hold no unit twice. Empty without any target.

    `same_units` says that a unit of the inputs is the same item as the unit of that number of the targets.
    """
    ks = sorted(set(ks))
    examples = np.flatnonzero(np.diff(targets.indptr))

    def batch(low: int) -> dict[str, float]:
        rows = examples[low : low + BATCH]
        seen, wanted = inputs.take(rows), targets.take(rows)
        hits = ranked_hits(score(seen), seen if same_units else None, wanted, ks[-1])
        return dict(_sums(hits, np.diff(wanted.indptr), ks))

    sums: dict[str, float] = {}
    for part in each(batch, range(0, len(examples), BATCH)):
        for name, value in part.items():
            sums[name] = sums.get(name, 0.0) + value
    return {name: value / len(examples) for name, value in sums.items()}


def of_network(network: Network) -> Scorer:
    """Return the scorer of a network; it raises DivergedError when a score is not finite."""
    dtype = network.edges[0].store.dtype

    def score(inputs: Csr) -> NDArray[Any]:
        with np.errstate(all="ignore"):
            scores = net.logits(network, net.matrix(inputs, 1, dtype))
        if not np.isfinite(scores).all():
            raise DivergedError("an output is not a finite number; lower learning_rate")
        return scores

    return score


def of_popularity(targets: Csr) -> Scorer:
    """Return the scorer that gives every example the same order: how often an item is in `targets`."""
    counts = np.bincount(targets.indices, minlength=targets.width).astype(np.float32)
    return lambda inputs: np.tile(counts, (inputs.examples, 1))


def mean_loss(network: Network, inputs: Csr, targets: Csr, each: Each = one_by_one) -> float:
    """Return the error function averaged over the examples, without dropout and denoising."""
    dtype, total = network.edges[0].store.dtype, 0.0
    for low in range(0, inputs.examples, BATCH):
        rows = np.arange(low, min(low + BATCH, inputs.examples))
        x, t = (net.matrix(part.take(rows), 1, dtype) for part in (inputs, targets))
        with np.errstate(all="ignore"):
            total += net.loss(network, net.batch_of(x, t), each)
    if not np.isfinite(total):
        raise DivergedError(f"the validation loss is {total}; lower learning_rate")
    return total / inputs.examples


def ranked_hits(scores: NDArray[Any], seen: Csr | None, wanted: Csr, k: int) -> NDArray[np.bool_]:
    """Return (b, min(k, items)): whether the item at each rank is wanted; those `seen` have no rank.

    Overwrites `scores` (b, items).
    """
    examples, items = scores.shape
    if seen is not None:
        scores[np.repeat(np.arange(examples), np.diff(seen.indptr)), seen.indices] = -np.inf
    ranked, legal = top(scores, k)
    keys = np.arange(examples)[:, None] * items + ranked
    targets = np.repeat(np.arange(examples), np.diff(wanted.indptr)) * items + wanted.indices
    place = np.minimum(np.searchsorted(targets, keys), len(targets) - 1)
    hits: NDArray[np.bool_] = (targets[place] == keys) & legal
    return hits


def top(scores: NDArray[Any], k: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the k best items of each row, best first, equal scores by item, and whether the score is > -inf.

    One 64-bit key per item (score above, reversed item number below) makes the order total, so that a plain
    partition is deterministic.
    """
    items = scores.shape[1]
    bits = (scores.astype(np.float32) + np.float32(0)).view(np.int32)  # + 0 turns -0 into 0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # integers in the order of the floats
    keys = (ordered.astype(np.int64) << 32) | np.arange(items - 1, -1, -1)
    k = min(k, items)
    best = np.sort(np.partition(keys, items - k, axis=1)[:, items - k :], axis=1)[:, ::-1]
    ranked = items - 1 - (best & 0xFFFFFFFF)
    return ranked, np.take_along_axis(scores, ranked, axis=1) > -np.inf


def _sums(hits: NDArray[np.bool_], counts: NDArray[np.int64], ks: Sequence[int]) -> Iterable[tuple[str, float]]:
    gains = 1 / np.log2(np.arange(2, ks[-1] + 2))
    ideal = np.cumsum(gains)
    for k in ks:
        found = hits[:, :k].sum(axis=1)
        gained = hits[:, :k] @ gains[: hits[:, :k].shape[1]]
        yield f"p@{k}", float((found / k).sum())
        yield f"recall@{k}", float((found / counts).sum())
        yield f"ndcg@{k}", float((gained / ideal[np.minimum(counts, k) - 1]).sum())
