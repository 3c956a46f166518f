"""Compiled choice of the best items of each row. Twin: `ranking.top`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.compiled.compiler import compile_loop, compile_sums
from nnlib.util.arrays import Floats

Ints = NDArray[np.integer]

CHUNK = 64  # items looked at together: mostly none of them is among the best so far


@compile_loop
def top(scores: Floats, seen_starts: Ints, seen: Ints, k: int, out_items: Ints, out_scores: Floats) -> None:
    """Write the k best items of each row and their scores, best first, equal ones by item, to arrays (rows, k).

    The items of row r in `seen`, at seen_starts[r] to seen_starts[r + 1] in any order, are left out, and so is what
    is NaN or not above -inf. Where there are fewer than k, item -1 and score -inf follow.
    """
    unwanted = np.full(scores.shape[1], -1, np.int64)
    for row in range(scores.shape[0]):
        for i in range(seen_starts[row], seen_starts[row + 1]):
            unwanted[seen[i]] = row
        items, best = out_items[row, :k], out_scores[row, :k]
        items[:], best[:] = -1, -np.inf
        for low in range(0, scores.shape[1], CHUNK):
            part = scores[row, low : low + CHUNK]
            if not _any_above(part, best[0]):
                continue
            for n in range(part.size):
                if part[n] > best[0] and unwanted[low + n] != row:
                    _replace_worst(best, items, k, part[n], low + n)
        _sort(best, items)


@compile_sums
def _any_above(scores: Floats, bound: Any) -> bool:
    count = scores.dtype.type(0)
    for n in range(scores.size):
        count += scores.dtype.type(1) if scores[n] > bound else scores.dtype.type(0)
    return bool(count > 0)


@compile_loop
def _worse(score: Any, item: int, other_score: Any, other_item: int) -> bool:
    return score < other_score or (score == other_score and item > other_item)


@compile_loop
def _replace_worst(best: Floats, items: Ints, size: int, score: Any, item: int) -> None:
    """Put an item in place of the first one of a heap, in which every item is worse than the two below it."""
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and _worse(best[below + 1], items[below + 1], best[below], items[below]):
            below += 1
        if not _worse(best[below], items[below], score, item):
            break
        best[place], items[place] = best[below], items[below]
        place = below
    best[place], items[place] = score, item


@compile_loop
def _sort(best: Floats, items: Ints) -> None:
    """Turn the heap into a list, best first: the worst one goes to the end, again and again."""
    for last in range(best.size - 1, 0, -1):
        score, item = best[last], items[last]
        worst_score, worst_item = best[0], items[0]
        _replace_worst(best, items, last, score, item)
        best[last], items[last] = worst_score, worst_item
