"""A network's layers in the order of computation, as both devices walk them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from nnlib.model.network import (
    Network,
    block_width,
    count_units,
    find_learning_layers,
    find_live_layers,
    is_blocked,
    layout_of,
)
from nnlib.ops import losses
from nnlib.ops.pooling import WHOLE, whole
from nnlib.spec.geometry import Maps, Sweep, has_kernel, maps_of, sweep_of
from nnlib.spec.topology import order
from nnlib.spec.types import Edge, Layer, LayerKind, NetworkSpec


@dataclass(frozen=True, slots=True)
class Node:
    """A layer in its place: its sources, the edges from them, the layers it skips from, and how it is computed."""

    number: int
    layer: Layer
    sources: tuple[int, ...]
    edges: tuple[Edge, ...]  # none into a pooling layer
    skips: tuple[int, ...]
    blocked: bool
    maps: Maps  # what its values are
    error: losses.Error | None  # of an output layer

    @property
    def units(self) -> int:
        """How many units the layer has."""
        return self.layer.units or 0


class Graph:
    """A network and its layers, each after those that it is computed from."""

    def __init__(self, network: Network) -> None:
        spec = network.spec
        self.network = network
        self.nodes = tuple(_node(network, n) for n in order(spec))
        self.outputs = tuple(node for node in self.nodes if node.layer.kind is LayerKind.OUTPUT)
        self._sweeps = {
            (source, node.number): _sweep(spec, source, node) for node in self.nodes for source in node.sources
        }
        self.layouts = {edge.number: layout_of(spec, spec.edges[edge.owner]) for edge in spec.edges}

    @cached_property
    def learning(self) -> frozenset[int]:
        """The layers whose value training changes, to which alone the error is carried back."""
        return find_learning_layers(self.network)

    @cached_property
    def live(self) -> frozenset[int]:
        """The layers on which an output layer depends."""
        return find_live_layers(self.network.spec)

    def node(self, layer: int) -> Node:
        """Return the node of a layer."""
        return next(node for node in self.nodes if node.number == layer)

    def sweep(self, source: int, target: int) -> Sweep:
        """Return how the kernel of a layer moves over the maps of one of its sources."""
        found = self._sweeps[source, target]
        assert found is not None, "the layer has no kernel"
        return found

    def table(self, edge: Edge, low: int) -> slice:
        """Return the rows of a BLOCKED store that hold the weights to the block of units from `low`."""
        below = count_units(self.network.spec, edge.source)
        start = low // block_width(count_units(self.network.spec, edge.target)) * below
        return slice(start, start + below)


def _node(network: Network, number: int) -> Node:
    spec = network.spec
    layer = spec.layers[number]
    return Node(
        number,
        layer,
        tuple(spec.places[name] for name in layer.sources),
        tuple(edge for edge in spec.edges if edge.target == number),
        tuple(spec.places[name] for name in layer.skips),
        is_blocked(spec, layer),
        maps_of(spec, number),
        losses.error_of(spec, layer) if layer.kind is LayerKind.OUTPUT else None,
    )


def _sweep(spec: NetworkSpec, source: int, node: Node) -> Sweep | None:
    """Return how a layer's kernel moves over a source, None for a layer without one."""
    if node.layer.function in WHOLE:
        return whole(maps_of(spec, source))
    return sweep_of(spec, source, node.number) if has_kernel(node.layer) else None
