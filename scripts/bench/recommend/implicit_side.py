"""The peer implicit, with the same likeness and factors put into its models. It has an environment of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from scripts.bench.recommend.problem import ITEM_ITEM, SOLVED, K, read, serve

ALPHA, L2 = 0.3, 0.003


def main() -> None:
    """Serve the kind named on the command line."""
    kind, folder, block = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    histories, likeness, items, customers = read(folder)
    step = item_item(histories, likeness) if kind == ITEM_ITEM else factors(histories, items, customers, kind == SOLVED)
    step(np.arange(256))
    serve(step, histories.shape[0], block)


def item_item(histories: Any, likeness: Any) -> Callable[[Any], Any]:
    """Its own compiled loop over a history's neighbours."""
    from implicit.nearest_neighbours import ItemItemRecommender

    model = ItemItemRecommender(K=100, num_threads=1)
    model.similarity = likeness.astype(np.float64)
    model.scorer = None
    from implicit._nearest_neighbours import NearestNeighboursScorer

    model.scorer = NearestNeighboursScorer(model.similarity)
    counts = histories.astype(np.float64)
    return lambda rows: model.recommend(rows, counts[rows], N=K, filter_already_liked_items=True)[0]


def factors(histories: Any, items: Any, customers: Any, solved: bool) -> Callable[[Any], Any]:
    """Its product and choice of the best; `solved`: customers' factors are solved for first, as ours are."""
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(factors=items.shape[1], num_threads=1, use_native=True)
    model.item_factors, model.user_factors = items, customers
    return lambda rows: model.recommend(
        rows, histories[rows], N=K, filter_already_liked_items=True, recalculate_user=solved
    )[0]


if __name__ == "__main__":
    main()
