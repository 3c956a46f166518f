"""From an ONNX file to a network with its weights, and to the network file that goes on training it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nnlib.errors import DataError
from nnlib.model.network import Network, assemble
from nnlib.onnx_files.graph import Node, OnnxGraph
from nnlib.onnx_files.load import read_graph
from nnlib.onnx_files.merge import merge
from nnlib.onnx_files.operators import check_operators, read_node
from nnlib.onnx_files.parts import Build, Part, Value, affine_norm, dimensions_of
from nnlib.spec.json_section import SpecError, show
from nnlib.spec.sizes import resolve_sizes
from nnlib.spec.topology import check_topology
from nnlib.spec.types import (
    Activation,
    ErrorFunction,
    FineTuning,
    Layer,
    LayerKind,
    LayerType,
    LocalResponse,
    NetworkSpec,
    PoolingFunction,
)

INPUT, OUTPUT, NORMALIZE, HEAD = "input", "output", "Normalize", "Head"
PROPER = (Activation.SIGMOID, Activation.SOFTMAX)  # what outputs of a cross entropy may be


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What a person says of a graph."""

    sizes: tuple[int, ...] = ()  # of an input's maps where the graph leaves them open, slowest axis first
    mean: tuple[float, ...] = ()  # of each channel, in parts of 255; the input is unsigned bytes then
    deviation: tuple[float, ...] = ()
    replace_head: bool = False  # the last fully connected layer is to learn other classes


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A network with its weights, the one that goes on training it, and what a person is to know."""

    network: Network
    tuned: NetworkSpec
    notes: tuple[str, ...]


def import_network(path: Path, options: ImportOptions) -> Imported:
    """Return the network of a graph; DataError names the node that cannot be one of ours, and what can."""
    graph = read_graph(path)
    nodes = _needed(graph)
    check_operators(nodes)
    build = Build(graph.file, graph.opset, dict(graph.constants))
    for name, shape in _inputs(graph, nodes, options.sizes).items():
        _add_input(build, name, shape, options)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite then is refused
        for node in nodes:
            read_node(build, node)
        parts, outputs = _finished(build, graph)
    for part in parts:
        _check_finite(build, part)
    spec, network = _assembled(build, parts)
    constant = tuple(part.layer.name for part in parts if part.constant)
    tuned = replace(spec, tuning=FineTuning(freeze=constant))
    if options.replace_head:
        tuned = _with_new_head(spec, outputs)
    return Imported(network, tuned, tuple(build.notes))


def _needed(graph: OnnxGraph) -> tuple[Node, ...]:
    """Return the nodes that an output follows from."""
    wanted, found = set(graph.outputs), list[Node]()
    for node in reversed(graph.nodes):
        if wanted & set(node.outputs):
            found.append(node)
            wanted |= set(node.inputs)
    return tuple(reversed(found))


def _inputs(graph: OnnxGraph, nodes: Sequence[Node], sizes: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs that are used, without the batch."""
    used = {name for node in nodes for name in node.inputs}
    found = {}
    for name, (_, *shape) in graph.inputs.items():
        if name not in used:
            continue
        if sizes and len(shape) == len(sizes) + 1:
            fits = [given in (None, size) for given, size in zip(shape[1:], sizes, strict=True)]
            if not all(fits):
                raise DataError(f"{graph.file}: input {show(name)} has sizes {shape[1:]}, legal for --size: these")
            shape = [shape[0], *sizes]
        if None in shape:
            raise DataError(
                f"{graph.file}: input {show(name)} has sizes {shape} that may be any, legal: --size HEIGHTxWIDTH, or a "
                "graph that is exported for one size"
            )
        found[name] = tuple(size for size in shape if size is not None)
    if sizes and all(len(shape) != len(sizes) + 1 for shape in found.values()):
        raise DataError(f"{graph.file}: --size {'x'.join(map(str, sizes))}: no input has maps of {len(sizes)} sizes")
    if not found:
        raise DataError(f"{graph.file}: no output follows from an input, legal: a network")
    return found


def _add_input(build: Build, name: str, shape: tuple[int, ...], options: ImportOptions) -> None:
    free = build.free(name)
    if build.values and free in (INPUT, OUTPUT):  # data sets of other layers
        free = build.free(f"{free}_2")
    layer = Layer(free, LayerKind.INPUT, None, data_set=free if build.values else INPUT)
    value = build.add(Part(layer, shape))
    if options.mean or options.deviation:
        value = _normalized(build, value, options)
    build.values[name] = value


def _normalized(build: Build, value: Value, options: ImportOptions) -> Value:
    """Add (v - mean) / deviation, where v are bytes in parts of 255 and the input gives bytes / 256 - 0.5."""
    channels = value.shape[0]
    build.check_count(channels)
    mean, deviation = (np.array(one, np.float64) for one in (options.mean or (0.0,), options.deviation or (1.0,)))
    for option, numbers in (("--mean", mean), ("--std", deviation)):
        if len(numbers) not in (1, channels):
            legal = f"one, or {channels}, one for each channel of {show(value.part)}"
            raise DataError(f"{option}: {len(numbers)} numbers, legal: {legal}")
    scale = np.broadcast_to(256 / 255 / deviation, (channels,))
    shift = np.broadcast_to((128 / 255 - mean) / deviation, (channels,))
    norm = affine_norm(*(np.ascontiguousarray(one, np.float32) for one in (scale, shift)))
    layer = Layer(
        *(build.free(NORMALIZE), LayerKind.HIDDEN, None, LayerType.POOLING),
        sources=(value.part,),
        function=PoolingFunction.SUM,
        activation=Activation.LINEAR,
        batch_norm=True,
    )
    return build.add(Part(layer, value.shape, norm=norm, constant=True))


