"""What a training step of a network takes, layer by layer, counted from shapes: memory, FLOPs, bytes, activations.

Of an edge of i by o weights and a batch of b examples: a product is 2 b i o FLOPs forwards, a convolution that for each
value of a map; as many for the gradient of its weights, and as many for that of what lies below unless that is an
input. A sparse input of e entries in u
different units sums e rows of o weights and as many of the deltas, and updates u rows. An update reads and writes
weights and states, and on a GPU the gradient, which on processors is in the cache. Where several batches make an
update, each has its share of it; their gradients are added up, on a GPU whole, on processors by rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nnlib.data.rows import Csr
from nnlib.engines import Rates
from nnlib.inspection.shapes import count_parameters, count_places, count_weights
from nnlib.model.examples import Examples
from nnlib.model.graph import Graph, Node
from nnlib.model.network import (
    Network,
    bias_count,
    block_width,
    count_units,
    is_lazy,
    is_sparse_input,
    norm_count,
)
from nnlib.ops.batch_norm import BatchNorm
from nnlib.spec.types import Edge, LayerKind, NetworkSpec
from nnlib.util.arrays import Longs

WORD = 4  # bytes of a float32
KEPT = 8192  # units up to which the processors keep the sums of a SoftMax, as in cpu/output.py
LANES = 8  # deltas of what lies below a blocked layer, (b, in) each, as there
# How often each number of a layer is worked on, in passes that take as long as exp.
HIDDEN_PASSES, OUTPUT_PASSES, SOFTMAX_PASSES = 1, 2, 4


@dataclass(frozen=True, slots=True)
class Step:
    """How a network is trained: examples of a batch, state arrays of the optimizer, and where."""

    batch: int
    states: int
    gpu: bool
    whole: bool = False  # processors keep gradients until the last is known (shared weights, limited norms, clip)
    threads: int = 1
    accumulate: int = 1  # batches that make an update

    @property
    def keeps(self) -> bool:
        """Whether gradients are in memory, not in the cache alone."""
        return self.gpu or self.whole or self.accumulate > 1

    def by_rows(self, spec: NetworkSpec, edge: Edge) -> bool:
        """Whether of the weights that an edge owns only the rows are updated that batches touch."""
        return is_lazy(spec, edge) and not (self.gpu and self.accumulate > 1)


@dataclass(frozen=True, slots=True)
class Entries:
    """Stored entries of a sparse data set in a batch, and how many different units they are of, on average."""

    count: float
    touched: float


@dataclass(frozen=True, slots=True)
class LayerCost:
    """What a layer takes, its weights being those that come into it. Bytes; FLOPs and activations of one batch."""

    name: str
    units: int
    parameters: int
    weights: int
    state: int
    batch: int
    flops: float
    moved: float
    activations: float

    def seconds(self, rates: Rates) -> float:
        """Return how long the layer takes in a batch if it does one after the other."""
        return self.flops / rates.flops + self.moved / rates.bytes_moved + self.activations / rates.activations


def outline(spec: NetworkSpec) -> Network:
    """Return a network without memory of its own: arrays of the right shapes that all have one number."""

    def shaped(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return np.broadcast_to(np.float32(0), shape)

    biases = [shaped(bias_count(spec, edge)) for edge in spec.edges]
    normed = [n for n, layer in enumerate(spec.layers) if layer.batch_norm]
    norms = {n: BatchNorm(*(shaped(norm_count(spec, n)) for _ in range(4))) for n in normed}
    return Network(spec, {}, biases, norms)


def count_entries(examples: Examples, batches: Sequence[Longs]) -> dict[int, Entries]:
    """Return what the batches have on average of each sparse data set, by the number of its layer."""
    found = {}
    for n, data_set in examples.sets.items():
        if data_set.sparse:
            taken = [data_set.take(batch).rows for batch in batches]
            rows = [some.indices for some in taken if isinstance(some, Csr)]
            counts, touched = [float(len(some)) for some in rows], [float(len(np.unique(some))) for some in rows]
            found[n] = Entries(sum(counts) / len(rows), sum(touched) / len(rows))
    return found


def count_costs(network: Network, entries: Mapping[int, Entries], step: Step) -> list[LayerCost]:
    """Return what each layer takes, in the order in which they are computed."""
    graph = Graph(network)
    return [_cost(graph, node, entries, step) for node in graph.nodes]


def _cost(graph: Graph, node: Node, entries: Mapping[int, Entries], step: Step) -> LayerCost:
    spec, b, n = graph.network.spec, step.batch, node.units
    owned = [edge for edge in node.edges if edge.owner == edge.number]
    parameters = count_parameters(spec, node.number)
    statistics = 2 * norm_count(spec, node.number) * node.layer.batch_norm
    lazy_rows = sum(count_units(spec, edge.source) for edge in owned if step.by_rows(spec, edge))
    works = [_edge(graph, node, edge, entries, step) for edge in node.edges]
    return LayerCost(
        node.layer.name,
        n,
        parameters,
        WORD * (parameters + statistics),
        WORD * parameters * step.states + lazy_rows * (WORD if step.gpu else 2 * WORD),
        _batch_bytes(graph, node, entries, step) + _gradient_bytes(spec, owned, entries, step),
        sum(flops for flops, _ in works),
        sum(moved for _, moved in works),
        float(b * n * _passes(node)),
    )


def _edge(graph: Graph, node: Node, edge: Edge, entries: Mapping[int, Entries], step: Step) -> tuple[float, float]:
    """Return the FLOPs and bytes of an edge."""
    spec, n = graph.network.spec, node.units
    source, below = spec.layers[edge.source], count_units(spec, edge.source)
    # Passes over weights and states, and over gradients: each is written and read, and those of several batches added.
    update = (2 + 2 * step.states) / step.accumulate + (2 if step.keeps else 0) + (2 if step.accumulate > 1 else 0)
    if is_sparse_input(source):
        found = entries[edge.source]
        count = found.count * (1 - spec.denoising)
        lazy = step.by_rows(spec, spec.edges[edge.owner])
        rows, settle = (found.touched, 2.0 + 2 * step.states) if lazy else (below, 0.0)
        return 0.0, WORD * n * (2 * count + found.touched + rows * (update + settle))
    times = 3 if source.kind is not LayerKind.INPUT else 2
    if node.error is not None and node.error.softmax and not step.gpu and node.blocked and n > KEPT:
        times += 1  # the sums are computed twice
    weights, own = count_weights(spec, edge), edge.owner == edge.number
    return 2.0 * times * step.batch * weights * count_places(spec, edge), WORD * weights * update * own


def _passes(node: Node) -> int:
    if node.layer.kind is LayerKind.INPUT:
        return 0
    if node.error is None:
        return HIDDEN_PASSES
    return SOFTMAX_PASSES if node.error.softmax else OUTPUT_PASSES


def _batch_bytes(graph: Graph, node: Node, entries: Mapping[int, Entries], step: Step) -> int:
    """Return what a layer's part of a batch takes: its data, its values, and what comes back to it."""
    b, n, layer = step.batch, node.units, node.layer
    data = 0
    if layer.data_set:
        found = entries.get(node.number)
        data = WORD * b * n if found is None else int(WORD * (b + 1 + 5 * found.count))
    if layer.kind is LayerKind.INPUT:
        return data
    values = WORD * b * n
    if node.blocked and not step.gpu:
        inside = max(count_units(graph.network.spec, edge.source) for edge in node.edges)
        width = block_width(n)
        scratch = step.threads * WORD * (b * width + width * inside + b * inside)
        kept = values if node.error is not None and node.error.softmax and n <= KEPT else 0
        return data + scratch + kept + LANES * WORD * b * inside
    copies = 2 if node.error is None else 1 + (not step.gpu)  # values and deltas
    copies += bool(layer.dropout) + layer.batch_norm
    return data + copies * values


def _gradient_bytes(spec: NetworkSpec, owned: Sequence[Edge], entries: Mapping[int, Entries], step: Step) -> int:
    """Return what gradients take that are kept: of rows those that are touched, and twice what a GPU adds up."""
    if not step.keeps:
        return 0
    count = 0.0
    for edge in owned:
        if not step.by_rows(spec, edge):
            count += count_weights(spec, edge) * (2 if step.gpu and step.accumulate > 1 else 1)
        elif not step.gpu:
            count += entries[edge.source].touched * count_units(spec, edge.target) * step.accumulate
    return int(WORD * count)
