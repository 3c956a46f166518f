"""How far the kernels reach: what is refused, with a message, before anything is launched."""

from __future__ import annotations

from nnlib.errors import NnlibError
from nnlib.gpu.optimizer import CHUNK
from nnlib.gpu.output import TILE
from nnlib.model.network import Layout, Network, count_units, iterate_limited_edges, layout_of
from nnlib.spec.types import LayerKind, LayerType

GRID_ROWS = 65_535  # of a CUDA grid in its second dimension: the blocks that share a layer, or rows of weights
CPU = "device: cpu takes more"


def require_reach(network: Network) -> None:
    """Raise NnlibError for a layer with more units than a grid has blocks for."""
    spec = network.spec
    for number, layer in enumerate(spec.layers):
        units = count_units(spec, number)
        if layer.kind is not LayerKind.INPUT and units > GRID_ROWS * TILE:
            raise NnlibError(
                f'layer "{layer.name}": {units:,} units, legal on a GPU: up to {GRID_ROWS * TILE:,}; {CPU}'
            )
        if layer.type is LayerType.CONVOLUTIONAL and layer.groups > GRID_ROWS:
            raise NnlibError(
                f'layer "{layer.name}": {layer.groups:,} Groups, legal on a GPU: up to {GRID_ROWS:,}; {CPU}'
            )
    for edge in iterate_limited_edges(network):
        below = count_units(spec, edge.source)
        if layout_of(spec, edge) is not Layout.BY_OUTPUT and below > GRID_ROWS * CHUNK:
            name = spec.layers[edge.target].name
            raise NnlibError(
                f'layer "{name}": WeightNorm over {below:,} units below it, legal on a GPU: up to '
                f"{GRID_ROWS * CHUNK:,}; {CPU}"
            )
