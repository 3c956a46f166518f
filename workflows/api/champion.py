"""A region's champion: what it is, how good it is, and what it recommends."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from regiondag.recommend.region import Served
from regiondag.registry.read import Champion as Version

if TYPE_CHECKING:
    from nnlib.prediction.recommender import Answer, Recommender

COLUMNS = ("region", "customer", "known", "rank", "item", "name", "score", "because")


@dataclass(frozen=True)
class Champion:
    """One version of a region's champion. `facts` are those of its champion.json."""

    _version: Version
    _served: Served

    def __repr__(self) -> str:
        """Say which one it is."""
        return f"<Champion {self.region!r} {self.version}: {self.recipe}>"

    @property
    def region(self) -> str:
        """Name of the region."""
        return self._version.region

    @property
    def version(self) -> str:
        """Its number in the registry, of which a later one is larger."""
        return self._version.version

    @property
    def run(self) -> str:
        """Name of the run that made it."""
        return self._version.run

    @property
    def facts(self) -> Mapping[str, Any]:
        """All that is known of it: recipe, metrics, intervals, customers, data, digests."""
        return self._version.facts

    @property
    def metrics(self) -> Mapping[str, float]:
        """What its recipe reached on the test window, by metric."""
        return dict(self.facts["test"])

    @cached_property
    def recipe(self) -> str:
        """What it is made by, in words."""
        from nnlib.contract import recipe_of
        from regiondag.study.families import describe_recipe

        raw = self.facts.get("recipe")
        return describe_recipe(recipe_of(raw)) if raw else "program" if self._version.of_program else "network"

    @cached_property
    def recommender(self) -> Recommender:
        """The model with the histories of the region's customers, opened once."""
        return self._served.open_sources(self._served.sources_of(self._version))

    def recommend(
        self,
        customers: str | Sequence[str],
        k: int = 10,
        *,
        owned: bool | None = None,
        only: Collection[str] | None = None,
        never: Collection[str] = (),
        because: int = 0,
        library: str = "pandas",
    ) -> Any:
        """Return the `k` best items of each customer as a DataFrame, a row an item, with names and scores.

        The options are those of `nnlib.prediction.recommender`; `library` is pandas, polars or arrow. Somebody whom
        the data do not know gets what is popular, and `known` says so.
        """
        from regiondag.util.frames import make_frame

        answers = self.ask(customers, k, owned=owned, only=only, never=never, because=because)
        names = self.recommender.descriptions
        rows = (
            (*about, rank, one.item, names.get(one.item, ""), one.score, list(one.because))
            for answer in answers
            for about in [(self.region, answer.customer, answer.known)]
            for rank, one in enumerate(answer.items, 1)
        )
        return make_frame([dict(zip(COLUMNS, row, strict=True)) for row in rows], COLUMNS, library)

    def ask(self, customers: str | Sequence[str], k: int = 10, **options: Any) -> list[Answer]:
        """Return the same as plain objects, an answer a customer."""
        wanted = [customers] if isinstance(customers, str) else list(customers)
        return self.recommender.recommend(wanted, k, **options)
