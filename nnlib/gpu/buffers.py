"""What a GPU keeps of every layer: the room for its values, and its constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nnlib.gpu.maps.layers import must_remember
from nnlib.gpu.runtime import Array, Runtime, align
from nnlib.model.graph import Graph, Node
from nnlib.model.network import norm_count
from nnlib.ops.activations import ROWWISE, dropout_constants
from nnlib.ops.losses import Error
from nnlib.shards.cut import Cut
from nnlib.spec.types import Activation, ErrorFunction, Layer, LayerKind, LayerType

ACTIVATIONS = tuple(Activation)  # as `enum Activation` in kernels/names.cuh
ERRORS = tuple(ErrorFunction)  # as `enum ErrorFunction`


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """The memory of one layer for `most` examples (b) of its n units; None for what it does not need.

    `z` holds the sums, then what becomes of them: the values of the units, or for an output layer that no other layer
    reads the sums with their biases, and then the delta. `out` is what other layers see, `z` itself without dropout.
    """

    z: Array  # (b, n), for an output layer that no other one reads with rows that start at aligned places
    out: Array  # (b, n)
    sums: Array  # (b, n): of an output layer, z with its biases before the activation; `z` itself where nobody reads it
    delta: Array | None = None  # (b, n), for training: dLoss/d(out), then dLoss/dz
    rowwise: Array | None = None  # (b, n): values of a rowwise output layer under an error of single units
    totals: Array | None = None  # (b,): see activations.rowwise_sum; the normalizer of a SoftMax
    normal: Array | None = None  # (b, n): see batch_norm.Normed
    inverse: Array | None = None  # (n,), or (channels,) of maps
    pooled: Array | None = None  # (b, n): what a pooling layer gave, where its gradient needs it and z becomes another
    penalty: Array | None = None  # (n,): the gradient of the sparseness penalty
    unit: Array | None = None  # the constants of kernels/names.cuh
    read: bool = True  # by other layers
    pieces: tuple[Piece, ...] = ()  # of an output layer: one of all its units, or one for each own shard


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Units of an output layer that are computed together: their sums, then the delta, as in `Room.z`."""

    z: Array  # (b, n); the rows start at aligned places
    at: slice  # which units these are of those that are here
    low: int  # the number of the first one in the whole network

    @property
    def ld(self) -> int:
        """How many floats lie between two rows."""
        return int(self.z.strides[0]) // 4


def room_of(runtime: Runtime, graph: Graph, node: Node, most: int, train: bool, cut: Cut | None = None) -> Room | None:
    """Return the memory of a layer, None for an input without dropout, which lies in the batch."""
    if cut is not None and node.number in cut.outputs:
        return _cut_room(runtime, node, most, cut)
    shape, layer = (most, node.units), node.layer
    unit = runtime.zeros(8)
    runtime.upload(unit, unit_constants(node.layer))
    if layer.kind is LayerKind.INPUT:
        if layer.sparse or not (train and layer.dropout):
            return None
        out = runtime.zeros(shape)
        return Room(out, out, out, unit=unit)
    is_output, rowwise = layer.kind is LayerKind.OUTPUT, layer.activation in ROWWISE
    read = not is_output or is_read(graph, node)
    wide_input = cut is not None and any(edge.source in cut.inputs for edge in node.edges)  # what it gives is exchanged
    plain = is_output and layer.type is LayerType.FULLY_CONNECTED
    plain = plain and not (read or rowwise or node.skips or wide_input)
    z = runtime.zeros((most, align(node.units)))[:, : node.units] if plain else runtime.zeros(shape)
    sums = runtime.zeros(shape) if is_output and read else z
    return Room(
        z,
        out=runtime.zeros(shape) if train and layer.dropout and read else z,
        sums=sums,
        delta=runtime.zeros(shape) if train and read else None,
        rowwise=runtime.zeros(shape) if is_output and rowwise else None,
        totals=runtime.zeros(most) if rowwise else None,
        normal=runtime.zeros(shape) if layer.batch_norm and train else None,
        inverse=runtime.zeros(norm_count(graph.network.spec, node.number)) if layer.batch_norm and train else None,
        pooled=runtime.zeros(shape) if train and must_remember(node) else None,
        penalty=runtime.zeros(node.units) if train and graph.network.spec.sparseness_of(layer).beta else None,
        unit=unit,
        read=read,
        pieces=(Piece(sums, slice(0, node.units), 0),) if is_output else (),
    )


def _cut_room(runtime: Runtime, node: Node, most: int, cut: Cut) -> Room:
    """Return the memory of an output layer that is cut.

    A piece has the same shape, and its rows lie as far apart, however many of them are here: so do products with it.
    """
    part, unit = cut.outputs[node.number], runtime.zeros(8)
    runtime.upload(unit, unit_constants(node.layer))
    places = [part.shard(place) for place in range(len(part.own))]
    z = runtime.zeros((len(places), most, align(part.each)))
    pieces = tuple(
        Piece(own[:, : at.stop - at.start], at, part.place.start + at.start) for own, at in zip(z, places, strict=True)
    )
    totals = runtime.zeros(most) if node.layer.activation in ROWWISE else None
    return Room(z, z, z, totals=totals, unit=unit, read=False, pieces=pieces)


def is_read(graph: Graph, node: Node) -> bool:
    """Whether other layers take what a layer gives."""
    return any(node.number in (*other.sources, *other.skips) for other in graph.nodes if other != node)


def unit_constants(layer: Layer) -> Any:
    """Return `enum Unit` of kernels/names.cuh."""
    scale, shift, value = dropout_constants(layer)
    return np.array([layer.slope, layer.alpha, layer.selu_lambda, scale, shift, value, layer.dropout, 0], np.float32)


def error_constants(error: Error, examples: int) -> Any:
    """Return `enum ErrorConstant` of kernels/names.cuh, for batches of so many examples."""
    margin, boost = error.margin, error.boost
    numbers = [margin.one_target, margin.zero_target, margin.one_scale, margin.zero_scale, boost.one, boost.zero]
    return np.array([*numbers, 1 / examples, 0], np.float32)
