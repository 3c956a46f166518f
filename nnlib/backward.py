"""The backward pass: the error of a batch and the gradient of its mean, handed over piece by piece.

The gradient of an output layer's weights exists for one block of units at a time, that of a sparse input's weights
only for the rows that the batch touches. Whoever takes the gradients may apply them at once: a weight is not read
again after its gradient was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib import batchnorm, losses
from nnlib.activations import derivative, dropped_derivative, through
from nnlib.architecture import Activation, Edge, LayerKind
from nnlib.graph import PIECE, Graph, Node, Values, consume
from nnlib.network import Layout, block_starts, block_width

Floats = NDArray[Any]  # float32, in tests float64

LANES = 8  # sequences of blocks whose sums are kept apart, so that any number of threads gives the same sum
KEPT = 8192  # SoftMax needs all sums twice; up to this many units they are kept, beyond it computed again
MEAN_FLOOR = 1e-6  # of the mean activation in the sparseness penalty, as in DSSTNE


class Sink(Protocol):
    """What takes the gradients of a batch. With several threads, different rows come at the same time."""

    def rows(self, owner: int, low: int, gradient: Floats) -> None:
        """Take the gradient of the rows of a store from `low`."""

    def touched(self, owner: int, low: int, rows: NDArray[np.int64], gradient: Floats) -> None:
        """Take the gradient of some rows, ascending, of the table that starts at `low`; its others have none.

        A table has a row for each unit of the source; only a BLOCKED store has several.
        """

    def bias(self, edge: int, low: int, gradient: Floats) -> None:
        """Take the gradient of the biases from `low`."""

    def norm(self, layer: int, scale: Floats, bias: Floats) -> None:
        """Take the gradients of a batch normalization."""


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """What an output layer should give for a batch.

    Sparse: `columns` is a CSC matrix (b, units) without duplicates, `boolean` says that all its data are one. Dense:
    `dense` (b, units). `weights` (b, 1) are the weights of the examples.
    """

    columns: sparse.csc_array | None = None
    boolean: bool = True
    dense: Floats | None = None
    weights: Floats | None = None
    alone: bool = False  # SparseIgnoreZero
    shares: Floats | None = None  # (b, 1), see losses.softmax_error
    per_entry: Floats | None = None  # 1 / number of entries of the example, for Boolean targets of a SoftMax

    def block(self, low: int, high: int, by_share: bool) -> losses.Target:
        """Return the targets of the units from `low` up to `high`; `by_share` for a cross entropy over SoftMax."""
        if self.columns is None:
            assert self.dense is not None
            return self.dense[:, low:high]
        starts = self.columns.indptr[low : high + 1]
        place = slice(starts[0], starts[-1])
        rows = self.columns.indices[place]
        columns = np.repeat(np.arange(high - low), np.diff(starts))
        values = None if self.boolean else self.columns.data[place]
        if by_share and self.boolean:
            assert self.per_entry is not None
            values = self.per_entry[rows, 0]
        return losses.Entries(rows, columns, values, self.alone)


def targets_of(
    rows: sparse.csr_array | Floats, boolean: bool, weights: Floats | None = None, alone: bool = False
) -> Targets:
    """Return the targets of a batch from its rows, sparse ones without duplicates."""
    if not sparse.issparse(rows):
        return Targets(dense=rows, weights=weights, shares=rows.sum(axis=1, keepdims=True))
    counts = np.diff(rows.indptr).astype(rows.dtype)[:, None]
    shares = (counts > 0).astype(rows.dtype) if boolean else rows.sum(axis=1)[:, None].astype(rows.dtype)
    return Targets(rows.tocsc(), boolean, None, weights, alone, shares, 1 / np.maximum(counts, 1))


def loss(graph: Graph, values: Values, targets: Mapping[int, Targets]) -> float:
    """Return the error of a batch, summed over its examples and output layers."""
    total = 0.0
    for node in graph.outputs:
        if node.blocked:
            total += _blocked(graph, node, values, targets[node.number], None)[0]
        else:
            total += _whole(node, values, targets[node.number])[0]
    return total


def backward(graph: Graph, values: Values, targets: Mapping[int, Targets], sink: Sink) -> float:
    """Return the error summed over the examples; give the gradient of its mean to `sink`, last layer first."""
    deltas: dict[int, Floats] = {}
    total = 0.0

    def add(layer: int, delta: Floats) -> None:
        deltas[layer] = delta if layer not in deltas else deltas[layer] + delta

    for node in reversed(graph.nodes):
        if node.layer.kind is LayerKind.INPUT:
            continue
        if node.blocked:
            error, belows = _blocked(graph, node, values, targets[node.number], sink)
            total += error
            for layer, below in belows.items():
                add(layer, below)
            continue
        delta = _through_layer(graph, node, values, deltas.pop(node.number, None))
        if node.error is not None:
            error, own = _whole(node, values, targets[node.number])
            total += error
            own /= len(own)
            delta = own if delta is None else delta + own
        if delta is None:
            continue  # no output layer depends on it
        delta = _normalized(graph, node, values, delta, sink)
        for edge in node.edges:
            below = _edge_gradient(graph, edge, values, delta, sink)
            if below is not None:
                add(edge.source, below)
        for skip in node.skips:
            if graph.network.spec.layers[skip].kind is not LayerKind.INPUT:
                add(skip, delta.copy())
    return total


def _whole(node: Node, values: Values, targets: Targets) -> tuple[float, Floats]:
    """Return the error of an output layer that is not blocked, summed, and delta = dLoss/dz (b, units)."""
    assert node.error is not None
    z = values.sums[node.number].copy()
    by_share = node.error.softmax
    normalizer = losses.softmax_normalizer([losses.softmax_part(z)]) if by_share else None
    target = targets.block(0, node.units, by_share)
    error = losses.block_error(
        node.error, z, target, targets.weights, normalizer, targets.shares, values.keep.get(node.number)
    )
    return error, z


def _through_layer(graph: Graph, node: Node, values: Values, delta: Floats | None) -> Floats | None:
    """Turn dLoss/d(what the next layers see) into dLoss/d(sums after batch normalization)."""
    layer, keep = node.layer, values.keep.get(node.number)
    if delta is None:
        return None
    a = values.before_dropout.get(node.number, values.out[node.number])
    if keep is not None and graph.network.spec.compat:
        return _unmasked(node, delta, values.out[node.number])
    if keep is not None:
        delta *= dropped_derivative(layer, keep, delta.dtype)
    penalty = layer.sparseness if layer.sparseness.beta else graph.network.spec.sparseness
    if layer.sparse and layer.kind is LayerKind.HIDDEN and penalty.beta:
        mean = np.clip(a.mean(axis=0), MEAN_FLOOR, 1 - MEAN_FLOOR)
        delta += (penalty.beta / len(a)) * ((1 - penalty.p) / (1 - mean) - penalty.p / mean)
    return through(layer, delta, a, values.totals.get(node.number))


def _unmasked(node: Node, delta: Floats, out: Floats) -> Floats:
    """DSSTNE's backward pass of dropout, which knows only what the units gave after it."""
    if node.layer.activation is Activation.TANH:
        scale = 1 / (1 - node.layer.dropout)
        delta *= scale * (1 - (out / scale) ** 2)
        return delta
    factor = derivative(node.layer, out)
    return delta if factor is None else delta * factor


