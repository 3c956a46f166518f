"""The forward pass on the processors of this machine. Twin: gpu/forward.py.

Nothing sparse is made dense: a sparse input sums rows of weights, and an output layer is computed in blocks of units
wherever it can be (see `network.is_blocked`), so that there is no dense target and no array of all outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.cpu.sparse_products import EXAMPLES, Touched, product, touched_by
from nnlib.model.graph import Graph, Node
from nnlib.model.network import Layout, Network, block_starts, block_width, is_sparse_input
from nnlib.ops import batch_norm
from nnlib.ops.activations import ROWWISE, activate, apply_dropout, rowwise_sum
from nnlib.ops.finite import require_finite
from nnlib.spec.types import Edge, LayerKind
from nnlib.util.arrays import Floats
from nnlib.util.threads import Each, consume, map_in_turn

Matrix = Any  # what an input layer gives: sparse.csr_array, or dense Floats, (b, units)
Keep = Callable[[int, tuple[int, int]], NDArray[np.bool_]]  # (layer number, shape) -> the units that dropout keeps

PIECE = 256  # rows or columns of a weight matrix that one thread works on


@dataclass(slots=True)
class Values:
    """What a forward pass found, by the number of the layer."""

    out: dict[int, Matrix] = field(default_factory=dict)  # what the next layers see, after dropout
    sums: dict[int, Floats] = field(default_factory=dict)  # z of output layers that are not blocked
    before_dropout: dict[int, Floats] = field(default_factory=dict)
    keep: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    totals: dict[int, Floats] = field(default_factory=dict)  # see activations.rowwise_sum
    normed: dict[int, batch_norm.Normed] = field(default_factory=dict)
    touched: dict[int, Touched] = field(default_factory=dict)  # of sparse inputs

    def active(self, layer: int) -> Floats:
        """Return what a layer that is not an input gave, before dropout."""
        return self.before_dropout[layer] if layer in self.before_dropout else np.asarray(self.out[layer])

    def touched_by(self, layer: int) -> Touched:
        """Return the units of a sparse input that occur in the batch."""
        if layer not in self.touched:
            self.touched[layer] = touched_by(self.out[layer])
        return self.touched[layer]


class Forward(Graph):
    """Computes the layers of a network, on the threads that `each` has."""

    def __init__(self, network: Network, each: Each = map_in_turn) -> None:
        super().__init__(network)
        self.each = each

    def run(
        self,
        inputs: Mapping[int, Matrix],
        keep: Keep | None = None,
        training: bool = False,
        values: Values | None = None,
    ) -> Values:
        """Compute every layer but the blocked ones; `keep` draws what dropout keeps, None for no dropout.

        `values` may hold what is known of the sparse inputs already.
        """
        values = values or Values()
        for node in self.nodes:
            if node.layer.kind is LayerKind.INPUT:
                a = inputs[node.number]
            elif node.blocked:
                continue
            else:
                a = self._compute(node, values, training)
            if keep is not None and node.layer.dropout and not is_sparse_input(node.layer):
                mask = keep(node.number, a.shape)
                values.before_dropout[node.number], values.keep[node.number] = a, mask
                a = apply_dropout(node.layer, a, mask)
            values.out[node.number] = a
        return values

    def _compute(self, node: Node, values: Values, training: bool) -> Floats:
        z = self.sums(node, values)
        if node.layer.batch_norm:
            norm = self.network.norms[node.number]
            if training:
                values.normed[node.number], z = batch_norm.forward(norm, z)
            else:
                z = batch_norm.inference(norm, z)
        if node.error is not None:
            values.sums[node.number] = z.copy()
        if node.layer.activation in ROWWISE:
            values.totals[node.number] = rowwise_sum(node.layer, z)
        return activate(node.layer, z)

    def sums(self, node: Node, values: Values) -> Floats:
        """Return z (b, units) of a layer from the values of those before it; whole, also when it is blocked."""
        if node.blocked:
            whole = np.empty((values.out[node.edges[0].source].shape[0], node.units), self.network.dtype)

            def block(low: int) -> None:
                self.biased_block(node, values, low, whole[:, low : low + block_width(node.units)])

            consume(self.each(block, block_starts(node.units)))
            return whole
        z: Floats | None = None
        for edge in node.edges:
            part = self._product(edge, values.out[edge.source])
            part += self.network.biases[edge.number]
            z = part if z is None else np.add(z, part, out=z)
        assert z is not None, "a layer that is computed has a source"
        for skip in node.skips:
            source = values.out[skip]
            if sparse.issparse(source):
                rows = np.repeat(np.arange(len(z)), np.diff(source.indptr))
                np.add.at(z, (rows, source.indices), source.data)
            else:
                z += source
        return z

    def block(self, node: Node, values: Values, low: int, out: Floats) -> Floats:
        """Write to `out` (b, n), and return, z without the biases of n units of a blocked layer from `low`."""
        high = low + out.shape[1]
        for n, edge in enumerate(node.edges):
            x, store = values.out[edge.source], self.network.stores[edge.owner]
            if self.layouts[edge.number] is not Layout.BY_OUTPUT:
                part = product(x, store[self.table(edge, low)])[:, : high - low]
                out[...] = part if not n else out + part
            elif n:
                out += x @ store[low:high].T
            else:
                np.matmul(x, store[low:high].T, out=out)
        return out

    def biased_block(self, node: Node, values: Values, low: int, out: Floats) -> Floats:
        """Write to `out` (b, n), and return, z of n units of a blocked layer from `low`."""
        z = self.block(node, values, low, out)
        for edge in node.edges:
            z += self.network.biases[edge.number][low : low + out.shape[1]]
        return z

    def _product(self, edge: Edge, x: Matrix) -> Floats:
        """Return x W (b, out), or x W^T for weights used transposed; large ones in pieces, on all threads."""
        w = self.network.stores[edge.owner]
        w = w.T if edge.transposed else w
        is_sparse = sparse.issparse(x)
        if not is_sparse and w.shape[1] < 2 * PIECE:
            return np.asarray(x @ w)
        z = np.empty((x.shape[0], w.shape[1]), w.dtype)

        def columns(low: int) -> None:
            np.matmul(x, w[:, low : low + PIECE], out=z[:, low : low + PIECE])

        def examples(low: int) -> None:
            product(x, w, z[low : low + EXAMPLES], low)

        if is_sparse:
            consume(self.each(examples, range(0, len(z), EXAMPLES)))
        else:
            consume(self.each(columns, range(0, w.shape[1], PIECE)))
        return z

    def output_sums(self, inputs: Mapping[int, Matrix], layer: int) -> Floats:
        """Return z (b, units) of an output layer, as in prediction; NotFiniteError."""
        node = self.node(layer)
        with np.errstate(all="ignore"):
            values = self.run(inputs)
            return require_finite(self.sums(node, values) if node.blocked else values.sums[layer])

    def activations(self, inputs: Mapping[int, Matrix], layer: int) -> Floats:
        """Return the outputs (b, units) of one layer, as in prediction."""
        values, node = self.run(inputs), self.node(layer)
        if not node.blocked:
            return np.asarray(values.out[layer])
        return activate(node.layer, self.sums(node, values))