def _finished(build: Build, graph: OnnxGraph) -> tuple[list[Part], list[str]]:
    """Return the parts, those of outputs as such, and the names of the latter."""
    given = {}
    for name in graph.outputs:
        if name not in build.values or build.values[name].pads:
            raise DataError(f"{build.file}: output {show(name)} is given by no node that is a layer, legal: a layer's")
        given[name] = build.values[name].part
    left, at = merge(build.parts.values(), given.values())
    looked_at = {source for part in left.values() for source in part.layer.sources}
    outputs = []
    for n, (name, old) in enumerate(given.items()):
        part = left[at[old]]
        layer = part.layer
        if layer.kind is not LayerKind.HIDDEN or layer.name in looked_at or layer.batch_norm or layer.dropout:
            build.parts.update(left)
            layer = Layer(
                *(build.free(name if n or name != layer.name else OUTPUT), LayerKind.OUTPUT, layer.units),
                *(LayerType.POOLING, layer.dimensions),
                sources=(layer.name,),
                function=PoolingFunction.SUM,
                activation=Activation.LINEAR,
            )
            part = Part(layer, part.shape)
        left.pop(layer.name, None)  # outputs come last, in the order of the graph
        data_set = OUTPUT if len(given) == 1 else layer.name if layer.name != INPUT else build.free(f"{INPUT}_2")
        left[layer.name] = replace(part, layer=replace(layer, kind=LayerKind.OUTPUT, data_set=data_set))
        outputs.append(layer.name)
    return list(left.values()), outputs


def _check_finite(build: Build, part: Part) -> None:
    """Raise DataError where numbers that were put together are too large for float32."""
    norm = part.norm
    arrays = (part.weights, part.bias, *((norm.scale, norm.bias, norm.mean, norm.variance) if norm else ()))
    if not all(np.isfinite(one).all() for one in arrays if one is not None):
        raise DataError(
            f"{build.file}: layer {show(part.layer.name)} would have weights that are not finite, legal: numbers of "
            "the graph whose products are finite in float32"
        )


def _assembled(build: Build, parts: Sequence[Part]) -> tuple[NetworkSpec, Network]:
    layers = tuple(part.layer for part in parts)
    outputs = [layer for layer in layers if layer.kind is LayerKind.OUTPUT]
    proper = all(layer.activation in PROPER for layer in outputs)
    spec = NetworkSpec(
        layers,
        name=Path(build.file).stem,
        error=ErrorFunction.CROSS_ENTROPY if proper else ErrorFunction.L2,
        local_response=build.response or LocalResponse(),
    )
    try:
        check_topology(spec, build.file)
        sized = resolve_sizes(spec, build.file)
    except SpecError as error:
        raise DataError(str(error)) from error
    for part, layer in zip(parts, sized.layers, strict=True):
        if layer.units != part.layer.units or (len(part.shape) > 1 and layer.dimensions != dimensions_of(part.shape)):
            seen, legal = (" x ".join(map(str, one)) for one in (layer.dimensions, dimensions_of(part.shape)))
            raise DataError(f"{build.file}: layer {show(layer.name)} would be {seen} here, in the graph {legal}")
    matrices, biases = {}, []
    for edge in sized.edges:
        part = parts[edge.target]
        assert part.bias is not None, "a layer with an edge was made with its bias"
        biases.append(part.bias)
        if part.weights is not None:
            matrices[edge.number] = part.weights.T
    norms = {n: part.norm for n, part in enumerate(parts) if part.norm is not None}
    return sized, assemble(sized, matrices, biases, norms)


def _with_new_head(spec: NetworkSpec, outputs: Sequence[str]) -> NetworkSpec:
    """Return the network with an Output of as many classes as the data have, and all other layers frozen."""
    if len(outputs) != 1:
        raise DataError(f"--replace-head: the graph has {len(outputs)} outputs, legal: one")
    layers = list(spec.layers)
    place = spec.places[outputs[0]]
    old = layers[place]
    if old.type is not LayerType.FULLY_CONNECTED:  # a body without a head: one is put on it
        layers[place] = replace(old, kind=LayerKind.HIDDEN, data_set="")
        place, old = len(layers), Layer(_free(spec, HEAD), LayerKind.OUTPUT, None, sources=(old.name,))
        layers.append(old)
    elif old.shared or any(one.owner_target == old.name for layer in layers for one in layer.shared):
        raise DataError(
            f"--replace-head: layer {show(old.name)} has the weights of another layer, too; legal: a last layer with "
            "weights of its own"
        )
    head = replace(old, units=None, dimensions=(), data_set=OUTPUT, activation=Activation.SOFTMAX)
    layers[place] = head
    learning = {layer.name for layer in spec.layers if layer.batch_norm}
    learning |= {spec.layers[edge.target].name for edge in spec.edges}
    frozen = tuple(layer.name for layer in spec.layers if layer.name in learning and layer.name != head.name)
    tuning = FineTuning(freeze=frozen, replace=(head.name,))
    return replace(spec, layers=tuple(layers), error=ErrorFunction.CROSS_ENTROPY, tuning=tuning)


def _free(spec: NetworkSpec, name: str) -> str:
    while name in spec.places:
        name += "_"
    return name