def _normalized(graph: Graph, node: Node, values: Values, delta: Floats, sink: Sink) -> Floats:
    """Apply the limit of delta's norm and go back through batch normalization."""
    if node.layer.delta_norm:  # of each example's own delta, which is b times its part in the mean
        norms = np.linalg.norm(delta, axis=1, keepdims=True) * len(delta)
        delta *= np.minimum(1, node.layer.delta_norm / np.maximum(norms, np.finfo(delta.dtype).tiny))
    if node.layer.batch_norm:
        norm = graph.network.norms[node.number]
        delta, scale_gradient, bias_gradient = batchnorm.backward(norm, values.normed[node.number], delta)
        sink.norm(node.number, scale_gradient, bias_gradient)
    return delta


def _edge_gradient(graph: Graph, edge: Edge, values: Values, delta: Floats, sink: Sink) -> Floats | None:
    """Give the gradient of an edge to `sink`; return dLoss/d(its source), None when that is an input."""
    x, w = values.out[edge.source], graph.network.stores[edge.owner]
    is_input = graph.network.spec.layers[edge.source].kind is LayerKind.INPUT
    below = None if is_input else np.empty((len(delta), x.shape[1]), delta.dtype)
    if sparse.issparse(x):
        if edge.transposed:
            sink.rows(edge.owner, 0, np.ascontiguousarray((x.T @ delta).T))
        else:
            rows, narrow = values.touched_by(edge.source)
            sink.touched(edge.owner, 0, rows, np.asarray(narrow.T @ delta))
    elif edge.transposed:
        below = None if is_input else delta @ w
        sink.rows(edge.owner, 0, delta.T @ x)
    else:

        def piece(low: int) -> None:
            high = low + PIECE
            if below is not None:
                np.matmul(delta, w[low:high].T, out=below[:, low:high])
            sink.rows(edge.owner, low, x[:, low:high].T @ delta)

        consume(graph.each(piece, range(0, x.shape[1], PIECE)))
    sink.bias(edge.number, 0, delta.sum(axis=0))
    return below


