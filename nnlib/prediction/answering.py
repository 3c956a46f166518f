"""A model together with the histories that it is asked with: of a family, or a network. Both answer alike.

`People` are some of those who are asked about, with all that the model takes of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnlib.contract import Recipe
from nnlib.data.events import Events
from nnlib.data.rows import Csr, Ints, offsets_of
from nnlib.data.sets import BESIDE, DataSet, entries_beside
from nnlib.devices import processors
from nnlib.errors import DataError
from nnlib.families.fit import RecipeModel
from nnlib.families.legal import BLEND, LOGISTIC
from nnlib.model.examples import Examples
from nnlib.model.file import Model
from nnlib.prediction.by_recipe import rank_by_recipe
from nnlib.prediction.exclusion import exclude_inputs, find_owned
from nnlib.prediction.predictor import Prepared, Ranked, rank
from nnlib.spec.json_section import show
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import Each

POPULARITY, RECENT_POPULARITY = "popularity", "recent popularity"
WORDS = {POPULARITY: RECENT_POPULARITY, LOGISTIC: "logistic regression"}
People = TypeVar("People")
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """How many items are wanted, and which may be among them."""

    k: int
    owned: bool  # whether what people have is ranked like anything else
    rankable: Mask  # (items,)


class Answering(Protocol[People]):
    """What can be asked for the best items of people."""

    @property
    def items(self) -> tuple[str, ...]:
        """Names of the items, by number."""

    @property
    def repeats(self) -> bool:
        """Whether what people have is recommended like anything else, as the data said that the model learned from."""

    @property
    def by(self) -> str:
        """What answers, in words."""

    @property
    def needs_history(self) -> bool:
        """Whether the model has nothing to go by when it asks about somebody without items."""

    def people(self, rows: Longs | None = None) -> People:
        """Return those of some rows of the data, or all."""

    def somebody(self, items: Ints) -> People:
        """Return one who has these items, in order, and is in no data; DataError where the model takes more of him."""

    def owned(self, people: People) -> Csr:
        """Return what people have, in the numbering of `items`."""

    def without_each(self, person: People, most: int) -> tuple[People, Ints]:
        """Return one person as often as he has items, each time without one of them, and these items.

        Of more than `most` items these are the last ones that he took.
        """

    def rank(self, people: People, limits: Limits, each: Each) -> Iterator[Ranked]:
        """Yield the best items, a block of people after the other, as `nnlib predict` has them."""

    def strengths(self, people: People) -> Floats:
        """Return what the ranking of a few people goes by, (people, items): how much each wants each item."""


@dataclass(frozen=True, slots=True, eq=False)
class ByRecipe:
    """The model of a family."""

    model: RecipeModel
    asked: Events  # has the model's items
    needs_history: bool = True  # not where people are told by dense inputs, and have none

    @property
    def items(self) -> tuple[str, ...]:
        """See `Answering`."""
        return self.model.items

    @property
    def repeats(self) -> bool:
        """See `Answering`."""
        return self.model.repeats

    @property
    def by(self) -> str:
        """See `Answering`."""
        return describe_recipe(self.model.recipe)

    def people(self, rows: Longs | None = None) -> Events:
        """See `Answering`."""
        return self.asked if rows is None else self.asked.take(rows)

    def somebody(self, items: Ints) -> Events:
        """See `Answering`."""
        if not self.needs_history:
            raise DataError("people of these data are told by dense inputs, not by items; legal: examples of the data")
        bought = Csr(np.array([0, len(items)]), items, len(self.items))
        known = self.asked.regions if len(self.asked.regions) == 1 else ("",)
        return Events(bought, self.items, np.zeros(1, np.int32), known, as_of=self.asked.as_of)

    def owned(self, people: Events) -> Csr:
        """See `Answering`."""
        return people.bought

    def without_each(self, person: Events, most: int) -> tuple[Events, Ints]:
        """See `Answering`. Ages go on from the day that they went on from, or all the others would count more."""
        dropped = _latest(person.bought.indices, person.days if person.last is None else person.last, most)
        rows, entries = _drop_each(person.bought, dropped)
        several = replace(
            person,
            bought=rows,
            region=np.repeat(person.region, len(dropped)),
            since=np.repeat(person.youngest(), len(dropped)),
            inputs=None if person.inputs is None else person.inputs.take(np.zeros(len(dropped), np.int64)),
        )
        return several.with_entries(person, entries), dropped

    def rank(self, people: Events, limits: Limits, each: Each) -> Iterator[Ranked]:
        """See `Answering`."""
        excluded = None if limits.owned else people.bought.take
        return rank_by_recipe(self.model, people, limits.k, each, excluded, rankable=limits.rankable)

    def strengths(self, people: Events) -> Floats:
        """See `Answering`."""
        return self.model.scores(people, np.arange(people.customers))


@dataclass(frozen=True, slots=True, eq=False)
class ByNetwork:
    """A network, on this machine's processors."""

    model: Model
    ready: Prepared
    layer: int  # the Output layer
    items: tuple[str, ...]
    by: str = "a network"

    @property
    def repeats(self) -> bool:
        """See `Answering`."""
        return self.model.repeats

    @property
    def needs_history(self) -> bool:
        """See `Answering`: what else it takes of people may tell something."""
        return set(self.ready.examples.sets) == {find_owned(self.model, self.ready, self.layer)}

    def people(self, rows: Longs | None = None) -> Examples:
        """See `Answering`."""
        return self.ready.examples if rows is None else self.ready.examples.take(rows)

    def somebody(self, items: Ints) -> Examples:
        """See `Answering`."""
        n, sets = self._input(), {}
        for number, data_set in self.ready.examples.sets.items():
            if not data_set.sparse:
                raise DataError(
                    f"the network takes the dense data set {show(data_set.name)} of a customer, too; legal: customers "
                    "of the data"
                )
            units = self._input_units(data_set, items) if number == n else np.empty(0, np.int32)
            values = None if data_set.boolean else np.ones(len(units), np.float32)
            sets[number] = _set_of(data_set, Csr(np.array([0, len(units)]), units, data_set.width, values))
        return Examples(sets, "a history")

    def owned(self, people: Examples) -> Csr:
        """See `Answering`."""
        found = exclude_inputs(self.model, replace(self.ready, examples=people), self.layer)
        if found is None:
            return Csr(np.zeros(people.count + 1, np.int64), np.empty(0, np.int32), len(self.items))
        return found(np.arange(people.count)).sets()

    def without_each(self, person: Examples, most: int) -> tuple[Examples, Ints]:
        """See `Answering`."""
        n = self._input()
        one = person.sets[n].take(np.zeros(1, np.int64))
        rows = one.rows
        assert isinstance(rows, Csr), "it is the sparse one with the items"
        units, places = np.unique(rows.indices, return_index=True)
        days = one.days if one.last is None else one.last
        dropped = _latest(units, None if days is None else days[places], most)
        left, entries = _drop_each(rows, dropped)
        beside = entries_beside(one, BESIDE, entries)
        others = np.zeros(len(dropped), np.int64)
        sets = {number: data_set.take(others) for number, data_set in person.sets.items() if number != n}
        numbers = {name: item for item, name in enumerate(self.items)}
        names = one.features or tuple(map(str, range(one.width)))
        known = np.array([numbers.get(names[unit], -1) for unit in dropped], np.int32)
        order = sorted([*sets, n])  # as the layers are
        sets[n] = replace(_set_of(one, left), **beside)
        return Examples({number: sets[number] for number in order}, person.file), known

    def rank(self, people: Examples, limits: Limits, each: Each) -> Iterator[Ranked]:
        """See `Answering`."""
        excluded = (
            None if limits.owned else exclude_inputs(self.model, replace(self.ready, examples=people), self.layer)
        )
        some = limits.rankable & self.ready.rankable(self.layer)
        backend = processors(each)
        return rank(self.ready.network, people, self.layer, limits.k, backend, each, excluded, None, some)

    def strengths(self, people: Examples) -> Floats:
        """See `Answering`: the sums before the activation, of which saturated ones differ, too."""
        return processors().evaluator(self.ready.network).sums(people, self.layer)

    def _input(self) -> int:
        """Return the Input layer that takes what people have; DataError where none does."""
        n = find_owned(self.model, self.ready, self.layer)
        if n is None:
            raise DataError(
                "no sparse Input layer of the network has the items of its Output layer; legal: customers of the data"
            )
        return n

    def _input_units(self, data_set: DataSet, items: Ints) -> Ints:
        """Return the units of an Input layer that are these items."""
        if not data_set.features or data_set.features == self.items:
            return items
        units: Mapping[str, int] = {name: unit for unit, name in enumerate(data_set.features)}
        found = (units.get(self.items[item], -1) for item in items)
        return np.array(sorted(unit for unit in found if unit >= 0), np.int32)


def describe_recipe(recipe: Recipe) -> str:
    """Return what a model is, in words."""
    if recipe.family == BLEND:
        parts = zip(recipe.members, recipe.weights, strict=True)
        return f"a blend of {', '.join(member.family for member, weight in parts if weight)}"
    return WORDS.get(recipe.family, recipe.family)


def _set_of(like: DataSet, rows: Csr) -> DataSet:
    """Return other rows of a data set's units."""
    return DataSet(like.name, rows, like.features, dimensions=like.dimensions, ignore_zero=like.ignore_zero)


def _latest(units: Ints, days: Ints | None, most: int) -> Ints:
    """Return the units that were taken last, `most` of them, the last one first where days are known."""
    if days is None:
        return units[:most]
    return units[np.argsort(-days.astype(np.int64), kind="stable")[:most]]


def _drop_each(row: Csr, dropped: Ints) -> tuple[Csr, Longs]:
    """Return one row as often as there are units to drop, each time without one of them; and its entries' numbers."""
    kept = row.indices != dropped[:, None]
    entries = np.nonzero(kept)[1]
    values = None if row.values is None else row.values[entries]
    return Csr(offsets_of(kept.sum(axis=1)), row.indices[entries], row.width, values), entries
