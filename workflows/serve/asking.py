"""Questions about customers become messages, by the champion that serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from regiondag.errors import RegiondagError
from regiondag.registry.read import open_registry
from regiondag.serve.messages import Answered, Answers, Figure, Item, OneAnswer, RegionFacts, RegionLine, Wishes
from regiondag.serve.store import Region, Serving

if TYPE_CHECKING:
    from nnlib.prediction.recommender import Answer, Recommender

HISTORY = ""  # whose id is not known


def answer_one(serving: Serving, customer: str, wishes: Wishes) -> OneAnswer:
    """Return the best items of one customer."""
    champion = serving.champion
    [found] = answer_customers(serving.recommender, [customer], wishes)
    return OneAnswer(
        champion.study, champion.slug, champion.version, found.customer, found.known, found.by, found.items
    )


def wrap(serving: Serving, answers: Sequence[Answered]) -> Answers:
    """Return answers with what they are answers of."""
    champion = serving.champion
    return Answers(champion.study, champion.slug, champion.version, tuple(answers))


def answer_customers(recommender: Recommender, customers: Sequence[str], wishes: Wishes) -> list[Answered]:
    """Return the best items of some customers, in their order."""
    found = recommender.recommend(
        customers,
        wishes.k,
        owned=wishes.owned,
        only=wishes.only or None,
        never=wishes.never,
        because=wishes.because,
    )
    return [_answered(recommender, one) for one in found]


def answer_history(recommender: Recommender, history: Sequence[str], wishes: Wishes) -> list[Answered]:
    """Return the best items of somebody who has bought these and is otherwise unknown."""
    found = recommender.recommend_to_history(
        history,
        wishes.k,
        owned=wishes.owned,
        only=wishes.only or None,
        never=wishes.never,
        because=wishes.because,
    )
    return [_answered(recommender, found)]


def _answered(recommender: Recommender, answer: Answer) -> Answered:
    names = recommender.descriptions
    items = tuple(Item(one.item, names.get(one.item, ""), float(one.score), one.because) for one in answer.items)
    return Answered(answer.customer, answer.known, answer.by, items)


def line_of(region: Region) -> RegionLine:
    """Return a region as a line of the list."""
    serving = region.serving
    version, promoted = (serving.champion.version, serving.champion.promoted) if serving else (None, None)
    return RegionLine(region.place.study, region.slug, region.name, region.state, version, promoted, region.problem)


def facts_of(region: Region) -> RegionFacts:
    """Return what serves a region, and how good it is."""
    serving = region.serving
    champion = serving.champion if serving else None
    facts: Mapping[str, Any] = champion.facts if champion else {}
    recipe = facts.get("recipe")
    return RegionFacts(
        study=region.place.study,
        region=region.slug,
        name=region.name,
        state=region.state,
        version=champion.version if champion else None,
        problem=region.problem,
        promoted=champion.promoted if champion else None,
        loaded=serving.loaded if serving else None,
        pinned=_is_pinned(region),
        run=champion.run if champion else "",
        sha256=champion.sha256 if champion else "",
        family=str(recipe.get("family", "")) if isinstance(recipe, dict) else "",
        test=_figures(facts),
        test_customers=_whole(facts.get("customers")),
        fitted_until=_day(facts.get("fitted_until")),
        customers=len(serving.recommender.customers) if serving else None,
        items=len(serving.recommender.items) if serving else None,
    )


def _is_pinned(region: Region) -> bool:
    """Ask the registry: pins come and go while a champion serves."""
    try:
        return open_registry(region.place.runs, region.place.study).is_pinned(region.slug)
    except RegiondagError:
        return False


def _figures(facts: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the metrics on the test window; what is no number in the file is None."""
    test, intervals, popularity = (_mapping(facts, name) for name in ("test", "intervals", "popularity"))
    found = {}
    for name, value in test.items():
        ends = intervals.get(name)
        low, high = ends if isinstance(ends, list) and len(ends) == 2 else (None, None)
        found[str(name)] = Figure(*map(_number, (value, low, high, popularity.get(name))))
    return found


def _mapping(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = facts.get(name)
    return found if isinstance(found, dict) else {}


def _number(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")
    return float(value) if known else None  # type: ignore[arg-type]


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _day(value: object) -> str | None:
    """Return the day of so many days since 1970, as a date."""
    if type(value) is not int or not 0 <= value < 100_000:
        return None
    return (datetime.fromtimestamp(0, UTC) + timedelta(days=value)).date().isoformat()
