"""The layers of a network as a table: how each is computed, its shape, its parameters, and what one example costs.

FLOPs are those of products alone, forwards, two for a multiplication and its addition; of a sparse input none are
counted here, as they depend on the entries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from nnlib.data.file import SetSummary
from nnlib.model.network import bias_count, is_sparse_input, norm_count, weight_shape
from nnlib.spec.geometry import has_kernel, is_computed, maps_of
from nnlib.spec.network import SpecError
from nnlib.spec.sizes import fit_data, resolve_sizes
from nnlib.spec.types import Activation, Edge, Layer, LayerKind, LayerType, NetworkSpec
from nnlib.util.columns import Narrow, fold_text, format_fitted

HEADINGS = ("layer", "computed as", "from", "N", "parameters", "MFLOP")
NARROW = Narrow(drop=("from",), fold={"layer": 8, "computed as": 12})


def fit_sets(spec: NetworkSpec, sets: Sequence[SetSummary]) -> NetworkSpec | None:
    """Return a network with the sizes of its data sets and of what is computed of them; None where it does not fit.

    None as well where a data set is missing that a layer has its size of.
    """
    known, layers = {one.name: one for one in sets}, []
    for layer in spec.layers:
        found = known.get(layer.data_set) if layer.kind is not LayerKind.HIDDEN else None
        layers.append(fit_data(layer, found.width, found.dimensions, "sparse" in found.kind) if found else layer)
    try:
        resolved = resolve_sizes(replace(spec, layers=tuple(layers)), "")
    except SpecError:
        return None
    return None if any(layer.units is None for layer in resolved.layers) else resolved


def has_maps(spec: NetworkSpec) -> bool:
    """Whether a network has layers that are not fully connected, so that their shapes say much."""
    return any(is_computed(layer) for layer in spec.layers)


def count_weights(spec: NetworkSpec, edge: Edge) -> int:
    """Return how many weights an edge has, whoever owns them."""
    return math.prod(weight_shape(spec, edge))


def count_places(spec: NetworkSpec, edge: Edge) -> int:
    """Return how often each weight of an edge is used for one example: once, a kernel for each value of a map."""
    convolves = spec.layers[edge.target].type is LayerType.CONVOLUTIONAL
    return maps_of(spec, edge.target).area if convolves else 1


def count_parameters(spec: NetworkSpec, number: int) -> int:
    """Return how many numbers training may change of a layer: those of the edges into it and its normalization."""
    edges = [edge for edge in spec.edges if edge.target == number]
    own = sum(count_weights(spec, edge) for edge in edges if edge.owner == edge.number)
    norm = 2 * norm_count(spec, number) if spec.layers[number].batch_norm else 0
    return own + sum(bias_count(spec, edge) for edge in edges) + norm


def count_forward_flops(spec: NetworkSpec, number: int) -> int:
    """Return the FLOPs of a layer's products for one example, forwards."""
    edges = (edge for edge in spec.edges if edge.target == number and not is_sparse_input(spec.layers[edge.source]))
    return sum(2 * count_weights(spec, edge) * count_places(spec, edge) for edge in edges)


def describe_shapes(spec: NetworkSpec, room: int) -> list[str]:
    """Return the table and its sums as lines of at most `room` columns; all layers have their units."""
    numbers = range(len(spec.layers))
    parameters, flops = ([count(spec, n) for n in numbers] for count in (count_parameters, count_forward_flops))
    rows = [_cells(spec, n, parameters[n], flops[n]) for n in numbers]
    table = format_fitted(HEADINGS, rows, [False, False, False, True, True, True], NARROW, room)
    scale, unit = (1e9, "GFLOP") if sum(flops) >= 1e9 else (1e6, "MFLOP")
    total = (
        f"{sum(parameters):,} parameters; {sum(flops) / scale:,.2f} {unit} an example, forwards: products alone, two "
        "for a multiplication and its addition"
    )
    return [*table.split("\n"), *fold_text(total, room, "  ")]


def describe_layer(layer: Layer) -> str:
    """Return how a layer is computed, in a few words: `conv 3x3/2, norm, Relu` has a stride of 2."""
    if layer.kind is LayerKind.INPUT:
        return f"data {layer.data_set!r}"
    parts = [_operation(layer)]
    if has_kernel(layer):
        parts[0] += f" {_by_axis(layer.kernel)}" + f"/{_shortest(layer.stride)}" * any(one > 1 for one in layer.stride)
        parts += [f"dilation {_shortest(layer.dilation)}"] * any(one > 1 for one in layer.dilation)
        parts += [f"{layer.groups} groups"] * (layer.groups > 1)
    parts += ["norm"] * layer.batch_norm + [str(layer.activation)] * (layer.activation is not Activation.LINEAR)
    return ", ".join(parts)


def _operation(layer: Layer) -> str:
    if layer.type is LayerType.POOLING:
        return str(layer.function)
    return "conv" if layer.type is LayerType.CONVOLUTIONAL else "full"


def _cells(spec: NetworkSpec, number: int, parameters: int, flops: int) -> tuple[str, ...]:
    layer = spec.layers[number]
    before = spec.layers[number - 1].name if number else ""
    sources = [*layer.sources, *(f"+ {name}" for name in layer.skips)]
    return (
        layer.name,
        describe_layer(layer),
        "" if sources == [before] else ", ".join(sources),
        _by_axis(layer.dimensions or (layer.units or 0,)),
        f"{parameters:,}" if parameters else "-",
        f"{flops / 1e6:,.2f}" if flops else "-",
    )


def _by_axis(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


def _shortest(sizes: Sequence[int]) -> str:
    """Return one number for axes that are all alike."""
    return str(sizes[0]) if len(set(sizes)) == 1 else _by_axis(sizes)
