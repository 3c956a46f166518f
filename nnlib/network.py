"""A chain of fully connected layers with sparse input and wide sparse output.

Nothing sparse is made dense: the input layer sums rows of its weights, its gradient exists only for the rows that
a batch touched, and the output layer works on blocks of items, so that there is no dense target, no array of all
outputs and no gradient of all output weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib import ops
from nnlib.architecture import Activation, NetworkSpec
from nnlib.data import Csr
from nnlib.threads import Each, one_by_one

Floats = NDArray[Any]  # float32, in tests float64
Masks = Sequence["NDArray[np.bool_] | None"]

BLOCK = 512  # output units at a time: logits (256, 512) of float32 are half a megabyte, inside a core's cache
KEPT = 8192  # softmax needs all logits twice; up to this many are kept, beyond it blocks are computed again


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """Weights and biases between two layers. `store` is (in, out); for the output layer (out, in), since
    blocks of items are then contiguous.
    """

    store: Floats
    bias: Floats
    transposed: bool

    @property
    def weights(self) -> Floats:
        """The weights as (in, out), whatever the storage."""
        return self.store.T if self.transposed else self.store


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A specification and its parameters: `edges[i]` leads into `spec.layers[i + 1]`."""

    spec: NetworkSpec
    edges: tuple[Edge, ...]

    @property
    def output(self) -> Activation:
        """The activation of the output layer."""
        return self.spec.layers[-1].activation

    def copy(self) -> Network:
        """Return a copy with parameters of its own."""
        return Network(self.spec, tuple(Edge(e.store.copy(), e.bias.copy(), e.transposed) for e in self.edges))


class Sink(Protocol):
    """What takes the gradients of a batch; `Optimizer` applies them at once."""

    def rows(self, edge: int, low: int, gradient: Floats) -> None:
        """Take the gradient of the rows of `store` from `low`."""

    def bias(self, edge: int, low: int, gradient: Floats) -> None:
        """Take the gradient of the biases from `low`."""

    def touched(self, edge: int, rows: NDArray[np.integer], gradient: Floats) -> None:
        """Take the gradient of the rows of `store` that a batch touched."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Sparse inputs (b, in) and the units that should be one, by item: a CSC matrix (b, out)."""

    inputs: sparse.csr_array
    targets: sparse.csc_array
    counts: Floats  # (b, 1): ones of each example

    @property
    def examples(self) -> int:
        """How many examples, b."""
        return int(self.inputs.shape[0])


def create(spec: NetworkSpec, random: np.random.Generator, dtype: Any = np.float32) -> Network:
    """Return a network with initial parameters; every layer must have its number of units."""
    edges = []
    for below, layer in zip(spec.layers, spec.layers[1:], strict=False):
        if below.units is None or layer.units is None:
            raise ValueError(f"layer {layer.name}: number of units not resolved")
        weights = ops.initial_weights(layer.init, (below.units, layer.units), random).astype(dtype)
        last = layer is spec.layers[-1]
        store = np.ascontiguousarray(weights.T if last else weights)
        edges.append(Edge(store, np.full(layer.units, layer.init.bias, dtype), last))
    return Network(spec, tuple(edges))


def matrix(rows: Csr, value: float, dtype: Any) -> sparse.csr_array:
    """Return rows as a SciPy matrix whose ones are `value`."""
    data = np.full(rows.nonzeros, value, dtype)
    return sparse.csr_array((data, rows.indices, rows.indptr), shape=(rows.examples, rows.width))


def batch_of(inputs: sparse.csr_array, targets: sparse.csr_array) -> Batch:
    """Return the batch of some rows; targets must hold no unit twice."""
    counts = np.diff(targets.indptr).astype(inputs.dtype)[:, None]
    return Batch(inputs, targets.tocsc(), counts)


def hidden(network: Network, inputs: sparse.csr_array, masks: Masks = ()) -> list[tuple[Floats, Floats]]:
    """Return (activation, activation after dropout), each (b, n), of every hidden layer."""
    layers: list[tuple[Floats, Floats]] = []
    below: Any = inputs
    for index, (layer, edge) in enumerate(zip(network.spec.layers[1:-1], network.edges, strict=False)):
        z = below @ edge.store
        z += edge.bias
        a = ops.activate(layer.activation, z)
        mask = masks[index] if masks else None
        below = a if mask is None else ops.dropped(layer.activation, a, mask, layer.dropout)
        layers.append((a, below))
    return layers


def logits(network: Network, inputs: sparse.csr_array) -> Floats:
    """Return the output layer's weighted sums (b, out); they rank as the outputs do."""
    edge = network.edges[-1]
    return _block(edge, hidden(network, inputs)[-1][1], 0, len(edge.store))


