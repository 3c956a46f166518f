"""What a sequence model adds to a blend of our families, by the product's own blend and search for weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nnlib.data.events import Events, Window
from nnlib.data.rows import Csr
from nnlib.families.blend import Blend, find_weights
from nnlib.families.family import Arrays
from nnlib.util.arrays import Floats, Longs
from scripts.bench.sequences.metrics import K
from scripts.bench.sequences.ours import lists_of, to_events
from scripts.bench.sequences.windows import Histories, Part

MOST = 1500  # customers by whom weights are found
Lists = tuple[np.ndarray, np.ndarray]  # items and scores (customers, KEPT)


@dataclass(frozen=True, eq=False)
class Listed:
    """A model of which lists are left: what stands in none has the score of the list's end."""

    items: Longs
    values: Floats

    def scores(self, asked: Events, rows: Longs) -> Floats:
        """Return float32 (len(rows), items)."""
        items, values = self.items[rows], self.values[rows]
        known = np.where(np.isfinite(values), values, np.inf)
        end = known.min(axis=1, keepdims=True)
        out = np.repeat(end, asked.bought.width, axis=1).astype(np.float32)
        np.put_along_axis(out, np.maximum(items, 0), np.where(np.isfinite(values), values, end), axis=1)
        return out

    def arrays(self) -> Arrays:
        """Raise NotImplementedError: it serves nobody."""
        raise NotImplementedError("lists are no model")


def blend(members: Sequence[Mapping[str, Lists]], valid: Part, test: Part) -> tuple[tuple[float, ...], Lists]:
    """Return the weights found on some customers of `valid`, and the blend's lists of `test`."""
    rows = np.sort(np.random.default_rng(2).permutation(valid.asked.customers)[:MOST])
    window = Window(to_events(valid.asked.take(rows)), to_wanted(valid.wanted.take(rows)))
    weights = find_weights([Listed(*(side[rows] for side in member["valid"])) for member in members], window, K)
    return weights, lists_of(Blend(tuple(Listed(*member["test"]) for member in members), weights), test.asked)


def to_wanted(wanted: Histories) -> Csr:
    """Return what is wanted in nnlib's form."""
    return to_events(wanted).bought
