"""A recipe and a history become a model: hyperparameters and memory are checked before the work begins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnlib.contract import Recipe
from nnlib.data.events import Events
from nnlib.errors import DivergedError, MachineError
from nnlib.families import family_of
from nnlib.families.blend import Blend
from nnlib.families.family import Arrays, Fitted, Size
from nnlib.families.legal import BLEND, LOGISTIC, complete_recipe
from nnlib.util.arrays import Floats, Longs
from nnlib.util.memory import available_bytes, show_bytes
from nnlib.util.threads import workers

SMALLER = "elsa, whose memory grows with the items and not with their square, or knn"
INSTEAD = {"ease": SMALLER, "days": SMALLER, "knn": "elsa"}


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class RecipeModel:
    """A fitted model, what it was fitted by and on."""

    recipe: Recipe  # with all hyperparameters
    items: tuple[str, ...]
    regions: tuple[str, ...]
    fitted_until: int  # the first day that it has not seen, in days since 1970-01-01; 0 where data have no times
    fitted: Fitted
    repeats: bool = False  # whether it recommends what customers have, too, as its data say

    def scores(self, asked: Events, rows: Longs) -> Floats:
        """Return float32 (len(rows), items), of customers of `asked`, which has the model's items in their order.

        DivergedError when one is not finite.
        """
        # A region's own matrices are made here, on one thread of BLAS; what overflows is seen below.
        with workers(1), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scores = self.fitted.scores(asked, rows)
        if not np.isfinite(scores).all():
            raise DivergedError(f"{self.recipe.family}: a score is not a finite number; fit with other hyperparameters")
        return scores


def fit_recipe(recipe: Recipe, history: Events) -> RecipeModel:
    """Return the model of `history`; the same recipe and history give the same bits whatever the number of threads.

    NnlibError names every hyperparameter that is not legal; MachineError when there is not the memory for it;
    DivergedError when hyperparameters are legal and useless.
    """
    recipe = complete_recipe(recipe)
    inputs = 0 if history.inputs is None else history.inputs.width
    _check_memory(recipe, Size(history.customers, history.bought.width, history.bought.nonzeros, inputs))
    with workers(1):  # BLAS would give other bits on other numbers of threads
        fitted = _fit(recipe, history)
    return model_of(recipe, history, fitted)


def reads_inputs(recipe: Recipe) -> bool:
    """Whether a recipe's model is told by dense inputs, and so fitted and asked with data that were read with them."""
    return any(part.family == LOGISTIC for part in recipe.members or (recipe,))


def model_of(recipe: Recipe, history: Events, fitted: Fitted) -> RecipeModel:
    """Return what was fitted to `history` with all that its file says."""
    return RecipeModel(recipe, history.items, history.regions, history.as_of, fitted, history.repeats)


def restore_model(recipe: Recipe, arrays: Arrays, regions: tuple[str, ...]) -> Fitted:
    """Return the model of a complete recipe that `arrays` was taken from; KeyError or ValueError if they are wrong."""
    if recipe.family != BLEND:
        return family_of(recipe.family).restore(arrays, recipe.hyperparameters, regions)
    members = []
    for n, member in enumerate(recipe.members):
        begin = f"member{n}_"
        own = {name.removeprefix(begin): found for name, found in arrays.items() if name.startswith(begin)}
        members.append(restore_model(member, own, regions))
    return Blend(tuple(members), recipe.weights)


def _fit(recipe: Recipe, history: Events) -> Fitted:
    if recipe.family == BLEND:
        return Blend(tuple(_fit(member, history) for member in recipe.members), recipe.weights)
    return family_of(recipe.family).fit(history, recipe.hyperparameters, recipe.seed)


def bytes_needed(recipe: Recipe, size: Size) -> list[int]:
    """Return how much memory fitting a complete recipe takes at most beside its data, of a blend member by member."""
    return [family_of(part.family).bytes_needed(size, part.hyperparameters) for part in recipe.members or (recipe,)]


def _check_memory(recipe: Recipe, size: Size) -> None:
    """Raise MachineError when a model, or the members of a blend together, take more memory than is free."""
    parts, needed, free = recipe.members or (recipe,), bytes_needed(recipe, size), available_bytes()
    if sum(needed) <= free:
        return
    family = parts[int(np.argmax(needed))].family
    # As Python's own MemoryError is told of: a study then asks for more memory, and no machine counts as broken.
    raise MachineError(
        f"out of memory: {family} of {size.items:,} items and {size.customers:,} customers would take "
        + show_bytes(max(needed))
        + (f", with the other members {show_bytes(sum(needed))}" if len(parts) > 1 else "")
        + f", {show_bytes(free)} are free; take a larger machine"
        + (f", or {INSTEAD[family]}" if family in INSTEAD else ", or fewer items")
    )