def loss(network: Network, batch: Batch, each: Each = one_by_one) -> float:
    """Return the error summed over the examples."""
    return _output(network, hidden(network, batch.inputs)[-1][1], batch, None, each)[0]


def backward(network: Network, batch: Batch, sink: Sink, masks: Masks = (), each: Each = one_by_one) -> float:
    """Return the error summed over the examples; give the gradient of its mean to `sink`, last layer first.

    With several threads in `each`, `sink` gets disjoint rows of the output layer at the same time.
    """
    layers = hidden(network, batch.inputs, masks)
    total, delta = _output(network, layers[-1][1], batch, sink, each)
    for index in range(len(layers) - 1, -1, -1):
        layer = network.spec.layers[index + 1]
        mask = masks[index] if masks else None
        if mask is not None:
            delta *= ops.dropped_derivative(layer.activation, mask, layer.dropout, delta.dtype)
        delta *= ops.derivative(layer.activation, layers[index][0])
        if index:
            below = delta @ network.edges[index].store.T
            sink.rows(index, 0, layers[index - 1][1].T @ delta)
            sink.bias(index, 0, delta.sum(axis=0))
            delta = below
    sink.touched(0, *_input_gradient(batch.inputs, delta))
    sink.bias(0, 0, delta.sum(axis=0))
    return total


def _output(network: Network, h: Floats, batch: Batch, sink: Sink | None, each: Each) -> tuple[float, Floats]:
    """Return the summed error and the gradient of the mean error with respect to h (b, hidden)."""
    edge, last = network.edges[-1], len(network.edges) - 1
    margin = ops.marginal_of(network.spec)
    softmax = network.output is Activation.SOFTMAX
    normalizer, kept = _normalizer(edge, h, each) if softmax else (None, {})
    h_mean = h / h.dtype.type(len(h))

    def block(low: int) -> tuple[float, Floats | None]:
        with np.errstate(all="ignore"):  # a thread has its own; what is not finite is found in the sums
            w = edge.store[low : low + BLOCK]
            z = kept[low] if low in kept else _block(edge, h, low, BLOCK)
            hits = _hits(batch.targets, low, low + len(w))
            if normalizer is None:
                error = ops.sigmoid_error(z, hits, margin)
            else:
                error = ops.softmax_error(z, normalizer, hits, batch.counts, margin)
            if sink is None:
                return error, None
            below = z @ w
            sink.rows(last, low, z.T @ h_mean)
            sink.bias(last, low, z.sum(axis=0) / z.dtype.type(len(h)))
            return error, below

    total, delta_h = 0.0, np.zeros_like(h)
    for error, below in each(block, range(0, len(edge.store), BLOCK)):
        total += error
        if below is not None:
            delta_h += below
    delta_h /= len(h)
    return total, delta_h


def _block(edge: Edge, h: Floats, low: int, size: int) -> Floats:
    """Return the logits (b, size) of the output units from `low`."""
    z: Floats = h @ edge.store[low : low + size].T
    z += edge.bias[low : low + size]
    return z


def _normalizer(edge: Edge, h: Floats, each: Each) -> tuple[Floats, dict[int, Floats]]:
    """Return log sum exp over all logits of each example, (b, 1), and the logits by block, if they are few."""
    lows = range(0, len(edge.store), BLOCK)
    keep = len(edge.store) <= KEPT

    def block(low: int) -> tuple[tuple[Floats, Floats], Floats | None]:
        with np.errstate(all="ignore"):
            z = _block(edge, h, low, BLOCK)
            return ops.softmax_part(z), z if keep else None

    blocks = list(each(block, lows))
    kept = {low: z for low, (_, z) in zip(lows, blocks, strict=True) if z is not None}
    return ops.softmax_normalizer([part for part, _ in blocks]), kept


def _hits(targets: sparse.csc_array, low: int, high: int) -> ops.Hits:
    pointers = targets.indptr[low : high + 1]
    columns = np.repeat(np.arange(high - low), np.diff(pointers))
    return ops.Hits(targets.indices[pointers[0] : pointers[-1]], columns)


def _input_gradient(inputs: sparse.csr_array, delta: Floats) -> tuple[NDArray[np.integer], Floats]:
    """Return the weight rows that the batch touches, ascending, and their gradient X^T delta."""
    flags = np.zeros(inputs.shape[1], dtype=bool)
    flags[inputs.indices] = True
    rows = np.flatnonzero(flags)
    place = np.cumsum(flags, dtype=inputs.indices.dtype) - 1
    narrow = sparse.csr_array((inputs.data, place[inputs.indices], inputs.indptr), shape=(inputs.shape[0], len(rows)))
    return rows, narrow.T @ delta
