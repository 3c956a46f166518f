"""The layers of a network whose values are maps, on a GPU: what forward.py and backward.py do with them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from nnlib.data.blockwise import BATCH
from nnlib.gpu.maps.channels import Channels
from nnlib.gpu.maps.convolution import Convolutions, Multiply
from nnlib.gpu.maps.pooling import REMEMBERS, Into, Pooling, is_pooling
from nnlib.gpu.maps.sweeps import Sweeps
from nnlib.gpu.parameters import Parameters
from nnlib.gpu.runtime import Array
from nnlib.model.graph import Graph, Node
from nnlib.model.network import NORM_ARRAYS, is_convolution, norm_count
from nnlib.spec.geometry import Maps, is_computed, maps_of
from nnlib.spec.types import Activation, Edge, LayerType, NetworkSpec

ASKED = 1 << 28  # numbers, 1 GiB: what all layers of maps give, of the examples that are asked for together


class MapLayers:
    """See the head of this module. `delta` and `below` are dLoss/d(a layer's sums) and dLoss/d(its source)."""

    def __init__(
        self, graph: Graph, parameters: Parameters, multiply: Multiply, most: int, train: bool, precision: str
    ) -> None:
        """Make room for batches of up to `most` examples; `train` for what training needs besides.

        `precision`: see `Convolutions`.
        """
        spec = graph.network.spec
        self._graph, self._spec, self._parameters = graph, spec, parameters
        sweeps = Sweeps(parameters.runtime)
        some = [graph.sweep(e.source, e.target) for e in spec.edges if is_convolution(spec, e)]
        self._convolutions = Convolutions(parameters.runtime, multiply, sweeps, some, most, train, precision)
        self._pooling = Pooling(parameters.runtime, graph, sweeps, most if train else 0)
        channels = (norm_count(spec, n) for n in range(len(spec.layers)) if train and self.by_channel(n))
        self._channels = Channels(parameters.runtime, max(channels, default=0))

    def using(self, parameters: Parameters) -> MapLayers:
        """Return the same with other parameters; what either needs meanwhile lies in the same memory."""
        other = copy.copy(self)
        other._parameters = parameters
        return other

    def by_channel(self, number: int) -> bool:
        """Whether a layer's biases, batch normalization and whole maps are something else than its units'."""
        layer = self._spec.layers[number]
        return layer.type is not LayerType.FULLY_CONNECTED and self._maps(number).spatial

    def compute(self, node: Node, sources: Sequence[Array], z: Array, rounded: bool) -> None:
        """Compute a convolutional layer's sums, with biases, or what a pooling layer makes of its sources."""
        if node.layer.type is LayerType.POOLING:
            self._pooling.forward(node, sources, z)
            return
        for n, (edge, x) in enumerate(zip(node.edges, sources, strict=True)):
            w, bias = self._parameters.weights(edge.owner), self._parameters.values(f"bias{edge.number}")
            sweep = self._graph.sweep(edge.source, edge.target)
            self._convolutions.forward(x, w, bias, z, sweep, add=n > 0, rounded=rounded)

    def pool_backward(
        self, node: Node, sources: Sequence[Array], a: Array, delta: Array, belows: Sequence[Into]
    ) -> None:
        """Compute dLoss/d(each source) of a pooling layer, of which `a` is what it gave."""
        self._pooling.backward(node, sources, a, delta, belows)

    def input_gradient(self, edge: Edge, delta: Array, below: Array, add: bool) -> None:
        """Compute dLoss/d(the source of a convolution), or add to it."""
        sweep, w = self._graph.sweep(edge.source, edge.target), self._parameters.weights(edge.owner)
        self._convolutions.input_gradient(delta, w, below, sweep, add)

    def weight_gradient(self, edge: Edge, x: Array, delta: Array, add: bool) -> None:
        """Compute the gradient of a convolution's weights, or add to it."""
        gradient = self._parameters.gradient_of(f"weights{edge.owner}")
        self._convolutions.weight_gradient(x, delta, gradient, self._graph.sweep(edge.source, edge.target), add)

    def sum_channels(self, number: int, delta: Array, sums: Array) -> None:
        """Sum delta over examples and places."""
        self._channels.sum(delta, sums, self._maps(number))

    def normalize(self, number: int, z: Array, normal: Array | None, inverse: Array | None) -> None:
        """Normalize z in place; without `normal` as in prediction."""
        norm = {name: self._norm(number, name) for name in NORM_ARRAYS}
        if normal is None or inverse is None:
            self._channels.infer(z, norm, self._maps(number))
        else:
            self._channels.normalize(z, normal, inverse, norm, self._maps(number))

    def normalize_backward(self, number: int, delta: Array, normal: Array, inverse: Array) -> None:
        """Go back through batch normalization, in place, and give the gradients of its parameters."""
        names = (f"norm{number}_{name}" for name in ("scale", "bias"))
        scale, bias = (self._parameters.gradient_of(name) for name in names)
        arrays = delta, normal, inverse, self._norm(number, "scale")
        self._channels.normalize_backward(*arrays, (scale, bias), self._maps(number))

    def infer_backward(self, number: int, delta: Array, zeros: Array) -> None:
        """Go back through batch normalization that training leaves alone, in place."""
        norm = {"scale": self._norm(number, "scale"), "variance": self._norm(number, "variance")}
        self._channels.infer(delta, {**norm, "bias": zeros, "mean": zeros}, self._maps(number))

    def drop(self, number: int, a: Array, out: Array, unit: Array, noise: tuple[Any, ...]) -> None:
        """Set `out` to a after dropout of whole maps."""
        self._channels.drop(a, out, unit, noise, self._maps(number))

    def drop_backward(self, number: int, delta: Array, unit: Array, noise: tuple[Any, ...]) -> None:
        """Turn dLoss/d(what `drop` gave) into dLoss/da, in place."""
        self._channels.drop_backward(delta, unit, noise, self._maps(number))

    def _maps(self, number: int) -> Maps:
        return maps_of(self._spec, number)

    def _norm(self, number: int, name: str) -> Array:
        return self._parameters.values(f"norm{number}_{name}")


def count_asked(spec: NetworkSpec) -> int:
    """Return how many examples are evaluated together: fewer of them where maps take much memory."""
    maps = [layer for layer in spec.layers if is_computed(layer)]
    return max(1, min(BATCH, ASKED // max(1, sum(layer.units or 0 for layer in maps))))


def must_remember(node: Node) -> bool:
    """Whether the gradient of a pooling layer needs what it gave, and something else comes in its place."""
    layer = node.layer
    changed = layer.batch_norm or node.skips or node.error or layer.activation is not Activation.LINEAR
    return is_pooling(node) and layer.function in REMEMBERS and bool(changed)
