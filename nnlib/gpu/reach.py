"""How far the kernels reach: what is refused, with a message, before anything is launched."""

from __future__ import annotations

from nnlib.errors import NnlibError
from nnlib.gpu.maps.convolution import MOST_STEPS
from nnlib.gpu.maps.sweeps import channels_of
from nnlib.gpu.optimizer import CHUNK
from nnlib.gpu.output import TILE
from nnlib.model.network import Layout, Network, count_units, iterate_limited_edges, layout_of
from nnlib.spec.geometry import has_kernel, sweep_of
from nnlib.spec.types import LayerKind, LayerType, NetworkSpec

GRID_ROWS = 65_535  # of a CUDA grid in its second dimension: the blocks that share a layer, or rows of weights
MOST_PLACES = (1 << 31) - 1  # of an axis, which kernels count in ints
CPU = "device: cpu takes more"


def require_reach(network: Network) -> None:
    """Raise NnlibError for a layer with more units than a grid has blocks for, or kernels beyond an int."""
    spec = network.spec
    for number, layer in enumerate(spec.layers):
        units = count_units(spec, number)
        if layer.kind is not LayerKind.INPUT and units > GRID_ROWS * TILE:
            raise _too_many(layer.name, units, "units", GRID_ROWS * TILE)
        if layer.type is LayerType.CONVOLUTIONAL and layer.groups > GRID_ROWS:
            raise _too_many(layer.name, layer.groups, "Groups", GRID_ROWS)
        if has_kernel(layer):
            _require_kernel(spec, number)
    for edge in iterate_limited_edges(network):
        below = count_units(spec, edge.source)
        if layout_of(spec, edge) is not Layout.BY_OUTPUT and below > GRID_ROWS * CHUNK:
            name = spec.layers[edge.target].name
            raise NnlibError(
                f'layer "{name}": WeightNorm over {below:,} units below it, legal on a GPU: up to '
                f"{GRID_ROWS * CHUNK:,}; {CPU}"
            )


def _require_kernel(spec: NetworkSpec, number: int) -> None:
    layer = spec.layers[number]
    for source in layer.sources:
        sweep = sweep_of(spec, spec.places[source], number)
        channels = max(channels_of(sweep)) if layer.type is LayerType.CONVOLUTIONAL else 1
        if channels * sweep.volume > MOST_STEPS:
            raise _too_many(layer.name, channels * sweep.volume, "places of its Kernel in a group's maps", MOST_STEPS)
        places = max((window.low + window.size + window.high for window in sweep.windows), default=0)
        if places > MOST_PLACES:
            raise _too_many(layer.name, places, "places of an axis and its padding", MOST_PLACES)


def _too_many(layer: str, count: int, what: str, most: int) -> NnlibError:
    return NnlibError(f'layer "{layer}": {count:,} {what}, legal on a GPU: up to {most:,}; {CPU}')
