"""A specification with its parameters, in the layout that training reads and writes fastest."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnlib.model.initial_weights import initial_weights
from nnlib.ops.batch_norm import BatchNorm
from nnlib.ops.losses import error_of
from nnlib.spec.geometry import kernel_shape, maps_of, sweep_of
from nnlib.spec.topology import order
from nnlib.spec.types import Edge, Layer, LayerKind, LayerType, NetworkSpec
from nnlib.util.arrays import Floats

NORM_ARRAYS = ("scale", "bias", "mean", "variance")
BLOCK = 512  # output units at a time: sums (256, 512) of float32 are half a megabyte, inside a core's cache


class Layout(enum.StrEnum):
    """How a weight matrix lies in memory."""

    PLAIN = "plain"  # (in, out)
    BY_OUTPUT = "by output"  # (out, in): a block of output units is contiguous
    BLOCKED = "blocked"  # one (in, BLOCK) matrix after the other, the last filled up with zeros: for sparse inputs


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A specification whose layers all have their units, and its parameters.

    `stores` holds the weights by the number of the edge that owns them, each as its layout says; use `matrix` to get
    them as (in, out). `biases` has one array (out,) for every edge, shared weights or not. Of an edge into a
    convolutional layer, `out` are its maps, and a row of the store is a kernel [channels of a group][z][y][x].
    """

    spec: NetworkSpec
    stores: Mapping[int, Floats]
    biases: Sequence[Floats]
    norms: Mapping[int, BatchNorm]  # layer number -> its batch normalization
    locked: frozenset[int] = frozenset()  # edges whose weights and biases training leaves alone
    fixed: frozenset[int] = frozenset()  # layers whose batch normalization it leaves alone: that of prediction

    @property
    def dtype(self) -> Any:
        """The type of all parameters."""
        return self.biases[0].dtype

    @property
    def learned_norms(self) -> frozenset[int]:
        """The layers whose batch normalization learns: training normalizes them by the batch itself."""
        return frozenset(self.norms.keys() - self.fixed)

    @property
    def parameters(self) -> int:
        """How many numbers training may change."""
        weights = sum(math.prod(weight_shape(self.spec, edge)) for edge in iterate_owners(self.spec))
        return weights + sum(b.size for b in self.biases) + sum(2 * n.scale.size for n in self.norms.values())

    def matrix(self, owner: int) -> Floats:
        """Return the weights of an edge as (in, out), row-contiguous; perhaps a copy."""
        edge, store = self.spec.edges[owner], self.stores[owner]
        layout = layout_of(self.spec, edge)
        if layout is Layout.BY_OUTPUT:
            return np.ascontiguousarray(store.T)
        if layout is Layout.BLOCKED:
            return join_blocks(self.spec, edge, store).copy()
        return store

    def kernels(self, owner: int) -> Floats:
        """Return the weights of an edge as people look at them: of a convolution a view (maps, channels, z, y, x).

        The channels are those of a group, and axes that there are not are left out; of other edges it is `matrix`.
        """
        edge = self.spec.edges[owner]
        if not is_convolution(self.spec, edge):
            return self.matrix(owner)
        return self.stores[owner].reshape(kernel_shape(self.spec, edge.source, edge.target))

    def copy(self) -> Network:
        """Return a copy with parameters of its own."""
        return Network(
            self.spec,
            {n: store.copy() for n, store in self.stores.items()},
            [bias.copy() for bias in self.biases],
            {n: norm.copy() for n, norm in self.norms.items()},
            self.locked,
            self.fixed,
        )

    def take(self, other: Network) -> None:
        """Take over the parameters of another network of the same specification, without new memory."""
        for (_, own), (_, array) in zip(self.arrays(), other.arrays(), strict=True):
            own[...] = array

    def arrays(self) -> Iterator[tuple[str, Floats]]:
        """Yield every array of numbers with a name for it, always in the same order."""
        for owner, store in sorted(self.stores.items()):
            yield f"weights{owner}", store
        for number, bias in enumerate(self.biases):
            yield f"bias{number}", bias
        for layer, norm in sorted(self.norms.items()):
            for name in NORM_ARRAYS:
                yield f"norm{layer}_{name}", getattr(norm, name)

    def layer_of(self, name: str) -> int:
        """Return the layer that an array of `arrays` belongs to; weights and biases belong to the one they lead to."""
        number = int("".join(filter(str.isdigit, name)))
        return number if name.startswith("norm") else self.spec.edges[number].target


