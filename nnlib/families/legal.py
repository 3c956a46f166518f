"""What each hyperparameter of each family may be, and recipes checked by it: all that is wrong is said at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from nnlib.contract import Recipe
from nnlib.data.events import FOREVER
from nnlib.errors import NnlibError
from nnlib.families import FAMILIES, family_of
from nnlib.families.family import Value
from nnlib.spec.json_section import nearest, show

BLEND, LOGISTIC = "blend", "logistic"


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `low` to `high`, both legal."""

    low: float
    high: float
    whole: bool = False  # whole numbers alone

    def __str__(self) -> str:
        return f"a {'whole ' if self.whole else ''}number from {self.low:g} to {self.high:g}"


Legal = Range | tuple[str, ...]  # a number in a range, or one of some texts

HALF_LIFE = Range(0.1, FOREVER)  # days
AGES: Mapping[str, Legal] = {"fit_half_life": HALF_LIFE, "ask_half_life": HALF_LIFE}
REGIONAL: Mapping[str, Legal] = {
    **AGES,
    "own_weight": Range(1, 1000),
    "bias": Range(0, 1000),
    "bias_scale": ("raw", "log"),
}
LEGAL: Mapping[str, Mapping[str, Legal]] = {
    "popularity": {"half_life": HALF_LIFE, "own": Range(0, 1)},
    "knn": {"k": Range(1, 10_000, whole=True), "q": Range(0, 1), **REGIONAL},
    "ease": {"l2": Range(1e-3, 1e7), **REGIONAL},
    "graph": {
        "customer_exponent": Range(0, 2),
        "item_exponent": Range(0, 2),
        "low_pass": Range(0, 1000),
        "vectors": Range(1, 10_000, whole=True),
        "sharpen": Range(0, 100),
        **AGES,
    },
    "elsa": {
        "dims": Range(1, 10_000, whole=True),
        "epochs": Range(1, 10_000, whole=True),
        "learning_rate": Range(1e-7, 10),
        "batch": Range(1, 1_000_000, whole=True),
        **AGES,
    },
    "ials": {
        "dims": Range(1, 10_000, whole=True),
        "sweeps": Range(1, 10_000, whole=True),
        "alpha": Range(1e-6, 1000),
        "l2": Range(1e-9, 1e6),
        "nu": Range(0, 2),
        **AGES,
    },
    "days": {"l2": Range(1e-3, 1e7), "ahead_half_life": HALF_LIFE, **AGES},
    "again": {"half_life": HALF_LIFE},
    "logistic": {"l2": Range(1e-3, 1e7)},
}


def complete_recipe(recipe: Recipe) -> Recipe:
    """Return a recipe with all hyperparameters, checked; NnlibError names every one that is not legal."""
    if recipe.family == BLEND:
        if recipe.hyperparameters or not recipe.members or not any(recipe.weights):
            raise NnlibError(f"{BLEND}: legal: one member at least, a weight other than 0, and no hyperparameters")
        if len(recipe.members) != len(recipe.weights) or any(member.members for member in recipe.members):
            raise NnlibError(f"{BLEND}: legal: one weight a member, and no members of members")
        return replace(recipe, members=tuple(map(complete_recipe, recipe.members)))
    if recipe.family not in FAMILIES:
        hint = nearest(recipe.family, FAMILIES) or f", legal: {', '.join(FAMILIES)}"
        raise NnlibError(f"family: {show(recipe.family)} is none that can be fitted{hint}")
    if recipe.members or recipe.weights:
        raise NnlibError(f"{recipe.family}: has members, legal: none but in a {BLEND}")
    legal = LEGAL[recipe.family]
    wrong = list(_find_wrong(recipe, legal))
    if wrong:
        raise NnlibError("\n".join(wrong))
    given = {**family_of(recipe.family).DEFAULTS, **recipe.hyperparameters}
    return replace(recipe, hyperparameters={name: _as(legal[name], value) for name, value in given.items()})


def _find_wrong(recipe: Recipe, legal: Mapping[str, Legal]) -> Iterator[str]:
    for name, value in recipe.hyperparameters.items():
        if name not in legal:
            hint = nearest(name, legal) or f", legal: {', '.join(legal)}"
            yield f"{recipe.family}: no hyperparameter {show(name)}{hint}"
        elif not _is_legal(value, legal[name]):
            may = legal[name]
            yield (
                f"{recipe.family}: {name}: seen {show(value)}, legal: "
                f"{may if isinstance(may, Range) else ', '.join(may)}"
            )


def _is_legal(value: Value, legal: Legal) -> bool:
    if not isinstance(legal, Range):
        return value in legal
    if isinstance(value, bool | str) or (legal.whole and not isinstance(value, int)):
        return False
    return legal.low <= value <= legal.high


def _as(legal: Legal, value: Value) -> Value:
    """Return a number of the kind that the family takes: 3 and 3.0 are the same half-life, and the same recipe."""
    return float(value) if isinstance(legal, Range) and not legal.whole else value
