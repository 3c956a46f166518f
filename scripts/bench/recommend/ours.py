"""Our side: models of families, ranked as `nnlib predict` and the jobs of `regiondag recommend` do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nnlib.contract import Recipe
from nnlib.data.events import Events
from nnlib.data.rows import Csr
from nnlib.families.fit import RecipeModel, restore_model
from nnlib.families.legal import complete_recipe
from nnlib.families.packing import pack
from nnlib.prediction.answering import ByRecipe, Limits
from nnlib.util.threads import map_in_turn, workers
from scripts.bench.recommend.problem import ITEM_ITEM, K, read, serve

FOREVER = {"fit_half_life": 1e9, "ask_half_life": 1e9}


def main() -> None:
    """Serve the kind named on the command line."""
    kind, folder, block = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    histories, likeness, factors, _ = read(folder)
    items = tuple(map(str, range(histories.shape[1])))
    bought = Csr(histories.indptr.astype(np.int64), histories.indices.astype(np.int32), len(items))
    asked = Events(bought, items, np.zeros(bought.examples, np.int32), ("",))
    if kind == ITEM_ITEM:
        recipe = complete_recipe(Recipe("knn", FOREVER, 1))
        arrays = pack("neighbours", likeness) | {"width": np.array([len(items)], np.int64)}
    else:
        recipe = complete_recipe(Recipe("ials", {"dims": factors.shape[1], **FOREVER}, 1))
        arrays = {"items": factors}
    model = RecipeModel(recipe, items, ("",), 0, restore_model(recipe, arrays, ("",)))
    with workers(1):
        serve(ranking(ByRecipe(model, asked)), bought.examples, block)


def ranking(by: ByRecipe) -> Callable[[Any], Any]:
    """Return what ranks the items of some customers."""
    limits = Limits(K, False, np.ones(len(by.items), bool))

    def step(rows: Any) -> Any:
        return np.concatenate([one.items for one in by.rank(by.people(rows), limits, map_in_turn)])

    step(np.arange(256))
    return step


if __name__ == "__main__":
    main()
