"""The forward pass on a GPU: the launches that compute every layer of a batch. Twin: cpu/forward.py."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnlib.gpu.buffers import ACTIVATIONS, Room, room_of
from nnlib.gpu.cublas import FLOAT32
from nnlib.gpu.maps.layers import MapLayers
from nnlib.gpu.marks import Marks
from nnlib.gpu.packing import BY_SHARD, Packing
from nnlib.gpu.parameters import Parameters
from nnlib.gpu.runtime import Array, grid_of
from nnlib.gpu.shards.exchange import Exchange
from nnlib.model.batches import DENOISE, DROPOUT
from nnlib.model.graph import Graph, Node
from nnlib.model.network import NORM_ARRAYS, is_sparse_input
from nnlib.ops.activations import ROWWISE
from nnlib.shards.cut import Cut
from nnlib.spec.types import Activation, Edge, LayerKind, LayerType

GATHERED = 1024  # columns that a block of `gather` sums


@dataclass(frozen=True, slots=True, eq=False)
class DeviceBatch:
    """A batch in the memory of the GPU: `size` examples, laid out as `packing` says."""

    words: Array
    packing: Packing
    size: int
    train: bool  # with dropout and noise, and with the statistics of this batch
    low: int = 0  # of a shard of examples: how many of the whole batch come before it
    of: int = 0  # ... and how many the whole batch has; 0: this is one
    place: int = 0  # ... and which of the own shards it is

    @property
    def examples(self) -> int:
        """How many examples the mean error is over."""
        return self.of or self.size

    def at(self, layer: int, *names: str) -> tuple[int, ...]:
        """Return the header words of sections."""
        return tuple(self.packing.at(layer, name) for name in names)

    def transposed(self, layer: int, delta: Array, shard: str = "") -> tuple[Any, ...]:
        """Return what kernels need that go through the touched rows of a sparse input, or of an own shard of one."""
        names = (*(f"{name}{shard}" for name in BY_SHARD), "examples", "places", "values")
        return (self.words, *self.at(layer, *names), delta, delta.strides[0] // 4)

    def dense(self, layer: int, width: int) -> Array:
        """Return the values of a dense layer, (size, width)."""
        start = self.packing.dense(layer)
        return self.words[start : start + self.size * width].view(np.float32).reshape(self.size, width)


class Forward:
    """Computes the layers of a network on one GPU, each into room of its own."""

    def __init__(
        self,
        graph: Graph,
        parameters: Parameters,
        most: int,
        train: bool,
        seed: int,
        precision: str,
        cut: Cut | None,
        exchange: Exchange,
    ) -> None:
        """Make room for batches of up to `most` examples; `train` for what training needs besides."""
        self.cut, self.exchange = cut, exchange
        self.wide_inputs, self.wide_outputs = (cut.inputs, cut.outputs) if cut else ({}, {})
        self.graph, self.parameters, self.runtime = graph, parameters, parameters.runtime
        self._precision, self._seed = precision, seed
        self.step = self.runtime.zeros(1, np.int64)
        self.rooms: dict[int, Room] = {}
        self.marks = Marks(parameters, graph) if train else None
        self.maps = MapLayers(graph, parameters, self.multiply, most, train, precision)
        self.pending: dict[int, Array | None] = {}  # biases that the sums of output layers lack yet
        for node in graph.nodes:
            room = room_of(self.runtime, graph, node, most, train, cut)
            if room is not None:
                self.rooms[node.number] = room
        from_wide = [edge.target for n in self.wide_inputs for edge in graph.network.spec.edges if edge.source == n]
        self._given = self.runtime.zeros(max((most * graph.node(n).units for n in from_wide), default=0))
        p = graph.network.spec.denoising
        self._noise = self.runtime.zeros(2) if p and train else None
        if self._noise is not None:
            self.runtime.upload(self._noise, np.array([p, 1 / (1 - p)], np.float32))

    def beside(self, parameters: Parameters, most: int) -> Forward:
        """Return another one with room of its own, for training on batches of up to `most` examples; nothing is cut."""
        other = copy.copy(self)
        other.parameters, other.maps, other.pending = parameters, self.maps.using(parameters), {}
        rooms = (
            (node.number, room_of(self.runtime, self.graph, node, most, True, self.cut)) for node in self.graph.nodes
        )
        other.rooms = {number: room for number, room in rooms if room is not None}
        return other

    def run(self, batch: DeviceBatch) -> None:
        """Compute every layer; an output layer gets its sums, but for a bias that is `pending`."""
        for node in self.graph.nodes:
            self.sum_up(node, batch)
            if node.layer.batch_norm:
                self.normalize(node, batch)
            self.activate(node, batch)

    def sums(self, batch: DeviceBatch, node: Node) -> list[Array]:
        """Return the sums of an output layer with all biases, (b, n) for each of its pieces."""
        pieces, bias = self.rooms[node.number].pieces, self.pending[node.number]
        found = [piece.z[: batch.size] for piece in pieces]
        if bias is not None:
            for piece, sums in zip(pieces, found, strict=True):
                self.add_bias(sums, bias[piece.at])
            self.pending[node.number] = None
        return found

    def out(self, batch: DeviceBatch, layer: int) -> Array:
        """Return what other layers see of a layer that is not a sparse input, (b, n)."""
        node = self.graph.node(layer)
        if node.layer.kind is LayerKind.INPUT and not self.drops(batch, node):
            return batch.dense(layer, node.units)
        room = self.rooms[layer]
        return (room.out if batch.train else room.z)[: batch.size]

    def sources(self, batch: DeviceBatch, node: Node) -> list[Array]:
        """Return what a layer of maps sees of each of its sources, (b, n)."""
        return [self.out(batch, source) for source in node.sources]

    def noise(self, layer: int, purpose: int = DROPOUT) -> tuple[int, Array, int, int]:
        """Return key, step, layers and layer: what a kernel needs to draw what NumPy draws."""
        return self._seed << 8 | purpose, self.step, len(self.graph.network.spec.layers), layer

    def mask(self, batch: DeviceBatch, node: Node) -> tuple[int, Array, int, int, int]:
        """Return what a kernel needs to draw a layer's dropout: as `noise`, and where in the mask the batch begins."""
        each = node.maps.channels if self.drops_maps(node) else node.units
        return *self.noise(node.number), batch.low * each

    def input_noise(self, batch: DeviceBatch, layer: int) -> tuple[Any, ...]:
        """Return the noise of a sparse input: its constants, or None, then as `noise`."""
        return (self._noise if batch.train else None, *self.noise(layer, DENOISE))

    def drops(self, batch: DeviceBatch, node: Node) -> bool:
        """Whether a layer drops units in this batch."""
        return bool(batch.train and node.layer.dropout)

    def drops_maps(self, node: Node) -> bool:
        """Whether a layer drops whole maps."""
        return node.layer.drop_channels and self.maps.by_channel(node.number)

    def sum_up(self, node: Node, batch: DeviceBatch) -> None:
        """Compute what a layer gives up to its batch normalization; an input has nothing but dropout."""
        if node.layer.kind is LayerKind.INPUT:
            if self.drops(batch, node):
                self._drop(node, batch, batch.dense(node.number, node.units))
            return
        if node.number in self.wide_outputs:
            self._compute_pieces(node, batch)
            return
        room, layer, size = self.rooms[node.number], node.layer, batch.size
        z = room.z[:size]
        bias = self._sums(node, batch, z)
        rowwise = layer.activation in ROWWISE
        if bias is not None and (layer.batch_norm or (rowwise and (room.read or not self._by_normalizer(node)))):
            self.add_bias(z, bias)
            bias = None
        self.pending[node.number] = bias

    def activate(self, node: Node, batch: DeviceBatch) -> None:
        """Compute the rest of a layer; of an output layer that nobody reads, `Losses` do."""
        if node.layer.kind is not LayerKind.INPUT and self.rooms[node.number].read:
            bias, self.pending[node.number] = self.pending[node.number], None
            self._activate(node, batch, self.rooms[node.number].z[: batch.size], bias)

    def _compute_pieces(self, node: Node, batch: DeviceBatch) -> None:
        """Compute the sums of an output layer that is cut, but for a bias: a product for each shard that is here."""
        biases = [self.parameters.values(f"bias{edge.number}") for edge in node.edges]
        for piece in self.rooms[node.number].pieces:
            z = piece.z[: batch.size]
            for n, edge in enumerate(node.edges):
                w = self.parameters.weights(edge.owner)[piece.at]  # by output, as those of all such layers
                self.multiply(self.out(batch, edge.source), w, z, (False, True), add=n > 0, rounded=batch.train)
            for bias in biases[1:]:
                self.add_bias(z, bias[piece.at])
        self.pending[node.number] = biases[0]

    def _by_normalizer(self, node: Node) -> bool:
        """Whether the error of an output layer takes the sums of a SoftMax, not its values."""
        return node.error is not None and node.error.softmax

    def _activate(self, node: Node, batch: DeviceBatch, z: Array, bias: Array | None) -> None:
        room, layer = self.rooms[node.number], node.layer
        sums = room.sums[: batch.size] if room.sums is not room.z else None
        dropped = room.out[: batch.size] if self.drops(batch, node) and room.out is not room.z else None
        out = None if self.drops_maps(node) else dropped
        if layer.activation not in ROWWISE:
            kind, noise = ACTIVATIONS.index(layer.activation), self.mask(batch, node)
            mark = self.marks.of_layer(node.number) if self.marks is not None and batch.train else None
            arguments = (z, out, bias, sums, z.size, node.units, kind, room.unit, *noise, mark)
            self.runtime.launch("bias_activation_dropout", grid_of(math.ceil(z.size / 8)), *arguments)
        else:
            if sums is not None:
                self.runtime.move(sums, z)
            self.rowwise(node, z, room.totals)
            out = None
        if dropped is not None and out is None:
            self._drop(node, batch, z)

    def rowwise(self, node: Node, z: Array, totals: Array | None) -> None:
        """Turn the sums of a rowwise layer into its values, in place."""
        size, n = z.shape
        if node.layer.activation is Activation.SOFTMAX:
            self.runtime.launch("softmax", (size,), z, size, n, n)
        else:
            kind = ACTIVATIONS.index(node.layer.activation)
            self.runtime.launch("rowwise_activation", (size,), z, totals, size, n, n, kind)

    def _drop(self, node: Node, batch: DeviceBatch, a: Array) -> None:
        room = self.rooms[node.number]
        noise = self.mask(batch, node)
        if self.drops_maps(node):
            self.maps.drop(node.number, a, room.out[: batch.size], room.unit, noise)
            return
        grid = grid_of(math.ceil(a.size / 8))
        self.runtime.launch("dropout", grid, a, room.out[: batch.size], a.size, room.unit, *noise)

    def normalize(self, node: Node, batch: DeviceBatch) -> None:
        """Normalize the sums of a layer in place: by those of the batch in training, else by the running averages."""
        room = self.rooms[node.number]
        z = room.z[: batch.size]
        size, n = z.shape
        arrays = [self.parameters.values(f"norm{node.number}_{name}") for name in NORM_ARRAYS]
        learns = batch.train and node.number not in self.graph.network.fixed
        if self.maps.by_channel(node.number):
            self.maps.normalize(node.number, z, *((room.normal, room.inverse) if learns else (None, None)))
        elif learns:
            assert room.normal is not None, "room for training has it"
            self.runtime.launch("batch_norm", (math.ceil(n / 32),), z, room.normal, room.inverse, *arrays, size, n)
        else:
            self.runtime.launch("batch_norm_inference", grid_of(z.size), z, *arrays, size, n, n)

    def _sums(self, node: Node, batch: DeviceBatch, z: Array) -> Array | None:
        """Compute the sums of a layer but for one bias, which is returned for whoever comes next to add it."""
        biases: list[Array | None] = [None]
        if node.layer.type is LayerType.FULLY_CONNECTED:
            for n, edge in enumerate(node.edges):
                self._product(edge, batch, z, add=n > 0)
            biases = [self.parameters.values(f"bias{edge.number}") for edge in node.edges]
        else:
            self.maps.compute(node, self.sources(batch, node), z, rounded=batch.train)
            pooled = self.rooms[node.number].pooled
            if pooled is not None and batch.train:
                self.runtime.move(pooled, z)
        for bias in biases[1:]:
            self.add_bias(z, bias)
        for skip in node.skips:
            self._skip(skip, batch, z)
        return biases[0]

    def add_bias(self, z: Array, bias: Array) -> None:
        """Add a bias to all rows of z, which may lie apart."""
        size, n = z.shape
        self.runtime.launch("add_bias", grid_of(size * n), z, bias, size, n, z.strides[0] // 4)

    def _product(self, edge: Edge, batch: DeviceBatch, z: Array, add: bool) -> None:
        """Compute x W into z, or add it."""
        w, flipped = self.parameters.weights(edge.owner), self.parameters.is_flipped(edge)
        if not is_sparse_input(self.graph.network.spec.layers[edge.source]):
            self.multiply(self.out(batch, edge.source), w, z, (False, flipped), add=add, rounded=batch.train)
            return
        if edge.source in self.wide_inputs:
            self._gather_shards(edge, batch, z, add)
            return
        strides = (1, w.shape[1]) if flipped else (w.shape[1], 1)
        size, n = z.shape
        self.runtime.launch(
            "gather",
            (size, math.ceil(n / GATHERED)),
            batch.words,
            *batch.at(edge.source, "starts", "items", "values"),
            w,
            *strides,
            z,
            size,
            n,
            z.strides[0] // 4,
            int(add),
            *self.input_noise(batch, edge.source),
        )

    def _gather_shards(self, edge: Edge, batch: DeviceBatch, z: Array, add: bool) -> None:
        """Compute x W of a sparse input that is cut into z, or add it: a rank has a part of that sum."""
        size, n = z.shape
        found = self._given[: z.size].reshape(size, n) if add else z
        self.runtime.launch(
            "gather_shards",
            (size, math.ceil(n / GATHERED)),
            batch.words,
            *batch.at(edge.source, "starts", "items", "origins", "values"),
            len(self.exchange.own),
            self.parameters.weights(edge.owner),
            *(found, size, n),
            *self.input_noise(batch, edge.source),
        )
        self.exchange.sum_ranks(found)
        if add:
            self.runtime.launch("add", grid_of(z.size), z, found, z.size)

    def multiply(
        self,
        a: Array,
        b: Array,
        out: Array,
        flip: tuple[bool, bool],
        *,
        add: bool,
        scale: float = 1.0,
        rounded: bool = True,
    ) -> None:
        """See `Runtime.multiply`; what is not `rounded`, as the precision of a training has it, is float32."""
        precision = self._precision if rounded else FLOAT32
        self.runtime.multiply(a, b, out, flip, add=add, scale=scale, precision=precision)

    def _skip(self, source: int, batch: DeviceBatch, z: Array) -> None:
        size, n = z.shape
        if not is_sparse_input(self.graph.network.spec.layers[source]):
            self.runtime.launch("add", grid_of(z.size), z, self.out(batch, source), z.size)
            return
        sections = batch.at(source, "starts", "items", "values")
        noise = self.input_noise(batch, source)
        self.runtime.launch("skip_add", grid_of(size), batch.words, *sections, z, size, n, n, *noise)