def create(spec: NetworkSpec, random: np.random.Generator, dtype: Any = np.float32) -> Network:
    """Return a network with initial parameters; every layer must have its number of units."""
    stores, biases = {}, []
    for edge in spec.edges:
        if edge.owner == edge.number:
            weights = _draw(spec, edge, random).astype(dtype, copy=False)
            stores[edge.number] = lay_out_weights(spec, edge, weights)
        biases.append(np.full(bias_count(spec, edge), spec.layers[edge.target].init.bias, dtype))
    return Network(spec, stores, biases, _norms(spec, dtype))


def _draw(spec: NetworkSpec, edge: Edge, random: np.random.Generator) -> Floats:
    """Return the initial weights of an edge, (in, out)."""
    shape, target = weight_shape(spec, edge), spec.layers[edge.target]
    if not is_convolution(spec, edge):
        return initial_weights(target.init, shape, random, spec.compat)
    sweep = sweep_of(spec, edge.source, edge.target)
    fans = (sweep.fan_in, sweep.target.channels // sweep.groups * sweep.volume)
    if spec.compat:
        fans = (sweep.source.units, sweep.target.units)
    return initial_weights(target.init, shape[::-1], random, spec.compat, fans).T  # drawn as they are stored


def assemble(
    spec: NetworkSpec,
    matrices: Mapping[int, Floats],
    biases: Sequence[Floats],
    norms: Mapping[int, BatchNorm],
    locked: frozenset[int] = frozenset(),
) -> Network:
    """Return a network of given parameters: `matrices` are (in, out), by the number of the edge that owns them.

    The arrays belong to the network from then on. Batch normalizations that are missing start anew.
    """
    stores = {n: lay_out_weights(spec, spec.edges[n], weights) for n, weights in matrices.items()}
    return Network(spec, stores, list(biases), {**_norms(spec, biases[0].dtype), **norms}, locked)


def lay_out_weights(spec: NetworkSpec, edge: Edge, weights: Floats) -> Floats:
    """Return weights (in, out) in the layout of an edge."""
    layout = layout_of(spec, edge)
    if layout is Layout.PLAIN:
        return np.ascontiguousarray(weights)
    if layout is Layout.BY_OUTPUT:
        return np.ascontiguousarray(weights.T)
    blocks = block_starts(weights.shape[1])
    wide = np.zeros((len(blocks) * len(weights), block_width(weights.shape[1])), weights.dtype)
    for n, low in enumerate(blocks):
        piece = weights[:, low : low + wide.shape[1]]
        wide[n * len(weights) : (n + 1) * len(weights), : piece.shape[1]] = piece
    return wide


def join_blocks(spec: NetworkSpec, edge: Edge, store: Floats) -> Floats:
    """Return the weights (in, out) of a BLOCKED store."""
    below, above = weight_shape(spec, edge)
    return np.concatenate(np.split(store, len(store) // below), axis=1)[:, :above]


def layout_of(spec: NetworkSpec, edge: Edge) -> Layout:
    """Return how the weights of an edge lie in memory."""
    if is_convolution(spec, edge):
        return Layout.BY_OUTPUT
    if not is_blocked(spec, spec.layers[edge.target]):
        return Layout.PLAIN
    return Layout.BLOCKED if is_sparse_input(spec.layers[edge.source]) else Layout.BY_OUTPUT


def is_blocked(spec: NetworkSpec, layer: Layer) -> bool:
    """Whether a layer is computed in blocks of units that never exist together.

    That holds for an output layer that no other layer needs whole, and whose weights no other edge uses.
    """
    number = spec.places[layer.name]
    return (
        layer.kind is LayerKind.OUTPUT
        and layer.type is LayerType.FULLY_CONNECTED
        and error_of(spec, layer).blockwise
        and not (layer.dropout or layer.skips or layer.delta_norm or layer.shared or layer.batch_norm)
        and not any(layer.name in (*other.sources, *other.skips) for other in spec.layers)
        and not any(edge.owner != edge.number and spec.edges[edge.owner].target == number for edge in spec.edges)
    )


def is_sparse_input(layer: Layer) -> bool:
    """Whether a layer's values are sparse rows; its `sparse` is what the data said."""
    return layer.kind is LayerKind.INPUT and layer.sparse


def is_lazy(spec: NetworkSpec, edge: Edge) -> bool:
    """Whether training leaves weight rows alone that a batch does not touch: those of a sparse input.

    Shared weights may be touched as a whole by another edge, and a limit of their norm needs all rows.
    """
    shared = any(other.owner == edge.owner and other.number != edge.number for other in spec.edges)
    return is_sparse_input(spec.layers[edge.source]) and not shared and not spec.layers[edge.target].weight_norm


def needs_whole_gradients(spec: NetworkSpec) -> bool:
    """Whether weights are shared, or those of a sparse input cannot be updated row by row."""
    return any(
        edge.owner != edge.number or (is_sparse_input(spec.layers[edge.source]) and not is_lazy(spec, edge))
        for edge in spec.edges
    )


def find_live_layers(spec: NetworkSpec) -> frozenset[int]:
    """Return the layers on which an output layer depends."""
    found = {n for n, layer in enumerate(spec.layers) if layer.kind is LayerKind.OUTPUT}
    waiting = list(found)
    while waiting:
        layer = spec.layers[waiting.pop()]
        new = {spec.places[name] for name in (*layer.sources, *layer.skips)} - found
        found |= new
        waiting += new
    return frozenset(found)


def find_learning_layers(network: Network) -> frozenset[int]:
    """Return the layers whose value training changes by parameters of their own or of layers before them.

    The error is carried back to these alone.
    """
    spec, found = network.spec, set[int]()
    learning = {edge.target for edge in spec.edges if edge.owner not in network.locked}
    learning |= network.learned_norms
    for n in order(spec):
        layer = spec.layers[n]
        if n in learning or any(spec.places[name] in found for name in (*layer.sources, *layer.skips)):
            found.add(n)
    return frozenset(found)


def block_width(count: int) -> int:
    """Return how many of `count` output units are computed at a time."""
    return min(BLOCK, count)


def block_starts(count: int) -> range:
    """Return where the blocks of `count` output units start."""
    return range(0, count, block_width(count))


def count_units(spec: NetworkSpec, layer: int) -> int:
    """Return how many units the layer of that number has."""
    count = spec.layers[layer].units
    if count is None:
        raise ValueError(f"layer {spec.layers[layer].name}: number of units not resolved")
    return count


def is_convolution(spec: NetworkSpec, edge: Edge) -> bool:
    """Whether an edge's weights are kernels that move over maps."""
    return spec.layers[edge.target].type is LayerType.CONVOLUTIONAL


def weight_shape(spec: NetworkSpec, edge: Edge) -> tuple[int, int]:
    """Return how many weights (in, out) an edge has: of a convolutional one, (values under a kernel, maps)."""
    if is_convolution(spec, edge):
        sweep = sweep_of(spec, edge.source, edge.target)
        return sweep.fan_in, sweep.target.channels
    return count_units(spec, edge.source), count_units(spec, edge.target)


def bias_count(spec: NetworkSpec, edge: Edge) -> int:
    """Return how many biases an edge has: one for each unit, or for each map of a convolutional layer."""
    return norm_count(spec, edge.target)


def norm_count(spec: NetworkSpec, layer: int) -> int:
    """Return how many scales a layer's batch normalization has: one for each unit, or channel of what has maps."""
    if spec.layers[layer].type is LayerType.FULLY_CONNECTED:
        return count_units(spec, layer)
    return maps_of(spec, layer).channels


def iterate_owners(spec: NetworkSpec) -> Iterator[Edge]:
    """Yield the edges with weights of their own."""
    return (edge for edge in spec.edges if edge.owner == edge.number)


def iterate_limited_edges(network: Network) -> Iterator[Edge]:
    """Yield the edges whose weights WeightNorm limits: those that are trained and not shared."""
    spec = network.spec
    shared = {edge.owner for edge in spec.edges if edge.owner != edge.number}
    for edge in iterate_owners(spec):
        if spec.layers[edge.target].weight_norm and edge.number not in shared | network.locked:
            yield edge


def name_broken_values(layer: str) -> str:
    """Name a layer whose values are not finite, as `name_broken_layer` names one with such parameters."""
    return f", layer {layer} gives numbers that are not finite"


def name_broken_layer(spec: NetworkSpec, finite: Set[str]) -> str:
    """Name the first layer that has an array, named as in `Network.arrays`, which is not among the finite ones."""
    for edge in spec.edges:
        if not {f"weights{edge.owner}", f"bias{edge.number}"} <= finite:
            return f", weights into layer {spec.layers[edge.target].name} are not finite"
    for number, layer in enumerate(spec.layers):
        if layer.batch_norm and not {f"norm{number}_{name}" for name in NORM_ARRAYS} <= finite:
            return f", the batch normalization of layer {layer.name} is not finite"
    return ""


def _norms(spec: NetworkSpec, dtype: Any) -> dict[int, BatchNorm]:
    return {n: BatchNorm.start(norm_count(spec, n), dtype) for n, layer in enumerate(spec.layers) if layer.batch_norm}
