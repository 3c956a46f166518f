"""The families that a trial may be of: their hyperparameters, where to look for them, and what is tried first.

In study.yaml a hyperparameter has its family's name before its own, as in `ease_l2`; those of `SHARED` have one name
for all families that have them, so that a search learns from each how fast the purchases of this shop grow old. The
ranges are those in which good settings were found on several shops; what is tried first is what an expert would try at
once, for a shop whose season matters, for one whose purchases hardly grow old, and for regions that differ. Half-lives
are in days.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from nnlib.contract import Recipe
from regiondag.study.space import (
    Choice,
    Integer,
    Parameter,
    Point,
    Real,
    Space,
    Value,
    is_legal,
    list_extreme_values,
)
from regiondag.util.text import show_value

FAMILY = "family"  # the hyperparameter that says which
POPULARITY, DAYS, AGAIN, NETWORK, BLEND = "popularity", "days", "again", "network", "blend"
LOGISTIC = "logistic"  # in no search: what networks of dense inputs are held against
PROGRAM = "program"  # no family: what is served was made by a program of the user's
INCUMBENT = "incumbent"  # in place of a family: the recipe in office, where no point of the space says it
REGION = "region"  # beside it: in office in this region alone

_LIKENESS = ("knn", "ease")
_AGED = (*_LIKENESS, "graph", "elsa", "ials")
SPACES: Mapping[str, Space] = {
    POPULARITY: (Real("half_life", 3.0, 1000.0, log=True), Real("own", 0.0, 1.0)),
    "knn": (Integer("k", 30, 500, log=True), Real("q", 0.2, 0.6)),
    "ease": (Real("l2", 30.0, 3000.0, log=True),),
    "graph": (
        Real("item_exponent", 0.2, 0.6),
        Real("low_pass", 0.03, 1.0, log=True),
        Integer("vectors", 32, 512, log=True),
    ),
    "elsa": (Integer("dims", 64, 512, log=True), Integer("epochs", 3, 15)),
    "ials": (
        Integer("dims", 32, 128, log=True),
        Real("alpha", 0.03, 1.0, log=True),
        Real("l2", 1e-3, 3e-2, log=True),
    ),
    DAYS: (
        Real("l2", 100.0, 10_000.0, log=True),
        Real("fit_half_life", 20.0, 1000.0, log=True),
        Real("ask_half_life", 100.0, 10_000.0, log=True),
        Real("ahead_half_life", 5.0, 100.0, log=True),
    ),
    AGAIN: (Real("half_life", 10.0, 1000.0, log=True),),
}
SHARED: Mapping[Parameter, Sequence[str]] = {
    Real("fit_half_life", 10.0, 10_000.0, log=True): _AGED,
    Real("ask_half_life", 10.0, 10_000.0, log=True): _AGED,
    Choice("own_weight", (1, 3, 10, 30)): _LIKENESS,
    Choice("bias", (0.0, 0.1, 0.3)): _LIKENESS,
    Choice("bias_scale", ("raw", "log")): _LIKENESS,
}
# What a recipe need not say: what no search varies, as the families have it, and what is as plain as it can be.
USUAL: Mapping[str, Mapping[str, Value]] = {
    "knn": {"own_weight": 1, "bias": 0.0, "bias_scale": "raw"},
    "ease": {"own_weight": 1, "bias": 0.0, "bias_scale": "raw"},
    "graph": {"customer_exponent": 0.4, "sharpen": 0.0},
    "elsa": {"learning_rate": 0.05, "batch": 256},
    "ials": {"sweeps": 6, "nu": 1.0},
}
FAMILIES = (*SPACES, NETWORK, BLEND)
_SEASON, _LASTING = {"fit_half_life": 40.0, "ask_half_life": 80.0}, {"fit_half_life": 10_000.0, "ask_half_life": 80.0}
_PLAIN = USUAL["knn"]
_REGIONAL: Mapping[str, Value] = {"own_weight": 10}  # where regions differ
# Tried before anything is asked of the search, the likeliest first, as short searches try no more; popularity several
# times, as all others must beat the best of it.
FIRST: Sequence[tuple[str, Mapping[str, Value]]] = (
    (POPULARITY, {"half_life": 10.0, "own": 0.5}),
    ("ease", {"l2": 300.0, **_SEASON, **_PLAIN}),
    (DAYS, {"l2": 1000.0, "fit_half_life": 60.0, "ask_half_life": 10_000.0, "ahead_half_life": 20.0}),
    ("graph", {"item_exponent": 0.4, "low_pass": 0.1, "vectors": 64, **_LASTING}),
    (AGAIN, {"half_life": 170.0}),
    (POPULARITY, {"half_life": 1000.0, "own": 0.5}),
    ("knn", {"k": 100, "q": 0.35, **_SEASON, **_PLAIN}),
    ("graph", {"item_exponent": 0.4, "low_pass": 0.1, "vectors": 64, **_SEASON}),
    ("ease", {"l2": 300.0, **_LASTING, **_PLAIN}),
    (POPULARITY, {"half_life": 40.0, "own": 0.5}),
    ("knn", {"k": 100, "q": 0.35, **_LASTING, **_PLAIN, **_REGIONAL, "bias": 0.1, "bias_scale": "log"}),
    ("ease", {"l2": 300.0, **_LASTING, **_PLAIN, **_REGIONAL}),
    (POPULARITY, {"half_life": 1000.0, "own": 1.0}),
    ("ials", {"dims": 64, "alpha": 0.3, "l2": 0.003, **_LASTING}),
    ("elsa", {"dims": 256, "epochs": 6, **_LASTING}),
)


def list_parameters() -> dict[str, Parameter]:
    """Return all hyperparameters of families but networks, by the names that they have in study.yaml."""
    own = {
        name: replace(one, name=name, when=_when(family))
        for family, space in SPACES.items()
        for one in space
        for name in [name_in_study(family, one.name)]
    }
    return own | {one.name: replace(one, when=_when(*families)) for one, families in SHARED.items()}


def name_in_study(family: str, name: str) -> str:
    """Return what study.yaml calls a hyperparameter of a family.

    >>> name_in_study("ease", "l2"), name_in_study("ease", "fit_half_life")
    ('ease_l2', 'fit_half_life')
    """
    shared = any(one.name == name and family in families for one, families in SHARED.items())
    return name if shared else f"{family}_{name}"


def space_of(families: Iterable[str], given: Space = ()) -> Space:
    """Return the space in which `family` is a choice, and everything else exists with its families alone.

    `given` are the hyperparameters of study.yaml: those of families stand in place of the table's, the others are the
    network's.
    """
    families = [family for family in families if family != BLEND]
    known, wished = list_parameters(), {parameter.name: parameter for parameter in given}
    space: list[Parameter] = [Choice(FAMILY, tuple(families))]
    for name, parameter in known.items():
        [(_, having)] = parameter.when
        if some := [str(family) for family in having if family in families]:
            space.append(replace(wished.get(name, parameter), when=_when(*some)))
    if NETWORK in families:
        space += [replace(p, when=(*_when(NETWORK), *p.when)) for p in given if p.name not in known]
    return tuple(space)


def network_space(space: Space) -> Space:
    """Return what is left of a space for networks, without what says that a trial is one."""
    if all(parameter.name != FAMILY for parameter in space):
        return space
    [mine] = _when(NETWORK)
    return tuple(replace(p, when=tuple(w for w in p.when if w != mine)) for p in space if mine in p.when)


def first_points(families: Iterable[str], space: Space, alone: bool = False) -> tuple[Point, ...]:
    """Return what is tried first: `FIRST`, each value moved into the range that the space has.

    Of a region `alone`, whose history is no other's, no customers are its own more than others.
    """
    wanted, known = set(families), {parameter.name: parameter for parameter in space}
    points = [point_of(Recipe(family, point)) for family, point in FIRST if family in wanted]
    if alone:
        points = [{name: 1 if name == "own_weight" else value for name, value in p.items()} for p in points]
    found = [
        {name: _move_inside(known[name], value) for name, value in p.items()}
        for p in points
        if p.keys() <= known.keys()
    ]
    return tuple(point for number, point in enumerate(found) if point not in found[:number])


def _move_inside(parameter: Parameter, value: Value) -> Value:
    if is_legal(parameter, value):
        return value
    legal = list_extreme_values(parameter)
    return legal[0] if isinstance(value, str) else min(legal, key=lambda one: isinstance(one, str) or abs(one - value))


def drop_repeated(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return the points that are not the same as one before on data without times, where half-lives say nothing."""
    found: dict[tuple[tuple[str, Value], ...], Point] = {}
    for point in points:
        said = {name: value for name, value in point.items() if not name.endswith("half_life")}
        found.setdefault(tuple(said.items()), point)
    return tuple(found.values())


