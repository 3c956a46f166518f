"""How good a champion is, and what it is, from its champion.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nnlib.contract import recipe_of
from nnlib.spec.metric_names import keep_in_range
from regiondag.registry.read import Champion
from regiondag.study.families import describe_recipe, name_floor
from regiondag.util.text import show_value

LARGEST = 1e9  # beyond it a figure is none; nor is one that is not finite
BESIDE = ("floor", "simple", "bestsellers")  # what stands beside what serves


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric of the test window by what serves, beside what simpler models reach on the same customers."""

    metric: str
    value: float
    low: float | None = None  # ends of the 95 % interval
    high: float | None = None
    floor: float | None = None  # by what had to be beaten
    simple: float | None = None  # by the best that is no blend, network or popularity
    bestsellers: float | None = None
    floor_name: str = name_floor()  # what that was, in words


def recipe_in_words(champion: Champion) -> str:
    """Return what serves, in words; a network by its hyperparameters."""
    raw = champion.facts.get("recipe")
    if raw is None:
        values = texts_of(champion.facts.get("hyperparameters"))
        kind = "program" if champion.of_program else "network"
        return ", ".join([kind, *(f"{name} {value}" for name, value in values.items() if name != "family")])
    try:
        return describe_recipe(recipe_of(raw))
    except ValueError as error:
        return f"a recipe that cannot be read ({error})"


def figures_of(champion: Champion) -> tuple[Figure, ...]:
    """Return the test's metrics, the one that the study was tuned by first."""
    facts = champion.facts
    tested, intervals = numbers_of(facts.get("test")), facts.get("intervals")
    compared = facts.get("compared")
    others = {name: numbers_of(of) for name, of in compared.items()} if isinstance(compared, dict) else {}
    popular, floor = numbers_of(facts.get("popularity")), name_floor_of(champion)
    first = metric_of(champion)
    names = sorted(tested, key=lambda name: (name != first, name))
    ends = intervals if isinstance(intervals, dict) else {}
    return tuple(
        Figure(
            name,
            tested[name],
            *_ends(ends.get(name)),
            floor=others.get("floor", {}).get(name),
            simple=others.get("simple", {}).get(name),
            bestsellers=popular.get(name),
            floor_name=floor,
        )
        for name in names
    )


def name_floor_of(champion: Champion) -> str:
    """Return what had to be beaten, in words."""
    raw = champion.facts.get("floor_recipe")
    try:
        return name_floor(recipe_of(raw) if raw else None)
    except ValueError:  # who reads the champion's own recipe says that its file is damaged
        return name_floor()


def metric_of(champion: Champion) -> str:
    """Return the metric by which the study was tuned."""
    metric = champion.facts.get("metric")
    return str(metric.get("name", "")) if isinstance(metric, dict) else ""


def customers_of(champion: Champion) -> int:
    """Return on how many customers a version was tested."""
    found = champion.facts.get("customers")
    return found if isinstance(found, int) else 0


def half_of(figure: Figure) -> float | None:
    """Return half of the 95 % interval, which Student's are symmetrical to the mean."""
    return None if figure.low is None or figure.high is None else (figure.high - figure.low) / 2


def name_beside(name: str, floor: str) -> str:
    """Return one of BESIDE in words, `floor` being what the floor is called."""
    return {"floor": floor, "simple": "best simple"}.get(name, name)


def show_interval(figure: Figure) -> str:
    """Return the 95 % interval.

    >>> show_interval(Figure("ndcg@20", 0.2, -0.01, 0.4)), show_interval(Figure("ndcg@20", 0.2))
    ('0.000 to 0.400', '-')
    """
    if figure.low is None or figure.high is None:
        return "-"
    low, high = (keep_in_range(figure.metric, end) for end in (figure.low, figure.high))
    return f"{low:.3f} to {high:.3f}"


def show_figure_in_full(figure: Figure) -> str:
    """Return a figure with its interval.

    >>> show_figure_in_full(Figure("ndcg@20", 0.2, 0.1, 0.3))
    '0.2000 (0.100 to 0.300)'
    """
    interval = show_interval(figure)
    return f"{figure.value:.4f}" + ("" if interval == "-" else f" ({interval})")


def texts_of(raw: object) -> dict[str, str]:
    """Return a mapping of champion.json as texts; none where it is no mapping."""
    known = raw.items() if isinstance(raw, Mapping) else ()
    return {str(key): show_value(value) for key, value in known if isinstance(value, str | int | float)}


def numbers_of(raw: object) -> dict[str, float]:
    """Return a mapping of champion.json as numbers; none where it is no mapping."""
    known = raw.items() if isinstance(raw, Mapping) else ()
    return {str(key): float(value) for key, value in known if _is_number(value)}


def _ends(raw: object) -> tuple[float | None, float | None]:
    if isinstance(raw, list | tuple) and len(raw) == 2 and all(map(_is_number, raw)):
        return float(raw[0]), float(raw[1])
    return None, None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < LARGEST
