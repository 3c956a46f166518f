"""Ask a study's champions for customers, wherever these are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regiondag.errors import RegiondagError, UsageError
from regiondag.recommend.answers_file import Told
from regiondag.recommend.find_customers import find_near, place
from regiondag.recommend.region import Served
from regiondag.run.lookup import find_region
from regiondag.util.text import list_some

if TYPE_CHECKING:
    from nnlib.prediction.recommender import Recommender

TOGETHER = 1000  # customers who are asked about at a time


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted for each customer."""

    k: int = 10
    owned: bool | None = None  # None: as the data say
    only: tuple[str, ...] | None = None
    never: tuple[str, ...] = ()
    because: int = 0


def find_slugs(served: Served, text: str | None) -> list[str]:
    """Return the region that is meant, or all that have a champion; UsageError or RegiondagError for none."""
    if text is None:
        return list(served.regions)
    known = {**served.without_champion, **served.regions}
    slug = find_region(known, text)
    if slug not in served.regions:
        served.find(slug)  # says that it has no champion, and what to do
    return [slug]


def ask_customers(served: Served, slugs: Sequence[str], customers: Sequence[str], wish: Wish) -> list[Told]:
    """Return what is recommended to customers, in their order, each by every region that knows him.

    For one whom none of the regions knows it is what is popular in the largest of them, with names that are near his.
    """
    samples = _read_samples(served, slugs)
    by_region, strangers = place(customers, samples)
    largest = max(slugs, key=lambda slug: len(samples[slug]))
    near = {name: tuple(find_near(name, (one for slug in slugs for one in samples[slug]))) for name in strangers}
    if strangers:
        by_region[largest] = by_region.get(largest, []) + strangers
    told: list[Told] = []
    known_items = _Known(wish)
    for slug, names in by_region.items():
        recommender = served.open(slug)
        known_items.look(recommender)
        told += _ask(served, slug, recommender, names, wish, near)
    known_items.check()
    order = {name: n for n, name in enumerate(customers)}
    return sorted(told, key=lambda one: order[one.answer.customer])


def ask_everybody(served: Served, slugs: Sequence[str], wish: Wish) -> Iterator[Told]:
    """Yield what is recommended to all customers of regions, one region after the other."""
    for slug in slugs:
        recommender = served.open(slug)
        for low in range(0, len(recommender.customers), TOGETHER):
            some = recommender.customers[low : low + TOGETHER]
            yield from _ask(served, slug, recommender, some, wish, {})


class _Known:
    """Whether filters name any item that one of the regions asked has: else they are mistyped."""

    def __init__(self, wish: Wish) -> None:
        self.wish, self.never, self.example = wish, False, ""

    def look(self, recommender: Recommender) -> None:
        """Take a region's items in."""
        self.never = self.never or not set(self.wish.never).isdisjoint(recommender.items)
        self.example = recommender.items[0]

    def check(self) -> None:
        """Raise UsageError where no item of a filter is known anywhere."""
        if self.wish.never and not self.never:
            raise UsageError(
                f"--never: no such item: {list_some(self.wish.never)}; legal: ids of items, such as {self.example}"
            )


def _ask(
    served: Served,
    slug: str,
    recommender: Recommender,
    customers: Sequence[str],
    wish: Wish,
    near: dict[str, tuple[str, ...]],
) -> Iterator[Told]:
    from nnlib.errors import NnlibError

    champion = served.registry.current(slug)
    version = champion.version if champion else ""
    try:
        answers = recommender.recommend(
            customers, wish.k, owned=wish.owned, only=wish.only, never=wish.never, because=wish.because
        )
    except NnlibError as error:
        text = str(error)
        if text.startswith(("only:", "k:")):
            raise UsageError(f"--{text}" if text.startswith("only:") else f"-{text}") from error
        raise RegiondagError(f"region {served.regions[slug]!r}: {text}") from error
    for answer in answers:
        yield Told(served.regions[slug], slug, version, answer, recommender.descriptions, near.get(answer.customer, ()))


def _read_samples(served: Served, slugs: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the names of each region's customers, without its model."""
    from nnlib.errors import NnlibError
    from nnlib.prediction.recommender import read_samples

    found: dict[str, Sequence[str]] = {}
    for slug in slugs:
        data: Path = served.find_data(slug)
        try:
            found[slug] = read_samples(data)
        except NnlibError as error:
            raise RegiondagError(f"region {served.regions[slug]!r}: {error}") from error
    return found