def recipe_at(point: Point, seed: int) -> Recipe:
    """Return the recipe of a point of a family that is no network."""
    family = str(point[FAMILY])
    values = {name.removeprefix(f"{family}_"): value for name, value in point.items() if name != FAMILY}
    return Recipe(family, values, seed)


def point_of(recipe: Recipe) -> dict[str, Value]:
    """Return the point of a recipe that is no blend."""
    values = recipe.hyperparameters.items()
    return {FAMILY: recipe.family, **{name_in_study(recipe.family, name): value for name, value in values}}


def describe_recipe(recipe: Recipe) -> str:
    """Return what a recipe is, in words: what is searched for, and what else is not as usual, in three digits.

    >>> describe_recipe(Recipe("blend", members=(Recipe("ease"), Recipe("popularity")), weights=(1.0, 0.5)))
    'blend of 1 ease, 0.5 popularity'
    >>> describe_recipe(Recipe("graph", {"ask_half_life": 15.7321, "sharpen": 0.0, "low_pass": 0.1, "vectors": 32}))
    'graph, low_pass 0.1, vectors 32, ask_half_life 15.7'
    """
    if recipe.members:
        weights = recipe.weights or (None,) * len(recipe.members)  # none: they are still to be found
        members = zip(weights, recipe.members, strict=True)
        return f"{recipe.family} of {', '.join(_describe_member(weight, one) for weight, one in members)}"
    shared = [parameter.name for parameter, families in SHARED.items() if recipe.family in families]
    searched = [*(parameter.name for parameter in SPACES.get(recipe.family, ())), *shared]
    usual, values = USUAL.get(recipe.family, {}), recipe.hyperparameters
    names = [name for name in sorted(values, key=[*searched, *values].index) if usual.get(name) != values[name]]
    return ", ".join([recipe.family, *(f"{name} {show_value(recipe.hyperparameters[name])}" for name in names)])


def name_floor(floor: Recipe | None = None) -> str:
    """Return what everything else has to beat, in words; None is the best popularity, or the usual one.

    >>> name_floor(), name_floor(Recipe("logistic"))
    ('recent popularity', 'logistic regression')
    """
    return "logistic regression" if floor is not None and floor.family == LOGISTIC else "recent popularity"


def name_floors(names: Iterable[str]) -> str:
    """Return a word that is true of the floors of several regions, by what each is called.

    >>> name_floors(["recent popularity"] * 2), name_floors(["recent popularity", "logistic regression"])
    ('recent popularity', 'the floor')
    """
    known = set(names) or {name_floor()}
    return known.pop() if len(known) == 1 else "the floor"


def _describe_member(weight: float | None, member: Recipe) -> str:
    return member.family if weight is None else f"{show_value(weight)} {member.family}"


def _when(*families: str) -> tuple[tuple[str, tuple[Value, ...]], ...]:
    return ((FAMILY, families),)
