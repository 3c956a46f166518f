"""A network's layers in the order of computation, as both devices walk them."""

from __future__ import annotations

from dataclasses import dataclass

from nnlib.model.network import Network, block_width, count_units, find_learning_layers, is_blocked, layout_of
from nnlib.ops import losses
from nnlib.spec.topology import order
from nnlib.spec.types import Edge, Layer, LayerKind


@dataclass(frozen=True, slots=True)
class Node:
    """A layer in its place: the edges into it, the layers it skips from, and how it is computed."""

    number: int
    layer: Layer
    edges: tuple[Edge, ...]
    skips: tuple[int, ...]
    blocked: bool
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
        self.learning = find_learning_layers(network)
        self.layouts = {edge.number: layout_of(spec, spec.edges[edge.owner]) for edge in spec.edges}

    def node(self, layer: int) -> Node:
        """Return the node of a layer."""
        return next(node for node in self.nodes if node.number == layer)

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
        tuple(edge for edge in spec.edges if edge.target == number),
        tuple(spec.places[name] for name in layer.skips),
        is_blocked(spec, layer),
        losses.error_of(spec, layer) if layer.kind is LayerKind.OUTPUT else None,
    )
