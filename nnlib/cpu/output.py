"""Output layers in blocks of units: all of a block while it is in the cache. Twin: gpu/output.py.

There is never an array of all outputs, of all targets or of all deltas. Where margins shut out nearly all units of a
block, its delta is sparse, and so are the products with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from nnlib.compiled.select import LOOPS
from nnlib.cpu.forward import Forward, Values
from nnlib.cpu.maps.by_shard import weight_gradient
from nnlib.cpu.products import Factor
from nnlib.cpu.scratch import SCRATCH
from nnlib.cpu.sink import Sink
from nnlib.model.graph import Node
from nnlib.model.network import Layout
from nnlib.ops import losses
from nnlib.ops.targets import Targets
from nnlib.shards.tree import Tree, tree_sum
from nnlib.spec.types import Activation, Boost, ErrorFunction
from nnlib.util.arrays import Floats
from nnlib.util.threads import Each, choose_threads

LANES = 8  # sequences of blocks whose sums are kept apart, so that any number of threads gives the same sum
KEPT = 8192  # SoftMax needs all sums twice; up to this many units they are kept, beyond it computed again
SPARSE_DELTA = 0.15  # part of a block's units up to which sparse products with its delta cost less than dense ones

Weights = Mapping[int, Factor]  # of a block, by edge; see `Forward.weights`
Belows = dict[int, Floats]  # layer -> dLoss/d(what it gives), (b, units)


def sum_errors(forward: Forward, values: Values, targets: Mapping[int, Targets]) -> float:
    """Return the error of a batch, summed over its examples and output layers but those that are cut, see `Values`."""
    total = 0.0
    for node in forward.outputs:
        if node.blocked:
            [error], _ = blocked_error(forward, node, values, [targets[node.number]], None)
            total += error
        else:
            total += whole_error(node, values, targets[node.number])[0]
    return total


def whole_error(node: Node, values: Values, targets: Targets) -> tuple[float, Floats]:
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


def blocked_error(
    forward: Forward, node: Node, values: Values, targets: Sequence[Targets], sink: Sink | None
) -> tuple[list[float], Belows]:
    """Return the error of a blocked output layer, summed, and dLoss/d(its sources) of the mean error.

    Both are of the `values.parts`, which have these targets: an error each, and rows behind those of the one before.
    The gradients of its weights and biases go to `sink`; without one, there are only errors. That of a layer which is
    cut goes to `values.errors`, by shard.
    """
    layer, part = _Layer(forward, node, values, targets, sink), forward.part(node)
    starts = list(range(0, node.units, forward.width(node)))

    def lane(blocks: list[int]) -> tuple[list[float], Belows]:
        belows = {source: np.zeros_like(values.out[source]) for source in layer.below}
        with np.errstate(all="ignore"):  # a thread has its own; what is not finite is found in the sums
            found = [layer.block(low, belows) for low in blocks]
        return [sum(errors) for errors in zip(*found, strict=True)], belows

    if part is not None:
        shards = [starts[low : low + part.blocks] for low in range(0, len(starts), part.blocks)]
        return [0.0], _sum_shards(forward, values, forward.each(lambda n: lane(shards[n]), range(len(shards))))
    totals, sums = [0.0] * len(targets), Belows()
    for errors, belows in _each(forward, node, values)(
        lambda n: lane(starts[n::LANES]), range(min(LANES, len(starts)))
    ):
        totals = [total + error for total, error in zip(totals, errors, strict=True)]
        for source, below in belows.items():
            sums[source] = below if source not in sums else np.add(sums[source], below, out=sums[source])
    return totals, sums


def _each(forward: Forward, node: Node, values: Values) -> Each:
    """Return what does the blocks of a layer, on as many threads as its sums are worth."""
    sources = (values.out[edge.source] for edge in node.edges)
    entries = sum(x.nnz if sparse.issparse(x) else x.size for x in sources)
    return choose_threads(forward.each, entries * node.units)


def _sum_shards(forward: Forward, values: Values, lanes: Iterable[tuple[list[float], Belows]]) -> Belows:
    """Put the errors of the own shards into `values`; return what all shards of all ranks give the layers below."""
    trees = defaultdict[int, Tree[Floats]](Tree)
    for shard, ([error], belows) in zip(forward.together.own, lanes, strict=True):
        values.errors[shard] = values.errors.get(shard, 0.0) + error
        for source, below in belows.items():
            trees[source].add(below)
    with np.errstate(all="ignore"):
        return {source: forward.together.sum_ranks(tree.total()) for source, tree in sorted(trees.items())}


class _Layer:
    """One blocked output layer in one batch, of which each of the `values.parts` has its targets."""

    def __init__(
        self, forward: Forward, node: Node, values: Values, targets: Sequence[Targets], sink: Sink | None
    ) -> None:
        assert node.error is not None
        self.forward, self.node, self.values, self.targets, self.sink = forward, node, values, targets, sink
        self.error = node.error
        self.dtype = forward.network.dtype
        self.examples = int(values.out[node.edges[0].source].shape[0])
        self.mean_over = values.mean_over or self.examples
        self.normalizer: Floats | None = None
        self.kept: dict[int, Floats] = {}
        if self.error.softmax:
            self.normalizer, self.kept = _normalizer(forward, node, values)
        self.compiled = self._is_compiled()
        self.below = {edge.source for edge in node.edges if sink is not None and edge.source in forward.learning}

    def block(self, low: int, belows: Belows) -> list[float]:
        """Return the error of the block of units from `low` of each part; give its gradients, add to `belows`."""
        high = min(low + self.forward.width(self.node), self.node.units)
        w = self.forward.weights(self.node, low, high)
        z = self.kept[low] if low in self.kept else self._sums(low, high, w)
        if self.compiled and self.error.margin.zero_target > 0 and self.sink is not None and not self.values.shards:
            error = self._sparse_block(low, high, z, belows)
            if error is not None:
                return [error]
        find = self._compiled_part if self.compiled else self._part
        parts = zip(self.values.full or (slice(None),), self.targets, strict=True)
        found = [find(low, high, z, some, targets) for some, targets in parts]
        if self.sink is not None:
            biases = [bias for _, bias in found]
            biases += [np.zeros_like(biases[0])] * (len(self.values.shards) - len(biases))
            self._dense_gradients(low, z, tree_sum(biases), belows, w)
        return [error for error, _ in found]

    def _part(self, low: int, high: int, sums: Floats, some: slice, targets: Targets) -> tuple[float, Floats]:
        """Return the error of some examples, and the gradient of the biases; their `sums` become those of the mean."""
        z, target = sums[some], targets.block(low, high, self.error.softmax)
        if low not in self.kept:
            z += self._bias(low, high)
        normalizer = None if self.normalizer is None else self.normalizer[some]
        error = losses.block_error(self.error, z, target, targets.weights, normalizer, targets.shares)
        if self.sink is None:
            return error, z[:0]
        z /= self.mean_over
        return error, z.sum(axis=0)

    def _sums(self, low: int, high: int, w: Weights) -> Floats:
        """Return z (b, high - low) without the biases, in scratch memory."""
        z = SCRATCH.get("sums", (self.examples, high - low), self.dtype)
        return self.forward.block(self.node, self.values, low, z, w)

    def _bias(self, low: int, high: int) -> Floats:
        biases = [self.forward.network.biases[edge.number][low:high] for edge in self.node.edges]
        return biases[0] if len(biases) == 1 else np.sum(biases, axis=0)

    def _is_compiled(self) -> bool:
        """Whether the compiled loops compute just this: a cross entropy of sigmoid units with sparse targets."""
        error, targets = self.error, self.targets[0]  # which are of one data set
        return (
            LOOPS is not None
            and error.kind in losses.CROSS_ENTROPIES
            and error.layer.activation is Activation.SIGMOID
            and error.boost == Boost()
            and targets.columns is not None
            and not targets.alone
            and (targets.boolean or error.kind in losses.MARGINS)
            and targets.weights is None
        )

    def _compiled_part(self, low: int, high: int, sums: Floats, some: slice, targets: Targets) -> tuple[float, Floats]:
        """As `_part`."""
        assert LOOPS is not None
        arguments = self._arguments(low, high, sums[some], targets)
        return float(LOOPS.sigmoid_error(*arguments)), arguments[-1].copy()

    def _arguments(self, low: int, high: int, z: Floats, targets: Targets) -> tuple[Any, ...]:
        """Return what compiled loops are told of a block: the last is memory for the gradient of the biases."""
        columns, margin = targets.columns, self.error.margin
        assert columns is not None
        weighted = self.error.kind is ErrorFunction.DATA_MARGINAL and not targets.boolean
        return (
            z,
            self._bias(low, high),
            columns.indptr[low : high + 1],
            columns.indices,
            columns.data if weighted else None,
            (margin.one_target, margin.zero_target, margin.one_scale, margin.zero_scale),
            1 / self.mean_over,
            SCRATCH.get("bias", (high - low,), self.dtype),
        )

    def _sparse_block(self, low: int, high: int, z: Floats, belows: Belows) -> float | None:
        """Do a block whose delta is mostly zero; None when it is not, and nothing was done."""
        assert LOOPS is not None and self.sink is not None
        layouts = self.forward.layouts
        if any(layouts[edge.number] is not Layout.BY_OUTPUT for edge in self.node.edges):
            return None
        arguments, room = self._arguments(low, high, z, self.targets[0]), max(1, int(SPARSE_DELTA * z.size))
        starts = SCRATCH.get("starts", (self.examples + 1,), np.int64)
        columns = SCRATCH.get("columns", (room,), np.int64)
        delta = SCRATCH.get("delta", (room,), self.dtype)
        error, count = LOOPS.sigmoid_error_gated(*arguments, starts, columns, delta)
        if count < 0:
            return None
        for edge in self.node.edges:
            x, w = self.values.out[edge.source], self.forward.network.stores[edge.owner]
            if edge.source in belows:
                LOOPS.gated_below(starts, columns, delta, w[low:high], belows[edge.source])
            if edge.owner in self.forward.network.locked:
                continue
            gradient = SCRATCH.get("gradient", (high - low, x.shape[1]), self.dtype)
            LOOPS.gated_gradient(starts, columns, delta, x, gradient)
            self.sink.rows(edge.number, low, gradient)
            self.sink.bias(edge.number, low, arguments[-1].copy())
        return float(error)

    def _dense_gradients(self, low: int, delta: Floats, bias: Floats, belows: Belows, weights: Weights) -> None:
        """Hand over the gradients of a block, from delta (b, n) of the mean error."""
        assert self.sink is not None
        products, shards = self.forward.products, self.values.shards
        factor = products.factor(delta, "delta")
        for edge in self.node.edges:
            if edge.source in belows:
                below = SCRATCH.get("below", self.values.out[edge.source].shape, self.dtype)
                belows[edge.source] += self.forward.multiply(self.values, factor, weights[edge.number], below)
            if edge.owner in self.forward.network.locked:
                continue
            if self.forward.layouts[edge.number] is Layout.BLOCKED:
                width = self.forward.network.stores[edge.owner].shape[1]
                self._table_gradient(edge.source, edge.owner, self.forward.table(edge, low), delta, width)
            else:
                x = self.values.factors[edge.source]
                self.sink.rows(edge.number, low, weight_gradient(products, factor, x, shards, self.dtype))
            self.sink.bias(edge.number, low, bias.copy())

    def _table_gradient(self, source: int, owner: int, table: slice, delta: Floats, width: int) -> None:
        """Hand over the gradient of the weights from a sparse input; the last block's table is filled up with zeros."""
        assert self.sink is not None
        touched = self.values.touched_by(source)
        full = delta if delta.shape[1] == width else np.pad(delta, ((0, 0), (0, width - delta.shape[1])))
        for share in touched.shares:
            rows, gradient = touched.gradient(full, share)
            self.sink.touched(owner, table.start, rows, gradient)


