"""How many bytes a training may write at most: its model and its checkpoint, by its network or recipe and its data.

These bound what a job may bring back, so they are rather too large than too small: each array is counted as if all that
can be in it were. Names of items are left to who knows the data files, from which models have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nnlib.contract import Recipe
from nnlib.data.file import SetSummary
from nnlib.families.days import SEASON
from nnlib.families.family import Size, Value
from nnlib.families.legal import complete_recipe
from nnlib.inspection.shapes import count_weights, fit_sets
from nnlib.model.network import bias_count, norm_count
from nnlib.ops.batch_norm import BatchNorm
from nnlib.optim.rules import RULES
from nnlib.spec.types import NetworkSpec

WORD = 4  # bytes of a float32
FILE = 1 << 20  # attributes, and what NetCDF itself takes
NUMBER = 64  # of an item without a name, which models name by its number
NORMS = len(BatchNorm.__dataclass_fields__)

Values = Mapping[str, Value]
# The arrays of each family's model, as its `arrays` has them; those of a `Regional` besides, see `_regional`.
ARRAYS: Mapping[str, Callable[[Size, Values], int]] = {
    "popularity": lambda size, _: _counts(size),
    "knn": lambda size, of: 8 * size.items * min(int(of["k"]), size.items) + _regional(size),
    "ease": lambda size, _: WORD * size.items**2 + _regional(size),
    "graph": lambda size, of: _sparse(size) + WORD * size.items * (int(of["vectors"]) + 1),
    "elsa": lambda size, of: WORD * size.items * int(of["dims"]),
    "ials": lambda size, of: WORD * size.items * int(of["dims"]),
    "days": lambda size, _: WORD * size.items * (size.items + SEASON),
    "again": lambda *_: 0,
    "logistic": lambda size, _: WORD * size.items * (size.inputs + 1),
}


def bound_recipe(recipe: Recipe, size: Size) -> int | None:
    """Return the bytes of a recipe's model, without its items' names; None for a family of which that is not known."""
    if recipe.members:
        parts = [bound_recipe(member, size) for member in recipe.members]
        return None if None in parts else sum(part or 0 for part in parts)
    arrays = ARRAYS.get(recipe.family)
    if arrays is None:
        return None
    return arrays(size, complete_recipe(recipe).hyperparameters) + NUMBER * size.items + FILE


def bound_network(spec: NetworkSpec, sets: Sequence[SetSummary]) -> tuple[int, int] | None:
    """Return the bytes of a network's model and of its checkpoint, without names; None where it does not fit the data.

    A checkpoint has the weights, those of the best epoch, their average over updates, and the optimizer's states.
    """
    resolved = fit_sets(spec, sets)
    if resolved is None:
        return None
    numbers = sum(count_weights(resolved, edge) for edge in resolved.edges if edge.owner == edge.number)
    numbers += sum(bias_count(resolved, edge) for edge in resolved.edges)
    normed = (n for n, layer in enumerate(resolved.layers) if layer.batch_norm)
    numbers += NORMS * sum(norm_count(resolved, n) for n in normed)
    states = max(rule.states for rule in RULES.values())
    return WORD * numbers + FILE, WORD * numbers * (3 + states) + FILE


def _sparse(size: Size) -> int:
    """Return the bytes of all purchases as a sparse matrix by customer or by item: its values, indices and starts."""
    return 8 * size.entries + 8 * (size.customers + size.items + 1)


def _counts(size: Size) -> int:
    """Return those of counts by region, of which there are no more than customers, and of each region's customers."""
    return _sparse(size) + 8 * size.customers


def _regional(size: Size) -> int:
    """Return those of what was learned from, with each customer's region, and of how popular items are in each."""
    return _sparse(size) + 8 * size.customers + _counts(size)
