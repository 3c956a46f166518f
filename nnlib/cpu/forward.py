"""The forward pass on the processors of this machine. Twin: gpu/forward.py.

Nothing sparse is made dense: a sparse input sums rows of weights, and an output layer is computed in blocks of units
wherever it can be (see `network.is_blocked`), so that there is no dense target and no array of all outputs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.cpu.maps.by_shard import filled
from nnlib.cpu.maps.layers import MapLayers, is_simple
from nnlib.cpu.maps.pieces import by_examples
from nnlib.cpu.maps.shard_norms import ShardNorms
from nnlib.cpu.products import FLOAT32, Factor, Products
from nnlib.cpu.sparse_products import EXAMPLES, Touched, add_shards, product, touched_by
from nnlib.errors import NotFiniteError
from nnlib.model.graph import Graph, Node
from nnlib.model.network import Layout, Network, block_width, is_convolution, is_sparse_input
from nnlib.ops import batch_norm
from nnlib.ops.activations import ROWWISE, activate, apply_dropout, rowwise_sum
from nnlib.ops.finite import first_broken, require_finite
from nnlib.shards.collectives import ALONE, Collectives
from nnlib.shards.cut import Cut, Range
from nnlib.spec.types import Edge, Layer, LayerKind, LayerType
from nnlib.util.arrays import Floats
from nnlib.util.threads import Each, choose_threads, consume, map_in_turn

Matrix = Any  # what an input layer gives: sparse.csr_array, or dense Floats, (b, units)
Keep = Callable[[int, tuple[int, int]], NDArray[np.bool_]]  # (layer number, shape) -> the units that dropout keeps

PIECE = 256  # rows or columns of a weight matrix that one thread works on, at most
TOGETHER = 16  # of these begin where a vector may


def cut_weights(size: int) -> list[slice]:
    """Return pieces of so many rows or columns, about as large as one another: threads are done at about one time.

    >>> [some.stop - some.start for some in cut_weights(784)]
    [192, 192, 208, 192]
    """
    count, whole = -(-size // PIECE), min(TOGETHER, PIECE)
    starts = sorted({round(size * n / count / whole) * whole for n in range(count)})
    return [slice(low, high) for low, high in zip(starts, [*starts[1:], size], strict=True)]


@dataclass(slots=True)
class Values:
    """What a forward pass found, by the number of the layer."""

    mean_over: int = 0  # examples that the mean error is over; 0: these, which are no shards of others
    shards: tuple[slice, ...] = ()  # examples of each own shard of a batch that is cut; the first ones have some
    norms: ShardNorms | None = None  # what normalizes a batch that is cut
    out: dict[int, Matrix] = field(default_factory=dict)  # what the next layers see, after dropout
    factors: dict[int, Factor] = field(default_factory=dict)  # the dense ones of these that are multiplied
    sums: dict[int, Floats] = field(default_factory=dict)  # z of output layers that are not blocked
    before_dropout: dict[int, Floats] = field(default_factory=dict)
    keep: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    totals: dict[int, Floats] = field(default_factory=dict)  # see activations.rowwise_sum
    normed: dict[int, batch_norm.Normed] = field(default_factory=dict)
    touched: dict[int, Touched] = field(default_factory=dict)  # of sparse inputs
    errors: dict[int, float] = field(default_factory=dict)  # by own shard, summed, of output layers that are cut

    def active(self, layer: int) -> Floats:
        """Return what a layer that is not an input gave, before dropout."""
        return self.before_dropout[layer] if layer in self.before_dropout else np.asarray(self.out[layer])

    @property
    def full(self) -> tuple[slice, ...]:
        """The shards that have examples."""
        return filled(self.shards)

    def parts(self) -> list[Values]:
        """Return what was found of each of these, but of its normalization; of a batch that is not cut all in one."""
        return [self._part(some) for some in self.full] or [self]

    def _part(self, some: slice) -> Values:
        found = Values(self.mean_over)
        for name in ("out", "factors", "sums", "keep"):
            setattr(found, name, {layer: array[some] for layer, array in getattr(self, name).items()})
        return found

    def touched_by(self, layer: int) -> Touched:
        """Return the units of a sparse input that occur in the batch."""
        if layer not in self.touched:
            self.touched[layer] = touched_by(self.out[layer])
        return self.touched[layer]


class Forward(Graph):
    """Computes the layers of a network, on the threads that `each` has.

    Under a `cut` the network is what this rank has of the whole one, and what all of them have to add they add
    `together`: all ranks have to compute the same at the same time. Inputs are what `cut` makes of whole ones.
    """

    def __init__(
        self,
        network: Network,
        each: Each = map_in_turn,
        products: Products = FLOAT32,
        cut: Cut | None = None,
        together: Collectives = ALONE,
    ) -> None:
        super().__init__(network)
        self.each, self.products, self.together = each, products, together
        self._wide_inputs = cut.inputs if cut else {}
        self._wide_outputs = cut.outputs if cut else {}
        self.maps = MapLayers(self, each)
        self._multiplied = {edge.source for edge in network.spec.edges if not is_convolution(network.spec, edge)}
        self._last = self._last_uses()
        self.normalized = network.learned_norms  # by the batch itself, in training

    def run(
        self,
        inputs: Mapping[int, Matrix],
        keep: Keep | None = None,
        training: bool = False,
        values: Values | None = None,
        wanted: tuple[int, ...] | None = None,
    ) -> Values:
        """Compute every layer but the blocked ones; `keep` draws what dropout keeps, None for no dropout.

        `values` may hold what is known of the sparse inputs already. Of the layers that are not `wanted`, None for
        all, the values are forgotten as soon as no layer needs them, which a backward pass would.
        """
        values = values or Values()
        for node in self.nodes:
            if node.blocked:
                continue
            a = inputs[node.number] if node.layer.kind is LayerKind.INPUT else self._compute(node, values, training)
            self._put(node, values, a, keep)
            if wanted is not None:
                for layer in set(self._last.get(node.number, ())).difference(wanted):
                    values.out.pop(layer, None)
                    values.factors.pop(layer, None)
        return values

    def _put(self, node: Node, values: Values, a: Matrix, keep: Keep | None) -> None:
        """Let the next layers see what a layer gives."""
        if keep is not None and node.layer.dropout and not is_sparse_input(node.layer):
            a = self._drop(node, values, a, keep)
        values.out[node.number] = a
        if node.number in self._multiplied and not sparse.issparse(a):
            values.factors[node.number] = self.products.factor(a)

    def _last_uses(self) -> Mapping[int, list[int]]:
        """Return by layer which layers are read for the last time to compute it; sources of blocked ones never are."""
        last = dict[int, int]()
        for place, node in enumerate(self.nodes):
            end = len(self.nodes) if node.blocked else place
            last |= {n: max(last.get(n, 0), end) for n in (*node.sources, *node.skips)}
        found = defaultdict[int, list[int]](list)
        for layer, place in last.items():
            if place < len(self.nodes):
                found[self.nodes[place].number].append(layer)
        return found

    def _drop(self, node: Node, values: Values, a: Floats, keep: Keep) -> Floats:
        """Return what dropout leaves of a layer's values, of whole maps where the layer says so."""
        if node.layer.drop_channels:
            mask = np.repeat(keep(node.number, (len(a), node.maps.channels)), node.maps.area, axis=1)
        else:
            mask = keep(node.number, a.shape)
        values.before_dropout[node.number], values.keep[node.number] = a, mask
        out = np.empty_like(a)

        def some(examples: slice) -> None:
            out[examples] = apply_dropout(node.layer, a[examples], mask[examples])

        by_examples(self.each, some, *a.shape)
        return out

    def _compute(self, node: Node, values: Values, training: bool) -> Floats:
        if node.layer.type is not LayerType.FULLY_CONNECTED:
            z = self.maps.compute(node, values, training)
            if is_simple(node):
                return z
        elif self._is_by_pieces(node, values):
            return self._dense_sums(node.edges[0], values, node.layer)
        else:
            z = self._normalized_sums(node, values, training)
        return self._activate(node, values, z)

    def _is_by_pieces(self, node: Node, values: Values) -> bool:
        """Whether what a layer gives can be computed some units at a time, the activation with the sums."""
        return (
            len(node.edges) == 1
            and not (node.skips or node.layer.batch_norm or node.error or node.layer.activation in ROWWISE)
            and not sparse.issparse(values.out[node.edges[0].source])
        )

    def _activate(self, node: Node, values: Values, z: Floats) -> Floats:
        if node.error is not None:
            values.sums[node.number] = z.copy()
        if node.layer.activation in ROWWISE:
            values.totals[node.number] = rowwise_sum(node.layer, z)
        return activate(node.layer, z)

    def _normalized_sums(self, node: Node, values: Values, training: bool) -> Floats:
        z = self.sums(node, values)
        if node.layer.batch_norm:
            norm = self.network.norms[node.number]
            if training and node.number in self.normalized:
                together = values.norms.forward(node, norm, z) if values.norms else batch_norm.forward(norm, z)
                values.normed[node.number], z = together
            else:
                z = batch_norm.inference(norm, z)
        return z

    def part(self, node: Node) -> Range | None:
        """Return what this rank has of an output layer that is cut."""
        return self._wide_outputs.get(node.number)

    def width(self, node: Node) -> int:
        """Return how many units of a blocked layer are computed at a time."""
        part = self.part(node)
        return part.width if part else block_width(node.units)

    def sums(self, node: Node, values: Values) -> Floats:
        """Return z (b, units) of a layer from the values of those before it; whole, also when it is blocked."""
        if node.blocked:
            whole = np.empty((values.out[node.edges[0].source].shape[0], node.units), self.network.dtype)
            width = self.width(node)

            def block(low: int) -> None:
                self.biased_block(node, values, low, whole[:, low : low + width])

            inside = sum(values.out[edge.source].shape[1] for edge in node.edges)
            consume(choose_threads(self.each, whole.size * inside)(block, range(0, node.units, width)))
            return whole
        z: Floats | None = None
        for edge in node.edges:
            part = self._sums_of(edge, values)
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

    def weights(self, node: Node, low: int, high: int) -> dict[int, Factor]:
        """Return the weights into some units of a blocked layer as factors (n, below), by edge, until the next call."""
        edges = [edge for edge in node.edges if self.layouts[edge.number] is Layout.BY_OUTPUT]
        stores = self.network.stores
        return {e.number: self.products.factor(stores[e.owner][low:high], f"weights{e.number}") for e in edges}

    def block(
        self, node: Node, values: Values, low: int, out: Floats, weights: Mapping[int, Factor] | None = None
    ) -> Floats:
        """Write to `out` (b, n), and return, z without the biases of n units of a blocked layer from `low`."""
        high = low + out.shape[1]
        weights = self.weights(node, low, high) if weights is None else weights
        for n, edge in enumerate(node.edges):
            if edge.number not in weights:
                store = self.network.stores[edge.owner]
                part = product(values.out[edge.source], store[self.table(edge, low)])[:, : high - low]
                out[...] = part if not n else out + part
                continue
            z = self.multiply(values, values.factors[edge.source], weights[edge.number].T, None if n else out)
            if n:
                out += z
        return out

    def biased_block(self, node: Node, values: Values, low: int, out: Floats) -> Floats:
        """Write to `out` (b, n), and return, z of n units of a blocked layer from `low`."""
        z = self.block(node, values, low, out)
        for edge in node.edges:
            z += self.network.biases[edge.number][low : low + out.shape[1]]
        return z

    def multiply(self, values: Values, a: Factor, b: Factor, out: Floats | None = None) -> Floats:
        """Return a (examples, k) times b (k, m), in `out` if there is one: a shard has the bits that it has alone."""
        if not values.shards or self.products.by_row:
            return self.products.multiply(a, b, out)
        out = np.empty((a.shape[0], b.shape[1]), self.network.dtype) if out is None else out
        for some in values.full:
            self.products.multiply(a[some], b, out[some])
        return out

    def _sums_of(self, edge: Edge, values: Values) -> Floats:
        """Return x W + bias (b, out), or x W^T + bias for weights used transposed."""
        if not sparse.issparse(values.out[edge.source]):
            return self._dense_sums(edge, values)
        z = self._sparse_product(edge, values)
        z += self.network.biases[edge.number]
        return z

    def _dense_sums(self, edge: Edge, values: Values, layer: Layer | None = None) -> Floats:
        """Return x W + bias of dense x, or what the units of a `layer` make of it; on all threads."""
        w, products = self.network.stores[edge.owner], self.products
        w, bias = w.T if edge.transposed else w, self.network.biases[edge.number]
        z = np.empty((values.out[edge.source].shape[0], w.shape[1]), w.dtype)
        pieces = cut_weights(w.shape[1]) if w.shape[1] >= 2 * PIECE else [slice(0, w.shape[1])]
        each = choose_threads(self.each, z.size * len(w))
        is_alone = each is map_in_turn

        def finish(some: slice) -> None:
            with np.errstate(all="ignore"):  # a thread has its own; what is not finite is found in the values
                found = z[:, some]
                found += bias[some]
                if layer is not None:
                    activate(layer, found)

        def columns(number: int) -> None:
            some = pieces[number]
            self.multiply(values, values.factors[edge.source], products.factor(w[:, some], "weights"), z[:, some])
            if not is_alone:
                finish(some)

        consume(each(columns, range(len(pieces))))
        if is_alone:  # NumPy is faster with whole rows
            finish(slice(None))
        return z

    def _sparse_product(self, edge: Edge, values: Values) -> Floats:
        """Return x W (b, out) of sparse x, or x W^T for weights used transposed, on all threads."""
        x, w = values.out[edge.source], self.network.stores[edge.owner]
        w, part = w.T if edge.transposed else w, self._wide_inputs.get(edge.source)
        z = np.empty((x.shape[0], w.shape[1]), w.dtype)

        def examples(low: int) -> None:
            if part is None:
                product(x, w, z[low : low + EXAMPLES], low)
            else:
                add_shards(x, w, len(part.own), z[low : low + EXAMPLES], low)

        consume(choose_threads(self.each, x.nnz * w.shape[1])(examples, range(0, len(z), EXAMPLES)))
        return z if part is None else self.together.sum_ranks(z)

    def output_sums(self, inputs: Mapping[int, Matrix], layer: int) -> Floats:
        """Return z (b, units) of an output layer, as in prediction; of one that is cut, the units of this rank.

        NotFiniteError, on all ranks, for the first example with a sum that is not finite on one of them.
        """
        node = self.node(layer)
        with np.errstate(all="ignore"):
            values = self.run(inputs, wanted=())
            sums = self.sums(node, values) if node.blocked else values.sums[layer]
        if self.part(node) is None:
            return require_finite(sums)
        first = self.together.numbers([first_broken(sums)]).min()
        if first < len(sums):
            raise NotFiniteError(int(first))
        return sums

    def activations(self, inputs: Mapping[int, Matrix], layer: int) -> Floats:
        """Return the outputs (b, units) of one layer, as in prediction."""
        values, node = self.run(inputs, wanted=(layer,)), self.node(layer)
        if not node.blocked:
            return np.asarray(values.out[layer])
        return activate(node.layer, self.sums(node, values))
