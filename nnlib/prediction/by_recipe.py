"""The best items of each customer by a model that a recipe was fitted to, as `predictor` has them by a network."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nnlib.data.blockwise import Lookup, run_in_order
from nnlib.data.events import Events
from nnlib.families.fit import RecipeModel
from nnlib.ops.ranking import top
from nnlib.prediction.predictor import Ranked, entries_of, make_ranked
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import Each, map_in_turn


def rank_by_recipe(
    model: RecipeModel,
    asked: Events,
    k: int,
    each: Each = map_in_turn,
    excluded: Lookup | None = None,
    factors: Lookup | None = None,
    rankable: NDArray[np.bool_] | None = None,
) -> Iterator[Ranked]:
    """Yield the k best items of each customer, equal scores by number, a block after the other.

    `asked` has the model's items. Those in a customer's row of `excluded` and those not `rankable` have no rank;
    scores of those in his row of `factors` are multiplied by its values.
    """
    unranked = None if rankable is None or rankable.all() else ~rankable

    def block(rows: Longs) -> Ranked:
        scores = model.scores(asked, rows)
        if factors is not None:
            listed = factors(rows)
            scores[entries_of(listed)] *= listed.values if listed.values is not None else 1
        if unranked is not None:
            scores[:, unranked] = -np.inf
        return make_ranked(*top(scores, k, excluded(rows) if excluded else None))

    return run_in_order(block, asked.customers, len(model.items), each)


def compute_scores(model: RecipeModel, asked: Events, each: Each = map_in_turn) -> Iterator[Floats]:
    """Yield all scores of each customer, (b, items), a block after the other."""
    return run_in_order(lambda rows: model.scores(asked, rows), asked.customers, len(model.items), each)
