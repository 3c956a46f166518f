"""Why an item is recommended: which of the items that somebody has raised its score most.

What one of them is worth is how far a score falls when that one alone is left out of the history. For models that are
linear in it (item cosine, EASE, ELSA, graphs) these are the very terms of the sum; for all others it is what the item
adds to the rest. What is recommended to everybody alike has no such reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnlib.data.blockwise import run_in_order
from nnlib.prediction.answering import Answering, People
from nnlib.util.arrays import Floats, Longs

MOST = 100  # items of a history that are tried, the last ones
ROUNDING = 1e-5  # of a score: what falls by less has not fallen


def falls_without_each(model: Answering[People], person: People, items: Sequence[int]) -> tuple[Longs, Floats]:
    """Return what one person has, (n,), and how far each of `items` falls without it, (n, items)."""
    several, dropped = model.without_each(person, MOST)
    columns = np.array(items, np.int64)
    whole = model.strengths(person)[:, columns]
    # Histories are a block at a time, so that wide models of long histories need no more memory than other questions.
    blocks = run_in_order(lambda rows: model.strengths(take(several, rows))[:, columns], len(dropped), len(model.items))
    left = np.concatenate([np.empty((0, len(columns)), np.float32), *blocks])
    falls = whole - left
    falls[np.abs(falls) <= ROUNDING * np.abs(whole)] = 0
    return dropped.astype(np.int64), falls


def find_reasons(model: Answering[People], person: People, items: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Return for each of `items` the owned ones without which it falls most, `most` of them, the best first."""
    if not items or not most:
        return [() for _ in items]
    owned, falls = falls_without_each(model, person, items)
    known = owned >= 0
    owned, falls = owned[known], falls[known]
    found = []
    for column in falls.T:
        order = np.lexsort((owned, -column))[:most]
        found.append(tuple(int(owned[place]) for place in order if column[place] > 0))
    return found


def take(people: Any, rows: Longs) -> Any:
    """Return some of several people; Events and Examples have it alike."""
    return people.take(rows)
