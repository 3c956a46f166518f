"""Ranking metrics, averaged over the examples that have at least one target, and plain popularity to compare with.

Where inputs and targets are the same units, the items of an example's own input are not ranked, unless they are its
targets (see `owned`); equal scores are ranked by item number. With h_i = 1 when the item at rank i is a target, and c
targets: P@k = sum(h_i) / k, recall@k = sum(h_i) / c, NDCG@k = sum(h_i / log2(i + 1)) / sum(1 / log2(i + 1) for i up
to min(c, k)), MAP@k = mean over the examples of sum(h_i P@i) / min(c, k), MRR@k = 1 / rank of the first target in the
first k, else 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnlib.data.blockwise import Lookup, Watch, choose_block_size, collect, run_in_order
from nnlib.data.rows import Csr
from nnlib.data.sets import DataSet
from nnlib.errors import DataError
from nnlib.model.batches import unique_targets
from nnlib.model.examples import Examples
from nnlib.ops.ranking import top
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import Each, map_in_turn

Scorer = Callable[[Examples], Floats]  # examples in memory -> scores (b, items), memory that may be overwritten
Ranker = Callable[[Examples, int, Csr | None], NDArray[np.int64]]  # also k and what is owned -> items as `ranking.top`

USUAL_KS = (5, 10, 20, 100)


@dataclass(frozen=True, slots=True, eq=False)
class RankedExamples:
    """Examples to measure on: which output layer is ranked, and the input whose items are owned (None: none)."""

    examples: Examples
    output: int
    owned: int | None

    def wanted(self, rows: NDArray[np.int64]) -> Csr:
        """Return the targets of some examples; DataError when they are not sparse."""
        targets = self.examples.sets[self.output].take(rows).rows
        if not isinstance(targets, Csr):
            raise DataError(
                f"{self.examples.file}: data set {self.examples.sets[self.output].name!r} is dense, ranking metrics "
                "need sparse targets; legal metric: loss"
            )
        return unique_targets(targets)

    def left_out(self, rows: Longs, excluded: Lookup | None) -> Csr | None:
        """Return the items of some examples that have no rank."""
        if excluded is not None:
            return excluded(rows)
        owned = self.examples.sets[self.owned].take(rows).rows if self.owned is not None else None
        return owned if isinstance(owned, Csr) else None


def measure(
    rank: Ranker, part: RankedExamples, ks: Iterable[int] = USUAL_KS, each: Each = map_in_turn
) -> dict[str, float]:
    """Return every metric at every k; empty without any target."""
    return {
        name: float(values.mean()) for name, values in measure_examples(rank, part, ks, each).items() if values.size
    }


def rank_by(score: Scorer) -> Ranker:
    """Return the ranker of a scorer."""
    return lambda examples, k, owned: top(score(examples), k, owned)[0]


def measure_examples(
    rank: Ranker,
    part: RankedExamples,
    ks: Iterable[int] = USUAL_KS,
    each: Each = map_in_turn,
    excluded: Lookup | None = None,
    watch: Watch | None = None,
    at_once: int = 0,
) -> dict[str, NDArray[np.float64]]:
    """Return every metric of every example that has a target, in the order of the examples.

    What is owned has no rank, nor has what `excluded` gives for an example. `at_once`: see `choose_asked`.
    """
    ks = sorted(set(ks))

    def block(rows: Longs) -> dict[str, NDArray[np.float64]]:
        wanted = part.wanted(rows)
        some = np.diff(wanted.indptr) > 0
        rows, wanted = rows[some], wanted.take(np.flatnonzero(some))
        if not len(rows):
            return {}
        hits = hits_of(rank(part.examples.take(rows), ks[-1], part.left_out(rows, excluded)), wanted)
        return dict(values_at(hits, np.diff(wanted.indptr), ks))

    size = choose_asked(part.examples, part.output, at_once)
    return collect(run_in_order(block, part.examples.count, part.examples.sets[part.output].width, each, watch, size))


def choose_asked(examples: Examples, output: int, at_once: int = 0) -> int:
    """Return about how many examples at a time an output layer is asked.

    `at_once` is how many are best, see `engines.Evaluator`, 0: as many as usual. Where outputs are wide, and for more
    than usual where inputs are, there are fewer.
    """
    usual = choose_block_size(examples.sets[output].width)
    best = choose_block_size(max(data_set.width for data_set in examples.sets.values()), at_once)
    return best if 0 < at_once < usual else max(usual, best)


def popularity_scorer(targets: DataSet, each: Each = map_in_turn) -> Scorer:
    """Return the scorer that gives every example the same order: in how many rows of `targets` an item is."""

    def block(rows: Longs) -> NDArray[np.int64]:
        found = targets.take(rows).rows
        assert isinstance(found, Csr), "the caller has made sure"
        return np.bincount(found.sets().indices, minlength=targets.width)

    counts = np.zeros(targets.width)
    for found in run_in_order(block, targets.examples, 1, each):
        counts += found
    scores = counts.astype(np.float32)
    return lambda examples: np.tile(scores, (examples.count, 1))


def hits_of(ranked: NDArray[np.int64], wanted: Csr) -> NDArray[np.bool_]:
    """Return (b, k): whether the item at each rank is wanted; NO_ITEM is not."""
    examples, items = len(ranked), wanted.width
    legal = ranked >= 0
    keys = np.arange(examples)[:, None] * items + ranked
    targets = np.repeat(np.arange(examples), np.diff(wanted.indptr)) * items + wanted.indices
    place = np.minimum(np.searchsorted(targets, keys), len(targets) - 1)
    hits: NDArray[np.bool_] = (targets[place] == keys) & legal
    return hits


def values_at(
    hits: NDArray[np.bool_], counts: NDArray[np.int64], ks: Sequence[int]
) -> Iterable[tuple[str, NDArray[np.float64]]]:
    """Yield every metric at every k, ascending, of examples with `counts` targets each; `hits` as `hits_of` has."""
    gains = 1 / np.log2(np.arange(2, ks[-1] + 2))
    ideal = np.cumsum(gains)
    ranks = np.arange(1, hits.shape[1] + 1)
    precision = np.cumsum(hits, axis=1) / ranks
    for k in ks:
        some = hits[:, :k]
        found = some.sum(axis=1)
        first = np.where(found > 0, some.argmax(axis=1) + 1, np.inf)
        best = np.minimum(counts, k)
        yield f"p@{k}", found / k
        yield f"recall@{k}", found / counts
        yield f"ndcg@{k}", (some @ gains[: some.shape[1]]) / ideal[best - 1]
        yield f"map@{k}", (some * precision[:, :k]).sum(axis=1) / best
        yield f"mrr@{k}", 1 / first
