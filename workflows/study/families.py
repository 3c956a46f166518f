"""The families that a trial may be of: their hyperparameters, where to look for them, and what is tried first.

In study.yaml a hyperparameter has its family's name before its own, as in `ease_l2`. The ranges are those in which good
settings were found on several shops; what is tried first is what an expert would try at once. Half-lives are in days.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from nnlib.contract import Recipe
from regiondag.study.space import Choice, Integer, Parameter, Point, Real, Space, Value

FAMILY = "family"  # the hyperparameter that says which
POPULARITY, DAYS, NETWORK, BLEND = "popularity", "days", "network", "blend"
INCUMBENT = "incumbent"  # in place of a family: the recipe in office, where no point of the space says it

_AGES = (Real("fit_half_life", 10.0, 1000.0, log=True), Real("ask_half_life", 10.0, 1000.0, log=True))
_OWN = (Choice("own_weight", (1, 3, 10, 30)), Choice("bias", (0.0, 0.1, 0.3)), Choice("bias_scale", ("raw", "log")))
SPACES: Mapping[str, Space] = {
    POPULARITY: (Real("half_life", 3.0, 1000.0, log=True), Real("own", 0.0, 1.0)),
    "knn": (Integer("k", 30, 500, log=True), Real("q", 0.2, 0.6), *_AGES, *_OWN),
    "ease": (Real("l2", 30.0, 3000.0, log=True), *_AGES, *_OWN),
    "graph": (Real("item_exponent", 0.2, 0.6), Real("low_pass", 0.03, 1.0, log=True), *_AGES),
    "elsa": (Integer("dims", 64, 512, log=True), Integer("epochs", 3, 15), *_AGES),
    "ials": (
        Integer("dims", 32, 128, log=True),
        Real("alpha", 0.03, 1.0, log=True),
        Real("l2", 1e-3, 3e-2, log=True),
        *_AGES,
    ),
    DAYS: (
        Real("l2", 100.0, 10_000.0, log=True),
        Real("fit_half_life", 20.0, 1000.0, log=True),
        Real("ask_half_life", 100.0, 10_000.0, log=True),
        Real("ahead_half_life", 5.0, 100.0, log=True),
    ),
}
FAMILIES = (*SPACES, NETWORK, BLEND)
# Tried before anything is asked of the search; popularity several times, as all others must beat the best of it.
FIRST: Mapping[str, Sequence[Mapping[str, Value]]] = {
    POPULARITY: (
        {"half_life": 10.0, "own": 0.5},
        {"half_life": 40.0, "own": 0.5},
        {"half_life": 1000.0, "own": 0.5},
    ),
    "knn": ({"k": 100, "q": 0.35, "fit_half_life": 40.0, "ask_half_life": 170.0},),
    "ease": ({"l2": 300.0, "fit_half_life": 40.0, "ask_half_life": 80.0},),
    "graph": ({"item_exponent": 0.4, "low_pass": 0.1, "fit_half_life": 60.0, "ask_half_life": 80.0},),
    "elsa": ({"dims": 256, "epochs": 6, "fit_half_life": 60.0, "ask_half_life": 80.0},),
    "ials": ({"dims": 64, "alpha": 0.3, "l2": 0.003, "fit_half_life": 40.0, "ask_half_life": 80.0},),
    DAYS: ({"l2": 1000.0, "fit_half_life": 60.0, "ask_half_life": 10_000.0, "ahead_half_life": 20.0},),
}
_PLAIN: Mapping[str, Value] = {"own_weight": 1, "bias": 0.0, "bias_scale": "raw"}


def list_parameters() -> dict[str, Parameter]:
    """Return all hyperparameters of families but networks, by the names that they have in study.yaml."""
    return {f"{family}_{one.name}": _named(family, one) for family, space in SPACES.items() for one in space}


def space_of(families: Iterable[str], given: Space = ()) -> Space:
    """Return the space in which `family` is a choice, and everything else exists with its family alone.

    `given` are the hyperparameters of study.yaml: those of a family stand in place of the table's, the others are the
    network's.
    """
    families = [family for family in families if family != BLEND]
    known, wished = list_parameters(), {parameter.name: parameter for parameter in given}
    space: list[Parameter] = [Choice(FAMILY, tuple(families))]
    for name, parameter in known.items():
        if parameter.when[0][1][0] in families:
            space.append(replace(wished.get(name, parameter), when=parameter.when))
    if NETWORK in families:
        space += [replace(p, when=(*_when(NETWORK), *p.when)) for p in given if p.name not in known]
    return tuple(space)


def network_space(space: Space) -> Space:
    """Return what is left of a space for networks, without what says that a trial is one."""
    if all(parameter.name != FAMILY for parameter in space):
        return space
    [mine] = _when(NETWORK)
    return tuple(replace(p, when=tuple(w for w in p.when if w != mine)) for p in space if mine in p.when)


def first_points(families: Iterable[str], space: Space) -> tuple[Point, ...]:
    """Return what is tried first: popularity's points, then each family's own, as far as the space holds them."""
    wanted, names = set(families), {parameter.name for parameter in space}
    found: list[Point] = []
    for family, points in FIRST.items():
        if family in wanted:
            plain = {name: value for name, value in _PLAIN.items() if f"{family}_{name}" in names}
            found += [point_of(Recipe(family, {**point, **plain})) for point in points]
    return tuple(point for point in found if set(point) <= names)


def recipe_at(point: Point, seed: int) -> Recipe:
    """Return the recipe of a point of a family that is no network."""
    family = str(point[FAMILY])
    values = {name.removeprefix(f"{family}_"): value for name, value in point.items() if name != FAMILY}
    return Recipe(family, values, seed)


def point_of(recipe: Recipe) -> dict[str, Value]:
    """Return the point of a recipe that is no blend."""
    return {FAMILY: recipe.family, **{f"{recipe.family}_{name}": v for name, v in recipe.hyperparameters.items()}}


def _named(family: str, parameter: Parameter) -> Parameter:
    return replace(parameter, name=f"{family}_{parameter.name}", when=_when(family))


def _when(family: str) -> tuple[tuple[str, tuple[Value, ...]], ...]:
    return ((FAMILY, (family,)),)