def _blocked(
    graph: Graph, node: Node, values: Values, targets: Targets, sink: Sink | None
) -> tuple[float, dict[int, Floats]]:
    """Return the error of a blocked output layer, summed, and dLoss/d(its sources) of the mean error."""
    assert node.error is not None
    by_share = node.error.softmax
    normalizer, kept = _normalizer(graph, node, values) if by_share else (None, {})
    touched = {
        edge.source: values.touched_by(edge.source)
        for edge in node.edges
        if sink is not None and graph.layouts[edge.number] is Layout.BLOCKED
    }
    starts = list(block_starts(node.units))

    def block(low: int, belows: dict[int, Floats]) -> float:
        high = min(low + block_width(node.units), node.units)
        z = kept[low] if low in kept else graph.block(node, values, low)
        target = targets.block(low, high, by_share)
        error = losses.block_error(node.error, z, target, targets.weights, normalizer, targets.shares)
        if sink is None:
            return error
        z /= len(z)
        bias_gradient = z.sum(axis=0)
        for edge in node.edges:
            if graph.layouts[edge.number] is Layout.BLOCKED:
                rows, narrow = touched[edge.source]
                width = graph.network.stores[edge.owner].shape[1]
                full = z if z.shape[1] == width else np.pad(z, ((0, 0), (0, width - z.shape[1])))
                sink.touched(edge.owner, graph.table(edge, low).start, rows, np.asarray(narrow.T @ full))
            else:
                x, w = values.out[edge.source], graph.network.stores[edge.owner]
                if edge.source in belows:
                    below = z @ w[low:high]
                    belows[edge.source] += below
                sink.rows(edge.owner, low, z.T @ x)
            sink.bias(edge.number, low, bias_gradient)
        return error

    def lane(number: int) -> tuple[float, dict[int, Floats]]:
        belows = {
            edge.source: np.zeros_like(values.out[edge.source])
            for edge in node.edges
            if sink is not None and graph.network.spec.layers[edge.source].kind is not LayerKind.INPUT
        }
        with np.errstate(all="ignore"):  # a thread has its own; what is not finite is found in the sums
            return sum(block(low, belows) for low in starts[number::LANES]), belows

    total, sums = 0.0, dict[int, Floats]()
    for error, belows in graph.each(lane, range(min(LANES, len(starts)))):
        total += error
        for source, below in belows.items():
            sums[source] = below if source not in sums else np.add(sums[source], below, out=sums[source])
    return total, sums


def _normalizer(graph: Graph, node: Node, values: Values) -> tuple[Floats, dict[int, Floats]]:
    """Return log sum exp over all sums of each example, (b, 1), and the sums by block, if they are few."""
    starts, keep = block_starts(node.units), node.units <= KEPT

    def block(low: int) -> tuple[tuple[Floats, Floats], Floats | None]:
        with np.errstate(all="ignore"):
            z = graph.block(node, values, low)
            return losses.softmax_part(z), z if keep else None

    blocks = list(graph.each(block, starts))
    kept = {low: z for low, (_, z) in zip(starts, blocks, strict=True) if z is not None}
    return losses.softmax_normalizer([part for part, _ in blocks]), kept


def penalty(graph: Graph, values: Values) -> float:
    """Return the sparseness penalty of a batch: beta times the Kullback-Leibler divergence of p from each unit's mean.

    Not in the error that training reports, as in DSSTNE, but in its gradient.
    """
    total = 0.0
    for node in graph.nodes:
        rule = node.layer.sparseness if node.layer.sparseness.beta else graph.network.spec.sparseness
        if not (node.layer.sparse and node.layer.kind is LayerKind.HIDDEN and rule.beta):
            continue
        a = values.before_dropout.get(node.number, values.out[node.number])
        mean, p = np.clip(a.mean(axis=0), MEAN_FLOOR, 1 - MEAN_FLOOR), rule.p
        parts = (p * np.log(p / mean) if p else 0.0) + ((1 - p) * np.log((1 - p) / (1 - mean)) if p < 1 else 0.0)
        total += rule.beta * float(np.sum(parts))
    return total
