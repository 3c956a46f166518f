"""What was read or written, in a line for people."""

from __future__ import annotations

from collections.abc import Mapping

from nnlib.model.network import Network
from nnlib.onnx_files.library import Shape
from nnlib.spec.types import Layer, LayerKind


def summarize(network: Network) -> str:
    """Return how large a network is, and what goes in and comes out."""
    spec = network.spec
    ends = (", ".join(_sizes(layer) for layer in spec.layers_of(kind)) for kind in (LayerKind.INPUT, LayerKind.OUTPUT))
    return f"{len(spec.layers)} layers, {network.parameters:,} parameters, {' -> '.join(ends)}"


def _sizes(layer: Layer) -> str:
    return f"{layer.name} ({' x '.join(map(str, layer.dimensions or (layer.units,)))})"


def describe_ends(ends: Mapping[str, Shape], half_lives: Mapping[str, float | None] | None = None) -> str:
    """Return the inputs or outputs of a graph with their shapes, and how the purchases of a history count."""
    found = []
    for name, shape in ends.items():
        days = (half_lives or {}).get(name)
        ages = f", 2^(-age / {days:g} days)" if days is not None else ""
        found.append(f"{name} ({', '.join(map(str, shape))}){ages}")
    return ", ".join(found)
