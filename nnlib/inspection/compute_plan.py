"""How every layer of a network is computed, in words: what decides whether a training is fast."""

from __future__ import annotations

from nnlib.data.sets import DataSet, kind_of
from nnlib.inspection.shapes import describe_layer
from nnlib.model import network as net
from nnlib.model.examples import Examples
from nnlib.model.graph import Graph, Node
from nnlib.model.network import Layout, Network
from nnlib.spec.geometry import is_computed, maps_of
from nnlib.spec.types import Edge, LayerKind, NetworkSpec
from nnlib.util.blas import find_kernels
from nnlib.util.threads import LEAST_WORK

LOOPS = {"numpy": "NumPy's loops", "numba": "compiled loops", "cupy": "kernels and cuBLAS on a GPU"}


def describe_compute_plan(network: Network, examples: Examples, threads: int, backend: str, batch: int) -> str:
    """Return a line on the whole and one on each layer, in the order in which they are computed.

    Of several threads it says whose products are too small for them, with batches of so many examples.
    """
    spec = network.spec
    how = "compat with DSSTNE, " if spec.compat else ""
    blas = "".join(f", OpenBLAS {kernels}" for kernels in find_kernels().values()) if backend != "cupy" else ""
    where = f"backend {backend} ({LOOPS[backend]}{blas})"
    count = f"{threads} thread{'s' * (threads != 1)}"
    first = f"{where}, {network.dtype}, {count}, {how}{network.parameters} parameters"
    graph = Graph(network)
    rows = batch if threads > 1 and backend != "cupy" else 0
    return "\n".join([first, *(f"  {_line(graph, node, examples, backend != 'cupy', rows)}" for node in graph.nodes)])


def _line(graph: Graph, node: Node, examples: Examples, in_blocks: bool, rows: int) -> str:
    layer, data_set = node.layer, examples.sets.get(node.number)
    sizes = f" ({' x '.join(map(str, layer.dimensions))})" if maps_of(graph.network.spec, node.number).spatial else ""
    title = f"{layer.kind} {layer.name}: {node.units} units{sizes}"
    if layer.kind is LayerKind.INPUT:
        assert data_set is not None, "examples have all inputs"
        return f"{title}, {layer.data_set!r} is {_kind(data_set)}; {_describe_inputs(graph, node)}"
    how = f", {describe_layer(layer)}" if is_computed(layer) else f", {layer.activation}"
    parts = [f"{title}{how}"]
    if layer.kind is LayerKind.OUTPUT:
        parts[0] += f", {graph.network.spec.error}"
    parts[0] += ", batch normalization" * (layer.batch_norm and not is_computed(layer))
    if layer.dropout:
        parts[0] += f", dropout {layer.dropout:g}" + " of whole maps" * layer.drop_channels
    width = min(net.BLOCK, node.units)
    parts.append(
        f"in blocks of {width} units, never all at once" if node.blocked and in_blocks else "the whole layer at once"
    )
    if data_set is not None and layer.kind is LayerKind.OUTPUT:
        dense = "never made dense" if data_set.sparse else "read as they are"
        parts.append(f"targets {layer.data_set!r} are {_kind(data_set)}, {dense}")
    parts += [_edge(graph, edge, rows) for edge in node.edges]
    if not node.edges:
        parts.append(f"from {', '.join(layer.sources)}")
    if node.skips:
        parts.append("plus what " + ", ".join(layer.skips) + " give")
    return "; ".join(parts)


def _describe_inputs(graph: Graph, node: Node) -> str:
    noise = graph.network.spec.denoising
    if net.is_sparse_input(node.layer):
        return "never made dense" + (f", denoising {noise:g}" if noise else "")
    return "dense products" + (f", dropout {node.layer.dropout:g}" if node.layer.dropout else "")


def _edge(graph: Graph, edge: Edge, rows: int) -> str:
    spec = graph.network.spec
    source = spec.layers[edge.source]
    shared = ""
    if edge.owner != edge.number:
        owner = spec.edges[edge.owner]
        names = f"{spec.layers[owner.source].name} to {spec.layers[owner.target].name}"
        shared = f", weights of {names}{' transposed' if edge.transposed else ''}"
    if net.is_convolution(spec, edge):
        return f"from {source.name}: kernels over {_maps(spec, edge.source)}{shared}"
    if not net.is_sparse_input(source):
        work = rows * net.count_units(spec, edge.source) * net.count_units(spec, edge.target)
        return f"from {source.name}: dense products{' on one thread' if 0 < work < LEAST_WORK else ''}{shared}"
    tables = ", a table for each block" if graph.layouts[edge.number] is Layout.BLOCKED else ""
    lazy = "and touched rows alone are updated" if net.is_lazy(spec, spec.edges[edge.owner]) else "all rows are updated"
    return f"from {source.name}: sums of weight rows{tables}, {lazy}{shared}"


def _maps(spec: NetworkSpec, layer: int) -> str:
    maps = maps_of(spec, layer)
    return f"{maps.channels} map{'s' * (maps.channels > 1)} of {' x '.join(map(str, maps.sizes[::-1]))}"


def _kind(data_set: DataSet) -> str:
    extra = ", weighted" * (data_set.weights is not None) + ", indexed" * (data_set.index is not None)
    return kind_of(data_set) + extra + ", zeros ignored" * data_set.ignore_zero
