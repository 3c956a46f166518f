"""Convolutional and pooling layers on the processors of this machine, forward and back. Twin: gpu/maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from nnlib.cpu.maps.by_shard import by_shard
from nnlib.cpu.maps.convolution import convolutions_of
from nnlib.cpu.maps.norms import normalize, normalize_back
from nnlib.cpu.maps.pieces import by_examples, by_maps
from nnlib.cpu.maps.pooling import join, join_gradients, pool, pool_gradient, respond, respond_gradient
from nnlib.cpu.maps.shard_norms import ShardNorms
from nnlib.cpu.sink import Sink
from nnlib.model.graph import Graph, Node
from nnlib.ops import batch_norm
from nnlib.ops.activations import ROWWISE, activate
from nnlib.ops.batch_norm import Normed
from nnlib.ops.pooling import WHOLE
from nnlib.spec.kernel import SWEEPING
from nnlib.spec.types import Activation, Edge, LayerType, PoolingFunction
from nnlib.util.arrays import Floats
from nnlib.util.threads import Each, consume

if TYPE_CHECKING:
    from nnlib.cpu.forward import Values

MAPS = 64  # of a convolution's gradient that one thread gives to the optimizer
WINDOWED = (*SWEEPING, *WHOLE)
CHOOSING = (  # functions whose gradient depends on what they gave
    *(PoolingFunction.MAX, PoolingFunction.GLOBAL_MAX, PoolingFunction.MAXOUT, PoolingFunction.COSINE),
)

Belows = list[tuple[int, Floats]]  # layers that learn, dLoss/d(what they give)


def is_simple(node: Node) -> bool:
    """Whether a layer's units are activated one by one, and nobody asks for their sums."""
    return node.error is None and node.layer.activation not in ROWWISE


