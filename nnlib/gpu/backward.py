"""The backward pass on a GPU: the launches that compute every gradient of a batch. Twin: cpu/backward.py."""

from __future__ import annotations

import math
from typing import Protocol

from nnlib.gpu.buffers import ACTIVATIONS, Piece
from nnlib.gpu.forward import DeviceBatch, Forward
from nnlib.gpu.maps.pooling import Into, is_pooling
from nnlib.gpu.output import Losses
from nnlib.gpu.runtime import Array, grid_of
from nnlib.model.graph import Node
from nnlib.model.network import is_convolution, is_sparse_input, norm_count
from nnlib.ops.activations import ROWWISE
from nnlib.spec.types import Edge, LayerKind


class Sink(Protocol):
    """What is told of the gradients of a batch, which lie where `Parameters` says."""

    def begin(self) -> None:
        """Start to take the gradients of a batch."""

    def next_use(self, owner: int) -> bool:
        """Whether a gradient is to be added to what another edge with the same weights gave."""

    def touched(self, edge: Edge, batch: DeviceBatch, delta: Array) -> None:
        """Take the gradient of a sparse input's weights."""


class Backward:
    """Computes the error of a batch, and gives the gradient of its mean to `optimizer`."""

    def __init__(self, forward: Forward, losses: Losses, optimizer: Sink) -> None:
        self._forward, self._losses, self._optimizer = forward, losses, optimizer
        self._parameters, self._runtime = forward.parameters, forward.runtime
        self._spec, self._learning = forward.graph.network.spec, forward.graph.learning
        fixed = [norm_count(self._spec, n) for n in forward.graph.network.fixed]
        self._zeros = forward.runtime.zeros(max(fixed, default=0))
        self._belows = self._room_for_belows()
        self._written = set[int]()  # layers whose delta has something in it

    def _room_for_belows(self) -> Array:
        """Return room for what each own shard of an output layer that is cut gives to dLoss/d(a source)."""
        nodes = [node for node in self._forward.graph.nodes if node.number in self._forward.wide_outputs]
        deltas = [self._forward.rooms[edge.source].delta for node in nodes for edge in node.edges]
        shards = len(self._forward.exchange.own) + 1  # and for their sum
        return self._runtime.zeros(shards * max((d.size for d in deltas if d is not None), default=0))

    def _room(self, number: int, size: int) -> Array:
        """Return room for dLoss/d(what the next layers see) of a layer, for a batch of `size` examples."""
        delta = self._forward.rooms[number].delta
        assert delta is not None, "layers that are read have it"
        return delta[:size]

    def run(self, batch: DeviceBatch) -> None:
        """Go through the layers backwards, after `Forward.run`; the loss is added up in `Losses.status`."""
        self.begin()
        for node in reversed(self._forward.graph.nodes):
            delta = self.delta(node, batch)
            if delta is not None:
                self.norm_backward(node, delta)
                self.give(node, batch, delta)
        self.finish(batch)

    def begin(self) -> None:
        """Start on a batch."""
        self._optimizer.begin()
        self._written.clear()

    def finish(self, batch: DeviceBatch) -> None:
        """Add up the error of the batch."""
        self._losses.finish(batch)

    def delta(self, node: Node, batch: DeviceBatch) -> Array | None:
        """Return dLoss/dz, after batch normalization, of a layer; None where nothing is to be done with it.

        That is so of inputs, where no output layer depends on it, where nothing learns from here on, and of an output
        layer that is cut, which is done with.
        """
        if node.layer.kind is LayerKind.INPUT or node.number not in self._parameters.live:
            return None
        if node.number not in self._learning:
            if node.error is not None:
                self._losses.error(node, batch, only=True)
            return None
        if node.number in self._forward.wide_outputs:
            self._pieces(node, batch, self._written)
            return None
        delta = self._delta(node, batch, node.number in self._written)
        if node.layer.delta_norm:  # of each example's own delta, which is a part of a mean
            size, n = delta.shape
            arguments = (delta, batch.examples, n, delta.strides[0] // 4, node.layer.delta_norm)
            self._runtime.launch("limit_delta", (size,), *arguments)
        return delta

    def give(self, node: Node, batch: DeviceBatch, delta: Array) -> None:
        """Give the gradients of a layer, from dLoss/d(its sums), and the layers before it their part."""
        self._biases(node, delta)
        for edge in node.edges:
            self._edge(edge, batch, delta, self._written)
        if is_pooling(node):
            self._pool(node, batch, delta, self._written)
        for skip in node.skips:
            self._pass(skip, delta, self._written)

    def _pieces(self, node: Node, batch: DeviceBatch, written: set[int]) -> None:
        """Give the gradients of an output layer that is cut; add its part to dLoss/d(its sources)."""
        self._losses.error(node, batch)
        pieces = [(piece, piece.z[: batch.size]) for piece in self._forward.rooms[node.number].pieces]
        for edge in node.edges:
            if edge.source in self._learning:
                self._below_pieces(edge, pieces, batch, edge.source in written)
                written.add(edge.source)
        for edge in node.edges:
            gradient, bias = (self._parameters.gradient_of(f"{name}{edge.number}") for name in ("weights", "bias"))
            x = self._forward.out(batch, edge.source)
            for piece, delta in pieces:
                if bias is not None:
                    self._sum_columns(delta, bias[piece.at])
                if gradient is not None:
                    self._forward.multiply(delta, x, gradient[piece.at], (True, False), add=False)

    def _below_pieces(self, edge: Edge, pieces: list[tuple[Piece, Array]], batch: DeviceBatch, add: bool) -> None:
        """Compute dLoss/d(the source of an edge), or add to it: the tree's sum over all shards."""
        below, w = self._room(edge.source, batch.size), self._parameters.weights(edge.owner)
        every = self._belows[: (len(pieces) + 1) * below.size].reshape(len(pieces) + 1, *below.shape)
        for (piece, delta), part in zip(pieces, every, strict=False):
            self._forward.multiply(delta, w[piece.at], part, (False, False), add=False)
        found = every[-1] if add else below
        self._forward.exchange.add_up(every[:-1], found)
        if add:
            self._runtime.launch("add", grid_of(below.size), below, found, below.size)

    def _delta(self, node: Node, batch: DeviceBatch, given: bool) -> Array:
        """Return dLoss/dz, after batch normalization, of a layer: from those that read it, and from its own error."""
        if given:
            delta = self._room(node.number, batch.size)
            self._through(node, batch, delta)
            if node.error is not None:
                own = self._losses.error(node, batch)
                self._runtime.launch("add", grid_of(delta.size), delta, own, delta.size)
            return delta
        return self._losses.error(node, batch)

    def _through(self, node: Node, batch: DeviceBatch, delta: Array) -> None:
        """Turn dLoss/d(what the next layers see) into dLoss/dz, in place."""
        room, layer = self._forward.rooms[node.number], node.layer
        dropped, noise = self._forward.drops(batch, node), self._forward.mask(batch, node)
        unmasked = dropped and self._spec.compat
        if dropped and not unmasked and self._forward.drops_maps(node):
            self._forward.maps.drop_backward(node.number, delta, room.unit, noise)
            dropped = False
        a, (size, n) = room.z, delta.shape
        rule = self._spec.sparseness_of(layer)
        if rule.beta:
            seen = room.out if unmasked else a
            self._runtime.launch("sparseness", (math.ceil(n / 32),), seen, room.penalty, size, n, rule.p, rule.beta)
        kind = ACTIVATIONS.index(layer.activation)
        arguments = (
            delta,
            a,
            room.out,
            room.penalty,
            delta.size,
            n,
            kind,
            room.unit,
            int(dropped),
            int(unmasked),
            *noise,
        )
        self._runtime.launch("activation_dropout_backward", grid_of(math.ceil(delta.size / 8)), *arguments)
        if layer.activation in ROWWISE and not unmasked:
            self._runtime.launch("rowwise_backward", (size,), delta, a, room.totals, size, n, n, kind)

    def norm_backward(self, node: Node, delta: Array) -> None:
        """Go back through batch normalization, in place."""
        room, layer, (size, n) = self._forward.rooms[node.number], node.layer, delta.shape
        by_channel, fixed = self._forward.maps.by_channel(node.number), node.number in self._forward.graph.network.fixed
        if fixed and by_channel:
            self._forward.maps.infer_backward(node.number, delta, self._zeros)
        elif layer.batch_norm and by_channel:
            assert room.normal is not None, "room for training has it"
            self._forward.maps.normalize_backward(node.number, delta, room.normal[:size], room.inverse)
        elif fixed:  # as in prediction, but for what is constant in it
            scale, variance = (self._parameters.values(f"norm{node.number}_{name}") for name in ("scale", "variance"))
            constants = (scale, self._zeros, self._zeros, variance)
            self._runtime.launch("batch_norm_inference", grid_of(delta.size), delta, *constants, size, n, n)
        elif layer.batch_norm:
            scale, bias = (f"norm{node.number}_{name}" for name in ("scale", "bias"))
            gradients = self._parameters.gradient_of(scale), self._parameters.gradient_of(bias)
            arrays = (room.normal, room.inverse, self._parameters.values(scale))
            self._runtime.launch("batch_norm_backward", (math.ceil(n / 32),), delta, *arrays, *gradients, size, n)

    def _biases(self, node: Node, delta: Array) -> None:
        """Give the gradient of the biases, which is the same for all edges into a layer."""
        found = [self._parameters.gradient_of(f"bias{edge.number}") for edge in node.edges]
        first, *others = [gradient for gradient in found if gradient is not None] or [None]
        if first is not None and self._forward.maps.by_channel(node.number):
            self._forward.maps.sum_channels(node.number, delta, first)
        elif first is not None:
            self._sum_columns(delta, first)
        for other in others:
            self._runtime.move(other, first)

    def _sum_columns(self, delta: Array, sums: Array) -> None:
        (size, n), ld = delta.shape, delta.strides[0] // 4
        self._runtime.launch("column_sums", (math.ceil(n / 32),), delta, sums, size, n, ld, 1.0, 0)

    def _edge(self, edge: Edge, batch: DeviceBatch, delta: Array, written: set[int]) -> None:
        """Give the gradients of an edge; add its part to dLoss/d(its source)."""
        source = self._spec.layers[edge.source]
        if is_convolution(self._spec, edge):
            self._convolution(edge, batch, delta, written)
            return
        w, flipped = self._parameters.weights(edge.owner), self._parameters.is_flipped(edge)
        if edge.source in self._learning:
            below = self._room(edge.source, batch.size)
            self._forward.multiply(delta, w, below, (False, not flipped), add=edge.source in written)
            written.add(edge.source)
        if not self._parameters.is_trained(edge):
            return
        if is_sparse_input(source):
            self._optimizer.touched(edge, batch, delta)
            return
        x, gradient = self._forward.out(batch, edge.source), self._parameters.gradient_of(f"weights{edge.owner}")
        add = self._optimizer.next_use(edge.owner)
        if flipped:
            self._forward.multiply(delta, x, gradient, (True, False), add=add)
        else:
            self._forward.multiply(x, delta, gradient, (True, False), add=add)

    def _convolution(self, edge: Edge, batch: DeviceBatch, delta: Array, written: set[int]) -> None:
        """Give the gradient of a convolution's weights; add its part to dLoss/d(its source)."""
        if edge.source in self._learning:
            below, add = self._room(edge.source, batch.size), edge.source in written
            self._forward.maps.input_gradient(edge, delta, below, add=add)
            written.add(edge.source)
        if self._parameters.is_trained(edge):
            x, add = self._forward.out(batch, edge.source), self._optimizer.next_use(edge.owner)
            self._forward.maps.weight_gradient(edge, x, delta, add=add)

    def _pool(self, node: Node, batch: DeviceBatch, delta: Array, written: set[int]) -> None:
        """Add the part of a pooling layer to dLoss/d(each of its sources)."""
        belows: list[Into] = []
        for number in node.sources:
            below = self._forward.rooms[number].delta if number in self._learning else None
            belows.append(None if below is None else (below[: batch.size], number in written))
            written |= {number} & self._learning
        room = self._forward.rooms[node.number]
        a = room.z if room.pooled is None else room.pooled
        sources = self._forward.sources(batch, node)
        self._forward.maps.pool_backward(node, sources, a[: batch.size], delta, belows)

    def _pass(self, source: int, delta: Array, written: set[int]) -> None:
        """Add delta to dLoss/d(a layer that is skipped from)."""
        if source not in self._learning:
            return
        target = self._room(source, len(delta))
        if source in written:
            self._runtime.launch("add", grid_of(delta.size), target, delta, delta.size)
        else:
            self._runtime.move(target, delta)
            written.add(source)
