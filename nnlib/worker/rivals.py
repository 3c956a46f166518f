"""What is measured beside a network, on the same customers: recent popularity, and other recipes.

They are fitted on the history that the network learns from, or on its dense inputs and their targets, and asked what it
is asked. Where these have not the items that are ranked (other items in than out, several files) there is nothing to
compare with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nnlib.contract import Recipe
from nnlib.data.blockwise import Lookup
from nnlib.data.events import Events, Window
from nnlib.data.read_events import read_asked, read_events
from nnlib.data.rows import Csr
from nnlib.errors import DataError
from nnlib.evaluation.metrics import RankedExamples
from nnlib.families.fit import fit_recipe, reads_inputs
from nnlib.families.measure import measure
from nnlib.families.model_file import write_recipe_model
from nnlib.prediction.match_items import match_history
from nnlib.util.arrays import Longs
from nnlib.util.threads import Each
from nnlib.worker.scores import OfCustomers


@dataclass(frozen=True, slots=True, eq=False)
class Rivals:
    """What recipes learn from, and what they are asked."""

    history: Events
    window: Window
    excluded: Lookup  # what has no rank, as it has none of the network's

    def measure(self, recipe: Recipe, names: Sequence[str], each: Each) -> OfCustomers:
        """Fit a recipe and return its metrics of each customer."""
        return measure(fit_recipe(recipe, self.history).fitted, self.window, names, each, excluded=self.excluded)


def read_rivals(
    train_files: Sequence[Path], held_out: Path, ranked: RankedExamples | None, inputs: bool = False
) -> Rivals | None:
    """Return what recipes need to be compared with a network on `ranked`, as far as the files have it.

    `inputs`: whether one of them is told by dense ones.
    """
    if ranked is None or len(train_files) != 1:
        return None
    try:
        history, asked = read_events(train_files[0], inputs), read_asked(held_out, inputs)
    except DataError:  # nothing sparse, or more than memory holds: the network does not need it
        return None
    targets = ranked.examples.sets[ranked.output]
    items = targets.features or tuple(map(str, range(targets.width)))
    if history.items != items or asked.items not in (items, ()):
        return None
    asked = match_history(asked, items)

    def excluded(rows: Longs) -> Csr:
        owned = ranked.left_out(rows, None)
        return Csr(np.zeros(len(rows) + 1, np.int64), np.zeros(0, np.int32), len(items)) if owned is None else owned

    return Rivals(history, Window(asked, ranked.wanted(np.arange(asked.customers))), excluded)


def write_recipe(recipe: Recipe, learned: Path, model: Path) -> None:
    """Fit a recipe on a data file, and write its model."""
    write_recipe_model(model, fit_recipe(recipe, read_events(learned, reads_inputs(recipe))))
