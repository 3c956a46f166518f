"""Recent popularity: it answers where a model has nothing to go by, for strangers and for who has no item it knows.

Of examples with dense inputs it is how frequent classes are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np

from nnlib.contract import Recipe
from nnlib.data.events import Events
from nnlib.data.rows import from_rows
from nnlib.families.fit import fit_recipe, reads_inputs
from nnlib.families.model_file import read_recipe_model
from nnlib.ops.ranking import top
from nnlib.prediction.answering import POPULARITY, Limits
from nnlib.prediction.match_items import in_order_of
from nnlib.prediction.predictor import Ranked, make_ranked
from nnlib.util.arrays import Floats, Longs

ANYWHERE = "\0"  # a region that no data name: what holds for all is for it


class Floor:
    """Recent popularity in each region of some data, reckoned when somebody asks for it."""

    def __init__(self, model: Path | None, events: Callable[[], Events], items: tuple[str, ...]) -> None:
        """`model`: a file of the family popularity, else it is counted from `events`, which has these items.

        A model of dense inputs knows nothing of a stranger, who has none: then it is counted, too.
        """
        self._model, self._read, self._items = model, events, items

    def rank(self, rows: Longs, limits: Limits) -> Ranked:
        """Return the best items of customers by their rows, each by the popularity of his region."""
        regions = self._events.region[rows]
        return self._top(self._lines[regions], limits)

    def rank_for_anybody(self, limits: Limits) -> Ranked:
        """Return one row, for somebody of whom nothing is known: of the region, where there is one alone."""
        return self._top(self._lines[[0 if len(self._events.regions) == 1 else -1]], limits)

    def _top(self, scores: Floats, limits: Limits) -> Ranked:
        some = scores.copy()
        some[:, ~limits.rankable] = -np.inf
        return make_ranked(*top(some, limits.k))

    @cached_property
    def _events(self) -> Events:
        return self._read()

    @cached_property
    def _lines(self) -> Floats:
        """Return the scores (regions + 1, items), the last row for those whose region nothing is known of."""
        asked = self._events
        model = read_recipe_model(self._model) if self._model else None
        if model is None or reads_inputs(model.recipe):
            model = fit_recipe(Recipe(POPULARITY), asked)
        regions = (*asked.regions, ANYWHERE)
        nobody = from_rows([[] for _ in regions], len(self._items))
        ones = Events(nobody, self._items, np.arange(len(regions), dtype=np.int32), regions, as_of=asked.as_of)
        return in_order_of(model, self._items).scores(ones, np.arange(len(regions)))
