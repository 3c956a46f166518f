"""Recommendations of one region: its model, its customers' histories, and the names of its items.

    region = open_recommender(Path("model.nc"), Path("data.all.nc"))
    [answer] = region.recommend(["12583"], k=10, because=2)

The lists are those of `nnlib predict`, bit by bit. Recent popularity answers for customers who are not in the data, and
for those of whom the model knows no item; an answer says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from nnlib.data.blockwise import choose_block_size
from nnlib.data.events import Events
from nnlib.data.file_header import read_headers, shape_of_names
from nnlib.data.read_events import read_asked, read_events
from nnlib.data.rows import Ints
from nnlib.data.sources import open_files
from nnlib.errors import NnlibError
from nnlib.families.fit import RecipeModel, reads_inputs
from nnlib.families.model_file import is_recipe_model, read_recipe_model
from nnlib.model.file import read_model
from nnlib.ops.ranking import NO_ITEM
from nnlib.prediction.answering import RECENT_POPULARITY, Answering, ByNetwork, ByRecipe, Limits, Mask
from nnlib.prediction.because import find_reasons
from nnlib.prediction.floor import Floor
from nnlib.prediction.match_items import match_history
from nnlib.prediction.predictor import Ranked, find_layer, prepare
from nnlib.spec.json_section import show
from nnlib.spec.types import LayerKind
from nnlib.util import netcdf
from nnlib.util.arrays import Longs
from nnlib.util.threads import Each, map_in_turn

SAMPLES = "samples"
_MODELS: WeakValueDictionary[tuple[int, ...], RecipeModel] = WeakValueDictionary()  # by their files
STRANGER = f"{RECENT_POPULARITY}: no such customer in the data"
NOTHING_KNOWN = f"{RECENT_POPULARITY}: the model knows none of the customer's items"


@dataclass(frozen=True, slots=True)
class Recommended:
    """One item of a list."""

    item: str
    score: float
    because: tuple[str, ...] = ()  # ids of owned items that raised the score most, the best first


@dataclass(frozen=True, slots=True)
class Answer:
    """The best items for one customer, best first."""

    customer: str
    known: bool  # whether he is in the data; of a history, whether any of its items is known
    by: str  # what answered, in words
    items: tuple[Recommended, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Recommender:
    """One region's model with its customers' histories; several threads may ask it."""

    model: Answering[Any]
    floor: Floor
    customers: Sequence[str]  # in the order of the data
    descriptions: Mapping[str, str]  # by item, what is known of it
    _rows: Mapping[str, int] = field(repr=False)
    _numbers: Mapping[str, int] = field(repr=False)

    @property
    def items(self) -> tuple[str, ...]:
        """The ids of the items that can be recommended, by number."""
        return self.model.items

    def recommend(
        self,
        customers: Sequence[str],
        k: int = 10,
        *,
        owned: bool | None = None,
        only: Collection[str] | None = None,
        never: Collection[str] = (),
        because: int = 0,
    ) -> list[Answer]:
        """Return the `k` best items for each customer.

        `owned`: whether what he has may be among them; None: where the data say that buying again counts. `only` and
        `never` are ids of items that alone may be, or may not be; unknown ones mean nothing. `because`: how many of
        his own items are named as the reason of each. NnlibError for a k below 1 and where `only` leaves no item.
        """
        limits = self.limit(k, owned, only, never)
        rows = np.array([self._rows.get(customer, -1) for customer in customers], np.int64)
        known = np.flatnonzero(rows >= 0)
        answers: list[Answer | None] = [None] * len(rows)
        place = iter(known)
        for ranked, by_floor in self.rank(rows[known], limits):
            for n, alone in enumerate(by_floor):
                at = int(next(place))
                people = self.model.people(rows[at : at + 1]) if because and not alone else None
                by = self._by(NOTHING_KNOWN) if alone else self.model.by
                answers[at] = self._answer(customers[at], True, by, ranked, n, people, because)
        if len(known) < len(rows):
            common = self.floor.rank_for_anybody(limits)
            by = self._by(STRANGER)
            for at in map(int, np.flatnonzero(rows < 0)):
                answers[at] = self._answer(customers[at], False, by, common, 0, None, 0)
        return [answer for answer in answers if answer is not None]

    def recommend_to_history(
        self,
        history: Sequence[str],
        k: int = 10,
        *,
        owned: bool | None = None,
        only: Collection[str] | None = None,
        never: Collection[str] = (),
        because: int = 0,
    ) -> Answer:
        """Return the best items for somebody who has these items and is in no data; else as `recommend`."""
        limits = self.limit(k, owned, only, never)
        units = self._units(history)
        if not len(units):
            return self._answer("", False, self._by(NOTHING_KNOWN), self.floor.rank_for_anybody(limits), 0, None, 0)
        somebody = self.model.somebody(units)
        [ranked] = self.model.rank(somebody, limits, map_in_turn)
        return self._answer("", True, self.model.by, ranked, 0, somebody, because)

    def limit(
        self, k: int, owned: bool | None, only: Collection[str] | None = None, never: Collection[str] = ()
    ) -> Limits:
        """Return what these arguments mean; NnlibError for what is not legal."""
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise NnlibError(f"k: {show(k)} is not legal, legal: a whole number from 1")
        rankable = np.ones(len(self.items), bool)
        if only is not None:
            rankable[:] = False
            rankable[self._units(only)] = True
            if not rankable.any():
                known = f"{len(self.items):,} items, such as {show(self.items[0])}"
                raise NnlibError(f"only: none of {len(only)} items is known, legal: some of the model's {known}")
        rankable[self._units(never)] = False
        return Limits(k, self.model.repeats if owned is None else owned, rankable)

    def rank(self, rows: Longs, limits: Limits, each: Each = map_in_turn) -> Iterator[tuple[Ranked, Mask]]:
        """Yield the best items of customers by their rows, a block after the other, and which the floor answers for."""
        people = self.model.people(rows)
        size, done = choose_block_size(len(self.items)), 0
        for ranked in self.model.rank(people, limits, each):
            some = rows[done : done + size]
            done += len(some)
            alone = self._have_nothing(some)
            if alone.any():
                instead = self.floor.rank(some[alone], limits)
                ranked.items[alone], ranked.scores[alone] = instead.items, instead.scores
            yield ranked, alone

    def _have_nothing(self, rows: Longs) -> Mask:
        if not self.model.needs_history:
            return np.zeros(len(rows), bool)
        return np.asarray(np.diff(self.model.owned(self.model.people(rows)).indptr) == 0)

    def _units(self, items: Collection[str]) -> Ints:
        """Return the numbers of the items that are known, in order and each once."""
        found = {self._numbers[item] for item in items if item in self._numbers}
        return np.array(sorted(found), np.int32)

    def _by(self, floor: str) -> str:
        """Return who answers when the floor does."""
        return self.model.by if self.model.by == RECENT_POPULARITY else floor

    def _answer(
        self, customer: str, known: bool, by: str, ranked: Ranked, row: int, person: Any, because: int
    ) -> Answer:
        units = [int(unit) for unit in ranked.items[row] if unit != NO_ITEM]
        scores = ranked.scores[row].tolist()
        reasons = [()] * len(units) if person is None else find_reasons(self.model, person, units, because)
        names = self.items
        listed = (
            Recommended(names[unit], score, tuple(names[one] for one in reason))
            for unit, score, reason in zip(units, scores, reasons, strict=False)
        )
        return Answer(customer, known, by, tuple(listed))


def open_recommender(model: Path, data: Path, floor: Path | None = None, items: Path | None = None) -> Recommender:
    """Return what recommends by a model file: of a family, or a network, which runs on the processors.

    `data` is a data file with the histories, `floor` the model of recent popularity (else it is counted from the data),
    `items` a table with columns item and description. DataError says what is wrong with one, OSError when it cannot be
    opened.
    """
    answering, events = _open_family(model, data) if is_recipe_model(model) else _open_network(model, data)
    known = answering.items
    customers = read_samples(data)
    descriptions: dict[str, str] = {}
    if items is not None:
        from nnlib.prediction.item_names import read_descriptions  # with what imports tables, which no worker has

        descriptions = read_descriptions(items, known)
    return Recommender(
        answering,
        Floor(floor, events, known),
        customers,
        descriptions,
        {name: n for n, name in enumerate(customers)},
        {name: n for n, name in enumerate(known)},
    )


def _open_family(path: Path, data: Path) -> tuple[Answering[Any], Callable[[], Events]]:
    model = _read_shared(path)
    found = read_asked(data, reads_inputs(model.recipe))
    asked = match_history(found, model.items)
    if found.items:
        return ByRecipe(model, asked), lambda: asked
    return ByRecipe(model, asked, needs_history=False), lambda: match_history(read_events(data), model.items)


def _read_shared(path: Path) -> RecipeModel:
    """Return the model of a file: of the regions that share one it is in memory once, while one needs it.

    Files of models are replaced and never written into.
    """
    facts = path.stat()
    file = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
    model = _MODELS.get(file)
    if model is None:
        _MODELS[file] = model = read_recipe_model(path)
    return model


def _open_network(path: Path, data: Path) -> tuple[Answering[Any], Callable[[], Events]]:
    model, source = read_model(path), open_files([data])
    ready = prepare(model, source.sets, source.file)
    layer = find_layer(ready.network.spec, None, LayerKind.OUTPUT)
    names = ready.names.get(layer) or tuple(map(str, range(ready.network.spec.layers[layer].units or 0)))
    return ByNetwork(model, ready, layer, names), lambda: match_history(read_events(data), names)


def measure_data(data: Path) -> tuple[int, int]:
    """Return how many customers a data file has, and how many items."""
    with netcdf.File(data) as file:
        headers = read_headers(file)
        listed = [header for header in headers if header.sparse or header.boolean]  # dense inputs are no items
        return headers[0].examples, (listed or headers)[0].width


def read_samples(data: Path) -> tuple[str, ...]:
    """Return the names of the customers, numbers where the file has none."""
    with netcdf.File(data) as file:
        if shape_of_names(file, SAMPLES):
            return file.strings(SAMPLES)
        return tuple(map(str, range(read_headers(file)[0].examples)))
