"""The recipe of each trial, and of what is compared with the winner at the end. Pure."""

from __future__ import annotations

from nnlib.contract import Recipe
from regiondag.run.history import History, TrialOutcome
from regiondag.run.region_spec import RegionSpec
from regiondag.study.families import (
    BLEND,
    FAMILY,
    INCUMBENT,
    NETWORK,
    POPULARITY,
    REGION,
    describe_recipe,
    recipe_at,
)
from regiondag.study.space import Point

FLOOR = "floor"  # as results call what everything else has to beat
# Bestsellers of all times, which everybody knows; the floor is what a region's spec says, or else the best popularity
# that was found, or the usual one.
EVER, USUAL_FLOOR = Recipe(POPULARITY, {"half_life": 1e9, "own": 1.0}), Recipe(POPULARITY)


def is_of_space(history: History, trial: int) -> bool:
    """Whether a trial's point is one of the search's space, so that the tuner learns from it."""
    return history.proposals[trial].point.get(FAMILY) not in (BLEND, INCUMBENT)


def recipe_of_trial(spec: RegionSpec, history: History, trial: int) -> Recipe | None:
    """Return what a trial fits; None for a network. Of a blend that has ended, with the weights that it found."""
    outcome = history.settled.get(trial)
    if outcome is not None and outcome.recipe is not None:
        return outcome.recipe
    point = history.proposals[trial].point
    family = point.get(FAMILY, NETWORK)
    if family == NETWORK:
        return None
    if family == INCUMBENT:
        return recipe_in_office(spec, point)
    if family == BLEND:
        best = best_by_family(spec, history)
        members = tuple(recipe_at(history.proposals[n].point, spec.train.seed) for n in best.values())
        return Recipe(BLEND, {}, spec.train.seed, members)
    return recipe_at(point, spec.train.seed)


def name_trial(spec: RegionSpec, history: History, trial: int) -> str:
    """Return what a trial fits as reports say it, with its number: `ease, l2 300 (trial 4)`."""
    point = history.proposals[trial].point
    alone = Recipe(spec.kind.name, {name: value for name, value in point.items() if name != FAMILY})
    return f"{describe_recipe(recipe_of_trial(spec, history, trial) or alone)} (trial {trial})"


def best_popularity(history: History) -> TrialOutcome | None:
    """Return the best trial of popularity, which is the floor that all others have to beat; None: there is none yet."""
    popular = [
        one
        for _, one in sorted(history.settled.items())
        if one.ok and one.value is not None and one.recipe is not None and one.recipe.family == POPULARITY
    ]
    return max(popular, key=lambda one: one.value or 0.0, default=None)


def floor_of(outcome: TrialOutcome, popular: TrialOutcome | None) -> float | None:
    """Return what the floor reaches on the customers of a trial: as its job says, or else the best popularity.

    None where it is not known.
    """
    if outcome.compared:
        return next(iter(outcome.compared.get(FLOOR, {}).values()), None)
    return popular.value if popular and popular.customers == outcome.customers else None


def recipe_in_office(spec: RegionSpec, point: Point) -> Recipe | None:
    """Return the recipe that a point says to be in office: in all regions, or in one."""
    return spec.own.get(str(point[REGION])) if REGION in point else spec.incumbent


def incumbent_trial(spec: RegionSpec, history: History) -> int | None:
    """Return the trial that was the recipe in office once more, fitted anew; None where none was, or it failed."""
    incumbent = spec.incumbent
    if incumbent is None:
        return None
    if incumbent.family == spec.kind.name:
        again = [0] if spec.first and spec.first[0].get(FAMILY, NETWORK) == NETWORK else []
        return next((trial for trial in again if trial in history.settled and history.settled[trial].ok), None)
    return find_trial(spec, history, incumbent)


def find_trial(spec: RegionSpec, history: History, recipe: Recipe) -> int | None:
    """Return the first trial of a recipe that has succeeded; None where none has."""
    ended = (trial for trial, outcome in sorted(history.settled.items()) if outcome.ok)
    return next((trial for trial in ended if recipe_of_trial(spec, history, trial) == recipe), None)


def best_by_family(spec: RegionSpec, history: History) -> dict[str, int]:
    """Return the best trial of each family that can be a blend's member, the best of them first."""
    sign = 1.0 if spec.metric.minimize else -1.0
    found: dict[str, tuple[float, int]] = {}
    for trial, outcome in sorted(history.settled.items()):
        if not outcome.ok or outcome.value is None or not is_of_space(history, trial):
            continue
        family = str(history.proposals[trial].point.get(FAMILY, NETWORK))
        if family != NETWORK:
            found[family] = min(found.get(family, (float("inf"), trial)), (sign * outcome.value, trial))
    return {family: trial for family, (_, trial) in sorted(found.items(), key=lambda one: one[1])}
