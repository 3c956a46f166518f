"""`nnlib inspect` of the model of a recipe, as text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nnlib.contract import Recipe
from nnlib.families.model_file import read_recipe_model


def describe_recipe_model(path: Path) -> str:
    """Return a few lines about the file; DataError when it is damaged."""
    model = read_recipe_model(path)
    until = f", has seen what was before {np.datetime64(model.fitted_until, 'D')}" if model.fitted_until else ""
    lines = [f"model of a recipe, {model.recipe.family}{until}"]
    lines[0] += ", recommends what customers have, too (repeats)" * model.repeats
    if model.recipe.members:
        pairs = zip(model.recipe.members, model.recipe.weights, strict=True)
        lines += [f"  {weight:g} times {_recipe(member)}" for member, weight in pairs]
    else:
        lines.append(f"  {_recipe(model.recipe)}")
    for what, names in (("items", model.items), ("regions", model.regions)):
        lines.append(f"  {len(names)} {what}, such as {names[0]!r}")
    for name, values in model.fitted.arrays().items():
        lines.append(f"  {name}: {' x '.join(map(str, values.shape))} {values.dtype}")
    return "\n".join(lines)


def _recipe(recipe: Recipe) -> str:
    settings = (
        f"{name} {value if isinstance(value, bool | str) else format(value, 'g')}"
        for name, value in recipe.hyperparameters.items()
    )
    return f"{recipe.family}: {', '.join([*settings, f'seed {recipe.seed}'])}"
