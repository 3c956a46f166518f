"""A model file as an ONNX file: networks, and models of families whose scores are linear in a history, or logistic.

Of a network that recommends items by items, the history is a row with 1 for what was taken. Other networks have an
input and an output for each of their layers with a data set, of its name: (batch, channels, sizes) where it has maps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nnlib.families.model_file import is_recipe_model, read_recipe_model
from nnlib.model.file import Model, read_model
from nnlib.model.graph import Graph
from nnlib.onnx_files.library import Builder, Shape
from nnlib.onnx_files.networks import add_network
from nnlib.onnx_files.recipes import CUSTOMERS, HISTORY, SCORES, add_recipe
from nnlib.spec.types import LayerKind
from nnlib.util.files import write_atomically


@dataclass(frozen=True, slots=True)
class OnnxFacts:
    """What has to be known to ask a graph."""

    items: tuple[str, ...]  # in the order of its inputs and scores; of a network that does not recommend: of its output
    half_lives: Mapping[str, float | None]  # of each input of histories, in days; None: 1 for what was taken
    inputs: Mapping[str, Shape] = field(default_factory=dict)
    outputs: Mapping[str, Shape] = field(default_factory=dict)


def write_onnx(model: Path, region: str, out: Path) -> OnnxFacts:
    """Write the graph of a model file, of a family for the customers of one region; NnlibError where it has none."""
    if not is_recipe_model(model):
        return write_network(read_model(model), out)
    builder, recipe_model = Builder(), read_recipe_model(model)
    return _write(builder, recipe_model.items, add_recipe(builder, recipe_model, region), out)


def write_network(model: Model, out: Path) -> OnnxFacts:
    """Write the graph of a network; NnlibError names a layer that none can be written of."""
    builder = Builder()
    return _write(builder, *_add_model(builder, model), out)


def _write(builder: Builder, items: tuple[str, ...], half_lives: dict[str, float | None], out: Path) -> OnnxFacts:
    facts = {"units": json.dumps(items, ensure_ascii=False)} if items else {}
    write_atomically(out, builder.serialize("recommender" if half_lives else "network", facts))
    return OnnxFacts(items, half_lives, builder.inputs, builder.outputs)


def _add_model(builder: Builder, model: Model) -> tuple[tuple[str, ...], dict[str, float | None]]:
    """Add a network; return the names of its outputs and, of one that recommends, what its history is."""
    graph = Graph(model.network)
    layers = model.network.spec.layers
    ends = {n: layer.name for n, layer in enumerate(layers) if layer.kind is not LayerKind.HIDDEN}
    inputs = [n for n in ends if layers[n].kind is LayerKind.INPUT]
    first = layers[graph.outputs[0].number]
    recommends = len(ends) == 2 and len(inputs) == 1 and layers[inputs[0]].units == first.units
    if recommends and len(layers[inputs[0]].dimensions) < 2:
        names = {n: HISTORY if n in inputs else SCORES for n in ends}
        add_network(builder, graph, names, CUSTOMERS)
        return model.outputs or tuple(str(number) for number in range(first.units or 0)), {HISTORY: None}
    add_network(builder, graph, ends)
    return model.outputs, {}
