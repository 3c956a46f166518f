"""A graph on its way to a network: layers with what they have learned, and which values of the graph they give.

First every operation becomes a layer of its own (`operators`); then `merge` puts together what one layer can do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from nnlib.errors import DataError
from nnlib.onnx_files.graph import Array, Node
from nnlib.ops.batch_norm import EPSILON, BatchNorm
from nnlib.spec.json_section import MOST_UNITS, is_plain, show
from nnlib.spec.types import (
    Activation,
    Layer,
    LayerKind,
    LayerType,
    LocalResponse,
    PoolingFunction,
)
from nnlib.util.arrays import Floats

MOST_NAME = 80
MOST_WEIGHTS = 2**31 - 1  # numbers of all layers together: a graph may name one array many times
MOST_MADE = 2**24  # numbers of one layer that are in no array of the file
Shape = tuple[int, ...]  # of one example: (channels, sizes, slowest axis first), or (units,)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A layer with its maps, and its parameters: weights (out, fan in) unless they are another's, bias, norm."""

    layer: Layer
    shape: Shape
    weights: Floats | None = None
    bias: Floats | None = None
    norm: BatchNorm | None = None
    constant: bool = False  # its norm, or weights, are arithmetic of the graph, which no training should change


@dataclass(frozen=True, slots=True)
class Value:
    """What an operation gives: the units of a part, in a shape of the graph's, perhaps with an edge still to come."""

    part: str
    shape: Shape
    pads: tuple[tuple[int, int], ...] = ()  # of each spatial axis, by an operator Pad
    padding: float = 0.0  # what stands there

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """How many places each spatial axis got before and after it."""
        return self.pads or ((0, 0),) * (len(self.shape) - 1)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the maps without those places."""
        return tuple(size - sum(edge) for size, edge in zip(self.shape[1:], self.edges, strict=True))

    def __str__(self) -> str:
        return f"(batch, {', '.join(map(str, self.shape))})"


@dataclass(slots=True, eq=False)
class Build:
    """The parts so far, by name; values and constants by their names in the graph."""

    file: str
    opset: int
    constants: dict[str, Array]
    parts: dict[str, Part] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    owners: dict[object, str] = field(default_factory=dict)  # weights, as they are used -> the part that has them
    response: LocalResponse | None = None
    notes: list[str] = field(default_factory=list)
    weights: int = 0  # numbers of all layers
    computed: int = 0  # numbers of all arrays that followed from others
    finite: dict[int, Array] = field(default_factory=dict)  # arrays that were looked through, by their ids
    last: dict[str, int] = field(default_factory=dict)  # a name -> the number that it had last

    # --- what nodes are given ---

    def value(self, node: Node, index: int = 0, padded: bool = False) -> Value:
        """Return an input that is computed; `padded` where an edge by Pad is legal."""
        name = self._input(node, index)
        if name in self.constants:
            raise node.wrong(f"input {index} is an array of the graph, legal: what another operation gives")
        value = self._known(node, name)
        if value.pads and not padded:
            raise node.wrong("follows a Pad, legal there: Conv, and MaxPool where it pads with -inf")
        return value

    def maps(self, node: Node, padded: bool = False) -> Value:
        """Return the first input, which must be the maps of a part as they are: one to three sizes."""
        value = self.value(node, 0, padded)
        part = self.parts[value.part]
        if not 1 <= len(value.sizes) <= 3 or (value.shape[0], *value.sizes) != part.shape:
            raise node.wrong(f"is given {value}, legal: maps with 1 to 3 sizes, not reshaped")
        return value

    def constant(self, node: Node, index: int) -> Array:
        """Return an input that is an array of the graph."""
        name = self._input(node, index)
        if name not in self.constants:
            self._known(node, name)
            raise node.wrong(f"input {index} is computed, legal: an array of the graph")
        return self.constants[name]

    def floats(self, node: Node, index: int, shape: Shape | None = None) -> Floats:
        """Return an input that is finite float32 numbers, of a shape if one is given."""
        found = self.constant(node, index)
        if id(found) not in self.finite:
            if found.dtype != np.float32 or not np.isfinite(found).all():
                raise node.wrong(f"input {index} is not all finite numbers of type float; train the network again")
            self.finite[id(found)] = found
        if shape is not None and found.shape != shape:
            raise node.wrong(f"input {index} has shape {list(found.shape)}, legal: {list(shape)}")
        return found

    def has(self, node: Node, index: int) -> bool:
        """Whether an input is given."""
        return len(node.inputs) > index and bool(node.inputs[index])

    def is_constant(self, node: Node, index: int) -> bool:
        """Whether an input is an array of the graph."""
        return self._input(node, index) in self.constants

    def numbers(self, node: Node, name: str, index: int) -> tuple[int, ...] | None:
        """Return whole numbers that later sets of operators have as an input and earlier ones as an attribute."""
        if self.has(node, index):
            found = self.constant(node, index)
            if found.dtype.kind not in "iu" or found.size > 64:
                raise node.wrong(f"input {index} is not legal, legal: a few whole numbers")
            return tuple(int(one) for one in found.reshape(-1))
        value = node.attributes.get(name)
        if value is not None and not (isinstance(value, tuple) and all(isinstance(one, int) for one in value)):
            raise node.wrong(f"attribute {name} is not legal, legal: whole numbers")
        return value  # type: ignore[return-value]

    def number(self, node: Node, name: str, index: int, default: float) -> float:
        """Return a number that later sets of operators have as an input and earlier ones as an attribute."""
        if self.has(node, index):
            found = self.constant(node, index)
            if found.size != 1 or found.dtype.kind not in "fiu":
                raise node.wrong(f"input {index} has shape {list(found.shape)}, legal: one number")
            return float(found.reshape(-1)[0])
        value = node.attributes.get(name, default)
        if not isinstance(value, int | float):
            raise node.wrong(f"attribute {name} is not legal, legal: a number")
        return float(value)

    def _input(self, node: Node, index: int) -> str:
        if not self.has(node, index):
            raise node.wrong(f"input {index} is missing")
        return node.inputs[index]

    def _known(self, node: Node, name: str) -> Value:
        if name not in self.values:
            raise node.wrong(
                f"{show(name[:MOST_NAME])} is given by no initializer, no input and no node before it; legal: nodes in "
                "the order in which they are computed, none of which feeds itself"
            )
        return self.values[name]

    # --- what becomes of them ---

    def add(self, part: Part, shape: Shape | None = None) -> Value:
        """Keep a part; return the value it gives."""
        units, name = prod(part.shape), part.layer.name
        if not 1 <= units <= MOST_UNITS:
            raise DataError(f"{self.file}: layer {show(name)} has {units:,} units, legal: up to {MOST_UNITS:,}")
        self.weights += 0 if part.weights is None else part.weights.size
        if self.weights > MOST_WEIGHTS:
            raise DataError(f"{self.file}: {self.weights:,} weights, legal: up to {MOST_WEIGHTS:,}")
        layer = replace(part.layer, units=units, dimensions=dimensions_of(part.shape))
        self.parts[name] = replace(part, layer=layer)
        return Value(name, part.shape if shape is None else shape)

    def join(self, node: Node, function: PoolingFunction, values: list[Value], **more: Any) -> Value:
        """Add a layer that joins the units of others, which have maps of one size, or spreads those of size 1."""
        shape = max((value.shape for value in values), key=prod)
        names = tuple(dict.fromkeys(value.part for value in values))
        if len(names) < len(values):  # a layer is named once as a source
            raise node.wrong("is given the same value twice, legal: different ones")
        maps = max((self.parts[name].shape for name in names), key=prod)
        return self.add(Part(self.pooling(node, function, names, **more), maps), shape)

    def concatenate(self, node: Node, values: list[Value]) -> Value:
        """Add a layer with the channels of others, one after the other; their maps have one size."""
        shapes = [self.parts[value.part].shape for value in values]
        names = tuple(value.part for value in values)
        if len(set(names)) < len(names):
            raise node.wrong("is given the same value twice, legal: different ones")
        if len({prod(shape[1:]) for shape in shapes}) > 1:
            seen = [list(shape) for shape in shapes]
            raise node.wrong(f"is given maps of different sizes, {seen}, legal: of one size")
        maps = (sum(shape[0] for shape in shapes), *max((shape[1:] for shape in shapes), key=len))
        shape = (sum(value.shape[0] for value in values), *values[0].shape[1:])
        return self.add(Part(self.pooling(node, PoolingFunction.CONCATENATE, names), maps), shape)

    def pooling(self, node: Node, function: PoolingFunction, sources: tuple[str, ...], **more: Any) -> Layer:
        """Return a layer without weights."""
        return self.layer(node, LayerType.POOLING, sources, function=function, **more)

    def layer(self, node: Node, type_: LayerType, sources: tuple[str, ...], **more: Any) -> Layer:
        """Return a hidden layer with a name of its own."""
        more = {"activation": Activation.LINEAR, **more}
        return Layer(self.name_for(node), LayerKind.HIDDEN, None, type_, sources=sources, **more)

    def activate(self, node: Node, value: Value, activation: Activation, **more: Any) -> Value:
        """Add a layer of its own for an activation, which is merged with the one before where that can be."""
        layer = self.pooling(node, PoolingFunction.SUM, (value.part,), activation=activation, **more)
        return self.add(Part(layer, self.parts[value.part].shape), value.shape)

    def normalize(self, node: Node, value: Value, norm: BatchNorm, constant: bool = False) -> Value:
        """Add a layer of its own for a normalization."""
        shape = self.parts[value.part].shape
        if shape[0] != len(norm.scale):
            raise node.wrong(
                f"is by {len(norm.scale)} channels of layer {show(value.part)} which has {shape[0]}, legal: as many"
            )
        layer = self.pooling(node, PoolingFunction.SUM, (value.part,), batch_norm=True)
        return self.add(Part(layer, shape, norm=norm, constant=constant), value.shape)

    def affine(self, node: Node, value: Value, scale: Floats | float, shift: Floats | float) -> Value:
        """Add scale x + shift, by channel, which no training changes."""
        channels = self.parts[value.part].shape[0]
        self.check_count(channels)
        one, other = (np.broadcast_to(np.asarray(a, np.float32), (channels,)).copy() for a in (scale, shift))
        return self.normalize(node, value, affine_norm(one, other), constant=True)

    def check_count(self, numbers: int) -> None:
        """Raise DataError for more numbers than a layer may get that the file does not hold: it may ask for any."""
        if numbers > MOST_MADE:
            raise DataError(f"{self.file}: a layer of {numbers:,} numbers made up, legal: up to {MOST_MADE:,}")

    def name_for(self, node: Node) -> str:
        """Return a name that no other part has: that of the weights, as torch calls them, else the node's."""
        return self.free(_readable(node, self.constants) or node.operator)

    def free(self, name: str) -> str:
        """Return a name, with a number where another part has it."""
        name = "".join(one if is_plain(one) else "_" for one in name[:MOST_NAME]).lstrip("$") or "Layer"
        number = self.last.get(name, 1)
        numbered = name if number == 1 else f"{name}_{number}"
        while numbered in self.parts:
            number += 1
            numbered = f"{name}_{number}"
        self.last[name] = number
        return numbered


def affine_norm(scale: Floats, shift: Floats) -> BatchNorm:
    """Return the normalization that gives scale x + shift."""
    return BatchNorm(scale, shift, np.zeros_like(scale), np.full_like(scale, 1 - EPSILON))


def dimensions_of(shape: Shape) -> tuple[int, ...]:
    """Return DSSTNE's order of sizes: fastest axis first, channels last."""
    return (*reversed(shape[1:]), shape[0])


def _readable(node: Node, constants: Mapping[str, Array]) -> str:
    """Return what to call a node's layer: "layer1.0.conv1" for torch's weights and nodes of that module."""
    for name in node.inputs[1:]:
        if name in constants and name.endswith(".weight") and "::" not in name:
            return name.removesuffix(".weight")
    found = ""
    for word in node.name.strip("/").split("/"):  # "/layer1/layer1.0/conv1/Conv"
        found = word if not found or word.startswith(f"{found}.") else f"{found}.{word}"
    return re.sub(rf"\.{re.escape(node.operator)}(_[0-9]+)?$", "", found) or next(iter(node.outputs), "")
