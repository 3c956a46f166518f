"""A model asked about data whose items stand in another order, or are not all known to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nnlib.data.events import Events
from nnlib.data.rows import Csr, offsets_of
from nnlib.errors import DataError
from nnlib.families.family import Arrays, Fitted
from nnlib.families.fit import RecipeModel
from nnlib.spec.json_section import show
from nnlib.util.arrays import Floats, Longs

UNKNOWN = -1


def match_history(asked: Events, items: tuple[str, ...]) -> Events:
    """Return the same histories in the numbering of `items`, found by name; items that are none of them are left out.

    DataError when not one is, but for data without any items.
    """
    if asked.items == items:
        return asked
    if not asked.items:  # examples with dense inputs, who have nothing
        return replace(asked, bought=replace(asked.bought, width=len(items)), items=items)
    places = _places(asked.items, items)
    units = places[asked.bought.indices]
    known = units != UNKNOWN
    customers = np.repeat(np.arange(asked.customers), np.diff(asked.bought.indptr))[known]
    order = np.lexsort((units[known], customers))
    indptr = offsets_of(np.bincount(customers, minlength=asked.customers))
    rows = Csr(indptr, units[known][order].astype(np.int32), len(items))
    return replace(asked, bought=rows, items=items).with_entries(asked, np.flatnonzero(known)[order])


@dataclass(frozen=True, slots=True, eq=False)
class InOrderOf:
    """A model that scores the items of data, as they stand there; those that it does not know get -inf."""

    model: RecipeModel
    items: tuple[str, ...]

    def scores(self, asked: Events, rows: Longs) -> Floats:
        """Return float32 (len(rows), items of the data), of customers of `asked`, which has these items."""
        if self.items == self.model.items:
            return self.model.scores(asked, rows)
        known = match_history(asked.take(rows), self.model.items)
        scores = self.model.scores(known, np.arange(len(rows)))
        places = _places(self.items, self.model.items)
        out = np.full((len(rows), len(self.items)), -np.inf, np.float32)
        out[:, places != UNKNOWN] = scores[:, places[places != UNKNOWN]]
        return out

    def arrays(self) -> Arrays:
        """Return the model's."""
        return self.model.fitted.arrays()


def in_order_of(model: RecipeModel, items: tuple[str, ...]) -> Fitted:
    """Return the model for data of these items; DataError when it knows none of them."""
    _places(items, model.items)
    return InOrderOf(model, items)


def _places(items: tuple[str, ...], known: tuple[str, ...]) -> Longs:
    """Return the number of each of `items` among the known ones, UNKNOWN for none of them."""
    numbers = {name: n for n, name in enumerate(known)}
    places = np.array([numbers.get(name, UNKNOWN) for name in items], np.int64)
    if not np.any(places != UNKNOWN):
        raise DataError(
            f"none of the {len(items)} items of the data is known to the model; they are named such as "
            f"{show(items[0])}, those of the model such as {show(known[0])}"
        )
    return places