class MapLayers:
    """Computes what is not fully connected of a graph, on the threads that `each` has."""

    def __init__(self, graph: Graph, each: Each) -> None:
        self._graph, self._each = graph, each
        self._maps = {node.number: node.maps for node in graph.nodes}
        self._convolutions = convolutions_of(graph.network.dtype)

    def compute(self, node: Node, values: Values, training: bool) -> Floats:
        """Return the sums of a layer, normalized; of a simple one (see `is_simple`) what it gives.

        All that follows on the sums of a piece is done while they are in the cache.
        """
        if training and values.norms is not None and node.number in self._graph.network.learned_norms:
            return self._normalized_together(node, values, values.norms)
        z, network, maps = self._sums(node, values), self._graph.network, node.maps
        wide = z.reshape(len(z), maps.channels, maps.area)
        norm, complete = network.norms.get(node.number), self._complete(node, values, wide)
        learned = norm is not None and training and node.number not in network.fixed
        out = np.empty_like(wide) if learned else wide
        inverse = np.empty(maps.channels, z.dtype)

        def finish(examples: slice, channels: slice) -> None:
            part = complete(examples, channels)
            if learned and norm is not None:
                normalize(norm, wide, channels, inverse, out)
                part = out[:, channels]
            elif norm is not None:
                batch_norm.inference(norm.part(channels), part)
            if is_simple(node):
                activate(node.layer, part)

        if learned:
            by_maps(self._each, lambda some: finish(slice(None), some), len(z), maps)
            values.normed[node.number] = Normed(wide, inverse)
        elif node.edges or node.skips or norm is not None or node.layer.activation is not Activation.LINEAR:
            by_examples(self._each, lambda some: finish(some, slice(None)), *z.shape)
        return out.reshape(z.shape)

    def sums(self, node: Node, values: Values) -> Floats:
        """Return the sums of a layer, (b, units), not normalized."""
        z = self._sums(node, values)
        complete = self._complete(node, values, z.reshape(len(z), node.maps.channels, node.maps.area))
        if node.edges or node.skips:
            by_examples(self._each, lambda some: complete(some, slice(None)), *z.shape)
        return z

    def _normalized_together(self, node: Node, values: Values, norms: ShardNorms) -> Floats:
        """As `compute`, of a layer that is normalized by the whole batch, of which others have shards."""
        norm = self._graph.network.norms[node.number]
        values.normed[node.number], out = norms.forward(node, norm, self.sums(node, values))
        if is_simple(node) and node.layer.activation is not Activation.LINEAR:
            by_examples(self._each, lambda some: activate(node.layer, out[some]), *out.shape)
        return out

    def _complete(self, node: Node, values: Values, wide: Floats) -> Callable[[slice, slice], Floats]:
        """Return what adds biases and skips to the sums (b, C, S) of some examples and channels, and returns these."""
        bias, skips = self._bias(node), [_dense(values.out[skip]).reshape(wide.shape) for skip in node.skips]

        def complete(examples: slice, channels: slice) -> Floats:
            part = wide[examples, channels]
            if bias is not None:
                part += bias[channels, None]
            for skip in skips:
                part += skip[examples, channels]
            return part

        return complete

    def backward(self, node: Node, values: Values, delta: Floats, sink: Sink) -> Belows:
        """Give the gradients of a layer's weights to `sink`, and return what the layers before it get.

        delta = dLoss/d(sums) is of no use afterwards but to be copied at once.
        """
        if node.layer.type is LayerType.POOLING:
            return self._pool_backward(node, values, delta)
        graph, each, belows = self._graph, self._each, Belows()
        bias = by_shard(lambda some: self._bias_gradient(node, delta[some]), values.shards)
        for edge in node.edges:
            x, w = values.out[edge.source], graph.network.stores[edge.owner]
            sweep = graph.sweep(edge.source, node.number)
            if edge.source in graph.learning:
                belows.append((edge.source, self._convolutions.input_gradient(delta, w, sweep, each)))
            if edge.owner not in graph.network.locked:
                gradient = self._convolutions.weight_gradient(x, delta, sweep, each, values.shards)
                self._give(edge, gradient, sink)
                sink.bias(edge.number, 0, bias.copy())
        return belows

    def norm_backward(self, node: Node, values: Values, delta: Floats, sink: Sink) -> Floats:
        """Return dLoss/d(sums before batch normalization), and give the gradients of scale and bias to `sink`.

        delta = dLoss/d(normalized sums) is overwritten.
        """
        network, maps = self._graph.network, node.maps
        norm = network.norms[node.number]
        wide = np.ascontiguousarray(delta).reshape(len(delta), maps.channels, maps.area)
        if node.number in network.fixed:
            by_examples(self._each, lambda some: batch_norm.inference_backward(norm, wide[some]), *delta.shape)
            return wide.reshape(delta.shape)
        normed, scale, bias = values.normed[node.number], np.empty_like(norm.scale), np.empty_like(norm.bias)
        by_maps(self._each, lambda some: normalize_back(norm, normed, wide, some, scale, bias), len(delta), maps)
        sink.norm(node.number, scale, bias)
        return wide.reshape(delta.shape)

    def _sums(self, node: Node, values: Values) -> Floats:
        """Return z (b, units) without biases and skips, in memory of its own."""
        if node.layer.type is LayerType.POOLING:
            return self._pool(node, values)
        z: Floats | None = None
        for edge in node.edges:
            x, w = values.out[edge.source], self._graph.network.stores[edge.owner]
            part = self._convolutions.forward(x, w, self._graph.sweep(edge.source, node.number), self._each)
            z = part if z is None else np.add(z, part, out=z)
        assert z is not None, "a layer that is computed has a source"
        return z

    def _pool(self, node: Node, values: Values) -> Floats:
        function, sources = node.layer.function, [values.out[source] for source in node.sources]
        assert function is not None, "a pooling layer has a function"
        if function in WINDOWED:
            return pool(function, sources[0], self._graph.sweep(node.sources[0], node.number), self._each)
        maps = [self._maps[source] for source in node.sources]
        if function is PoolingFunction.LRN:
            return respond(self._graph.network.spec.local_response, sources[0], maps[0], self._each)
        return join(function, sources, maps, node.units, self._each)

    def _pool_backward(self, node: Node, values: Values, delta: Floats) -> Belows:
        graph, layer, function = self._graph, node.layer, node.layer.function
        sources, maps = [values.out[source] for source in node.sources], [self._maps[n] for n in node.sources]
        assert function is not None, "a pooling layer has a function"
        if not graph.learning.intersection(node.sources):
            return []
        if function is PoolingFunction.LRN:
            found = [respond_gradient(graph.network.spec.local_response, sources[0], delta, maps[0], self._each)]
        else:
            changed = layer.batch_norm or node.skips or layer.activation is not Activation.LINEAR
            a = self._pool(node, values) if changed and function in CHOOSING else values.active(node.number)
            if function in WINDOWED:
                sweep = graph.sweep(node.sources[0], node.number)
                found = [pool_gradient(function, sources[0], a, delta, sweep, self._each)]
            else:
                found = join_gradients(function, sources, maps, a, delta, self._each)
        return [pair for pair in zip(node.sources, found, strict=True) if pair[0] in graph.learning]

    def _bias(self, node: Node) -> Floats | None:
        """Return the sum of a convolutional layer's biases, (maps,)."""
        biases = [self._graph.network.biases[edge.number] for edge in node.edges]
        return np.sum(biases, axis=0) if biases else None

    def _bias_gradient(self, node: Node, delta: Floats) -> Floats:
        wide = delta.reshape(len(delta), node.maps.channels, node.maps.area)
        gradient = np.empty(node.maps.channels, delta.dtype)

        def some(channels: slice) -> None:
            gradient[channels] = wide[:, channels].sum(axis=(0, 2))

        by_maps(self._each, some, len(delta), node.maps)
        return gradient

    def _give(self, edge: Edge, gradient: Floats, sink: Sink) -> None:
        def some(low: int) -> None:
            sink.rows(edge.number, low, gradient[low : low + MAPS])

        consume(self._each(some, range(0, len(gradient), MAPS)))


def _dense(values: Any) -> Floats:
    """Return what a layer gives as an array as large as the layer that skips from it."""
    return np.asarray(values.toarray() if sparse.issparse(values) else values)
