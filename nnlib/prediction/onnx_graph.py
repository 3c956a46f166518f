"""A model as an ONNX graph: histories in, a score of every item out. The one module that imports onnx.

Models whose scores are linear in a history can be written: ease, knn, elsa, graph (weights are asked of the model, item
by item), popularity (the same scores for everybody), blends of these, and feed-forward networks. A history is a row
with a number for each item: for a network 1 for what was taken, for all others 2 ** (-age / half_life), ages in days
from the customer's last purchase. Members of a blend that have different half-lives have an input each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nnlib.contract import Recipe
from nnlib.data.events import Events
from nnlib.data.rows import from_rows
from nnlib.errors import NnlibError
from nnlib.families.blend import Blend
from nnlib.families.family import Fitted
from nnlib.families.fit import RecipeModel
from nnlib.families.model_file import is_recipe_model, read_recipe_model
from nnlib.model.file import read_model
from nnlib.model.graph import Graph, Node
from nnlib.spec.types import Activation, LayerKind
from nnlib.util.arrays import Floats
from nnlib.util.files import write_atomically

OPSET, IR_VERSION = 17, 8  # what ONNX Runtime has read since 2022
LINEAR = ("ease", "knn", "elsa", "graph", "popularity")
MOST_ITEMS = 20_000  # a dense matrix of weights has their square; a file of ONNX holds 2 GB
BLOCK = 512
HISTORY, SCORES = "history", "scores"
TINY = 1e-9  # what `blend.standardize` adds to a deviation
OPERATORS = {
    Activation.SIGMOID: "Sigmoid", Activation.TANH: "Tanh", Activation.RELU: "Relu", Activation.SOFTPLUS: "Softplus",
    Activation.SOFTSIGN: "Softsign",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class OnnxFacts:
    """What has to be known to ask a graph."""

    items: tuple[str, ...]  # in the order of its inputs and scores
    half_lives: dict[str, float | None]  # of each input, in days; None: 1 for what was taken


@dataclass(slots=True, eq=False)
class _Builder:
    """Nodes and weights so far, each with a name of its own."""

    helper: Any
    numpy_helper: Any
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    inputs: dict[str, float | None] = field(default_factory=dict)

    def weight(self, values: Floats) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(self.numpy_helper.from_array(np.ascontiguousarray(values, np.float32), name))
        return name

    def add(self, operator: str, *inputs: str, out: str = "", **attributes: object) -> str:
        name = out or f"n{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def history(self, half_life: float | None) -> str:
        """Return the input of histories of that half-life."""
        known = [name for name, other in self.inputs.items() if other == half_life]
        name = known[0] if known else f"{HISTORY}{len(self.inputs) or ''}"
        self.inputs[name] = half_life
        return name


def write_onnx(model: Path, region: str, out: Path) -> OnnxFacts:
    """Write the graph of a model file for the customers of one region; NnlibError where it has none."""
    import onnx
    from onnx import helper, numpy_helper

    builder = _Builder(helper, numpy_helper)
    if is_recipe_model(model):
        recipe_model = read_recipe_model(model)
        items, scores = recipe_model.items, _recipe_graph(builder, recipe_model, region)
    else:
        items, scores = _network_graph(builder, model)
    builder.add("Identity", scores, out=SCORES)
    float32, shape = onnx.TensorProto.FLOAT, ("customers", len(items))
    graph = helper.make_graph(
        builder.nodes,
        "recommender",
        [helper.make_tensor_value_info(name, float32, shape) for name in builder.inputs],
        [helper.make_tensor_value_info(SCORES, float32, shape)],
        builder.weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="regiondag")
    made.ir_version = IR_VERSION
    onnx.checker.check_model(made)
    write_atomically(out, made.SerializeToString())
    return OnnxFacts(items, dict(builder.inputs))


# --- recipes -----------------------------------------------------------------------------------------------


def _recipe_graph(builder: _Builder, model: RecipeModel, region: str) -> str:
    refused = [one.family for one in (model.recipe.members or (model.recipe,)) if one.family not in LINEAR]
    if refused:
        raise NnlibError(
            f"{' and '.join(refused)}: scores are no product of a history with weights, so there is no ONNX graph of "
            f"them; legal: {', '.join(LINEAR)}, blends of these, and feed-forward networks"
        )
    if len(model.items) > MOST_ITEMS:
        raise NnlibError(f"{len(model.items):,} items, legal for ONNX: up to {MOST_ITEMS:,}, as weights are dense")
    if not isinstance(model.fitted, Blend):
        return _linear(builder, model.recipe, _Asked(model, model.fitted, region))
    total = ""
    for recipe, fitted, weight in zip(model.recipe.members, model.fitted.members, model.fitted.weights, strict=True):
        if weight:
            found = _standardize(builder, _linear(builder, recipe, _Asked(model, fitted, region)), weight)
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


def _linear(builder: _Builder, recipe: Recipe, asked: _Asked) -> str:
    """Return the product of a history with the weights, which are what the model says of each item alone."""
    bias, width = asked.scores([[]])[0], asked.width
    half_life = recipe.hyperparameters.get("ask_half_life")
    if half_life is None:  # popularity: the history is taken times nothing
        source = next(iter(builder.inputs), None) or builder.history(None)
        nothing = builder.add("MatMul", source, builder.weight(np.zeros((width, 1), np.float32)))
        return builder.add("Add", nothing, builder.weight(bias[None]))
    weights = np.empty((width, width), np.float32)
    for low in range(0, width, BLOCK):
        some = range(low, min(low + BLOCK, width))
        weights[some.start : some.stop] = asked.scores([[item] for item in some]) - bias
    product = builder.add("MatMul", builder.history(float(half_life)), builder.weight(weights))
    return builder.add("Add", product, builder.weight(bias[None])) if bias.any() else product


def _standardize(builder: _Builder, scores: str, weight: float) -> str:
    """Return weight (score - mean) / deviation of each row."""
    centred = builder.add("Sub", scores, builder.add("ReduceMean", scores, axes=[1], keepdims=1))
    square = builder.add("ReduceMean", builder.add("Mul", centred, centred), axes=[1], keepdims=1)
    deviation = builder.add("Add", builder.add("Sqrt", square), builder.weight(np.array([TINY], np.float32)))
    return builder.add("Mul", builder.add("Div", centred, deviation), builder.weight(np.array([weight], np.float32)))


# --- networks ----------------------------------------------------------------------------------------------


def _network_graph(builder: _Builder, path: Path) -> tuple[tuple[str, ...], str]:
    model = read_model(path)
    graph = Graph(model.network)
    inputs = [node for node in graph.nodes if node.layer.kind is LayerKind.INPUT]
    if len(inputs) != 1 or len(graph.outputs) != 1 or inputs[0].units != graph.outputs[0].units:
        raise NnlibError(
            "the network has no one input and one output of the same items: no ONNX graph of it is written"
        )
    values = {inputs[0].number: builder.history(None)}
    for node in graph.nodes:
        if node.layer.kind is not LayerKind.INPUT:
            values[node.number] = _layer(builder, graph, node, values)
    names = model.outputs or tuple(str(number) for number in range(graph.outputs[0].units))
    return names, values[graph.outputs[0].number]


def _layer(builder: _Builder, graph: Graph, node: Node, values: dict[int, str]) -> str:
    layer, network = node.layer, graph.network
    if layer.batch_norm or node.skips:
        what = "batch normalization" if layer.batch_norm else "skips"
        raise NnlibError(f"layer {layer.name}: {what}: no ONNX graph of it is written")
    total = ""
    for edge in node.edges:
        weights = network.matrix(edge.owner)
        product = builder.add("MatMul", values[edge.source], builder.weight(weights.T if edge.transposed else weights))
        part = builder.add("Add", product, builder.weight(network.biases[edge.number][None]))
        total = builder.add("Add", total, part) if total else part
    return _activate(builder, node, total)


def _activate(builder: _Builder, node: Node, z: str) -> str:
    layer = node.layer
    special: dict[Activation, Callable[[], str]] = {
        Activation.LINEAR: lambda: z,
        Activation.LEAKY_RELU: lambda: builder.add("LeakyRelu", z, alpha=layer.slope),
        Activation.ELU: lambda: builder.add("Elu", z, alpha=layer.alpha),
        Activation.SELU: lambda: builder.add("Selu", z, alpha=layer.alpha, gamma=layer.selu_lambda),
        Activation.SOFTMAX: lambda: builder.add("Softmax", z, axis=1),
        Activation.RELU6: lambda: builder.add("Min", builder.add("Relu", z), builder.weight(np.array([6], np.float32))),
    }
    if layer.activation in OPERATORS:
        return builder.add(OPERATORS[layer.activation], z)
    if layer.activation not in special:
        raise NnlibError(f"layer {layer.name}: {layer.activation}: ONNX has no such activation")
    return special[layer.activation]()