def _normalizer(forward: Forward, node: Node, values: Values) -> tuple[Floats, dict[int, Floats]]:
    """Return log sum exp over all sums of each example, (b, 1), and the sums by block, if they are few."""
    part, step = forward.part(node), forward.width(node)
    starts, keep = range(0, node.units, step), (part.units if part else node.units) <= KEPT
    examples = values.out[node.edges[0].source].shape[0]

    def block(low: int) -> tuple[tuple[Floats, Floats], Floats | None]:
        with np.errstate(all="ignore"):
            width = min(step, node.units - low)
            z = forward.biased_block(node, values, low, np.empty((examples, width), forward.network.dtype))
            return losses.softmax_part(z), z if keep else None

    blocks = list(_each(forward, node, values)(block, starts))
    kept = {low: z for low, (_, z) in zip(starts, blocks, strict=True) if z is not None}
    found = [of_block for of_block, _ in blocks]
    if part is None:
        return losses.softmax_normalizer(found), kept
    highest = np.max(forward.together.gather(np.max([high for high, _ in found], axis=0)), axis=0)
    scaled = [total * np.exp(high - highest) for high, total in found]
    shards = [sum(scaled[low : low + part.blocks]) for low in range(0, len(scaled), part.blocks)]
    return highest + np.log(forward.together.tree_sum(shards)), kept
