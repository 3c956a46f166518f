"""Models of families as ONNX graphs: histories in, a score of every item out.

Those whose scores are linear in a history can be written: ease, knn, elsa, graph (weights are asked of the model, item
by item), popularity (the same scores for everybody), and blends of these. A history is a row with a number for each
item: 2 ** (-age / half_life) for what was taken, ages in days from the customer's last purchase. Members of a blend
that have different half-lives have an input each. Logistic regression takes `inputs` in place of a history: a row of
numbers as networks read them, unsigned bytes over 256 less 0.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nnlib.contract import Recipe
from nnlib.data.events import Events
from nnlib.data.rows import from_rows
from nnlib.errors import NnlibError
from nnlib.families.blend import Blend
from nnlib.families.family import Fitted
from nnlib.families.fit import RecipeModel
from nnlib.families.legal import LOGISTIC
from nnlib.families.logistic import Logistic
from nnlib.onnx_files.library import Builder
from nnlib.onnx_files.networks import BATCH
from nnlib.util.arrays import Floats

LINEAR = ("ease", "knn", "elsa", "graph", "popularity")
MOST_ITEMS = 20_000  # a dense matrix of weights has their square; a file of ONNX holds 2 GB
BLOCK = 512
HISTORY, SCORES, CUSTOMERS, INPUTS = "history", "scores", "customers", "inputs"
TINY = 1e-9  # what `blend.standardize` adds to a deviation


@dataclass(slots=True, eq=False)
class Histories:
    """The graph so far, with an input of histories for each half-life, in days; None: 1 for what was taken."""

    builder: Builder
    width: int
    half_lives: dict[str, float | None] = field(default_factory=dict)

    def input(self, half_life: float | None) -> str:
        """Return the input of histories of that half-life."""
        known = [name for name, other in self.half_lives.items() if other == half_life]
        name = known[0] if known else f"{HISTORY}{len(self.half_lives) or ''}"
        self.half_lives[name] = half_life
        self.builder.inputs[name] = (CUSTOMERS, self.width)
        return name


def add_recipe(builder: Builder, model: RecipeModel, region: str) -> dict[str, float | None]:
    """Add the graph of a model for the customers of one region; return the half-life of each input of histories.

    NnlibError for a family whose scores are no product of a history, or of inputs, with weights.
    """
    if isinstance(model.fitted, Logistic):
        _add_logistic(builder, model.fitted)
        return {}
    refused = [one.family for one in (model.recipe.members or (model.recipe,)) if one.family not in LINEAR]
    if refused:
        raise NnlibError(
            f"{' and '.join(refused)}: scores are no product of a history with weights, so there is no ONNX graph of "
            f"them; legal: {', '.join(LINEAR)}, blends of these, {LOGISTIC} alone, and networks"
        )
    width = len(model.items)
    if width > MOST_ITEMS:
        raise NnlibError(f"{width:,} items, legal for ONNX: up to {MOST_ITEMS:,}, as weights are dense")
    histories = Histories(builder, width)
    builder.add("Identity", _scores(histories, model, region), out=SCORES)
    builder.outputs[SCORES] = (CUSTOMERS, width)
    return histories.half_lives


def _add_logistic(builder: Builder, fitted: Logistic) -> None:
    width, classes = fitted.weights.shape
    builder.inputs[INPUTS], builder.outputs[SCORES] = (BATCH, width), (BATCH, classes)
    sums = builder.add("Gemm", INPUTS, builder.weight(fitted.weights), builder.weight(fitted.intercepts))
    builder.add("Softmax", sums, out=SCORES, axis=1)


def _scores(histories: Histories, model: RecipeModel, region: str) -> str:
    builder = histories.builder
    if not isinstance(model.fitted, Blend):
        return _linear(histories, model.recipe, _Asked(model, model.fitted, region))
    total = ""
    for recipe, fitted, weight in zip(model.recipe.members, model.fitted.members, model.fitted.weights, strict=True):
        if weight:
            found = _standardize(builder, _linear(histories, recipe, _Asked(model, fitted, region)), weight)
            total = builder.add("Add", total, found) if total else found
    return total


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A fitted model that is asked about made-up customers of one region."""

    model: RecipeModel
    fitted: Fitted
    region: str

    def scores(self, rows: Sequence[Sequence[int]]) -> Floats:
        """Return the scores of customers who took these items, all at one time."""
        regions = np.zeros(len(rows), np.int32)
        events = Events(from_rows([list(row) for row in rows], self.width), self.model.items, regions, (self.region,))
        return self.fitted.scores(events, np.arange(len(rows)))

    @property
    def width(self) -> int:
        return len(self.model.items)


def _linear(histories: Histories, recipe: Recipe, asked: _Asked) -> str:
    """Return the product of a history with the weights, which are what the model says of each item alone."""
    builder, bias, width = histories.builder, asked.scores([[]])[0], asked.width
    half_life = recipe.hyperparameters.get("ask_half_life")
    if half_life is None:  # popularity: the history is taken times nothing
        source = next(iter(histories.half_lives), None) or histories.input(None)
        nothing = builder.add("MatMul", source, builder.weight(np.zeros((width, 1), np.float32)))
        return builder.add("Add", nothing, builder.weight(bias[None]))
    weights = np.empty((width, width), np.float32)
    for low in range(0, width, BLOCK):
        some = range(low, min(low + BLOCK, width))
        weights[some.start : some.stop] = asked.scores([[item] for item in some]) - bias
    product = builder.add("MatMul", histories.input(float(half_life)), builder.weight(weights))
    return builder.add("Add", product, builder.weight(bias[None])) if bias.any() else product


def _standardize(builder: Builder, scores: str, weight: float) -> str:
    """Return weight (score - mean) / deviation of each row."""
    centred = builder.add("Sub", scores, builder.add("ReduceMean", scores, axes=[1], keepdims=1))
    square = builder.add("ReduceMean", builder.add("Mul", centred, centred), axes=[1], keepdims=1)
    deviation = builder.add("Add", builder.add("Sqrt", square), builder.weight(np.array([TINY], np.float32)))
    return builder.add("Mul", builder.add("Div", centred, deviation), builder.weight(np.array([weight], np.float32)))
