"""Output layers in blocks of units: all of a block while it is in the cache. Twin: gpu/output.py.

There is never an array of all outputs, of all targets or of all deltas. Where margins shut out nearly all units of a
block, its delta is sparse, and so are the products with it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from nnlib.compiled.select import LOOPS
from nnlib.cpu.forward import Forward, Values
from nnlib.cpu.sink import Sink
from nnlib.model.graph import Node
from nnlib.model.network import Layout, block_starts, block_width
from nnlib.ops import losses
from nnlib.ops.targets import Targets
from nnlib.spec.types import Activation, Boost, ErrorFunction, LayerKind
from nnlib.util.arrays import Floats

LANES = 8  # sequences of blocks whose sums are kept apart, so that any number of threads gives the same sum
KEPT = 8192  # SoftMax needs all sums twice; up to this many units they are kept, beyond it computed again
SPARSE_DELTA = 0.15  # part of a block's units up to which sparse products with its delta cost less than dense ones

Belows = dict[int, Floats]  # layer -> dLoss/d(what it gives), (b, units)


class Scratch(threading.local):
    """Memory that each thread uses again for every block."""

    def __init__(self) -> None:
        self._arrays: dict[str, Floats] = {}

    def get(self, name: str, shape: tuple[int, ...], dtype: Any) -> Floats:
        """Return memory of a shape, with whatever was in it."""
        size = math.prod(shape)
        array = self._arrays.get(name)
        if array is None or array.size < size or array.dtype != dtype:
            array = self._arrays[name] = np.empty(size, dtype)
        return array[:size].reshape(shape)


SCRATCH = Scratch()


def sum_errors(forward: Forward, values: Values, targets: Mapping[int, Targets]) -> float:
    """Return the error of a batch, summed over its examples and output layers."""
    total = 0.0
    for node in forward.outputs:
        if node.blocked:
            total += blocked_error(forward, node, values, targets[node.number], None)[0]
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
    forward: Forward, node: Node, values: Values, targets: Targets, sink: Sink | None
) -> tuple[float, Belows]:
    """Return the error of a blocked output layer, summed, and dLoss/d(its sources) of the mean error.

    The gradients of its weights and biases go to `sink`; without one, there is only the error.
    """
    layer = _Layer(forward, node, values, targets, sink)
    starts = list(block_starts(node.units))

    def lane(number: int) -> tuple[float, Belows]:
        belows = {source: np.zeros_like(values.out[source]) for source in layer.below}
        with np.errstate(all="ignore"):  # a thread has its own; what is not finite is found in the sums
            return sum(layer.block(low, belows) for low in starts[number::LANES]), belows

    total, sums = 0.0, Belows()
    for error, belows in forward.each(lane, range(min(LANES, len(starts)))):
        total += error
        for source, below in belows.items():
            sums[source] = below if source not in sums else np.add(sums[source], below, out=sums[source])
    return total, sums


class _Layer:
    """One blocked output layer in one batch."""

    def __init__(self, forward: Forward, node: Node, values: Values, targets: Targets, sink: Sink | None) -> None:
        assert node.error is not None
        self.forward, self.node, self.values, self.targets, self.sink = forward, node, values, targets, sink
        self.error = node.error
        self.dtype = forward.network.dtype
        self.examples = int(values.out[node.edges[0].source].shape[0])
        self.normalizer: Floats | None = None
        self.kept: dict[int, Floats] = {}
        if self.error.softmax:
            self.normalizer, self.kept = _normalizer(forward, node, values)
        self.compiled = self._is_compiled()
        layers = forward.network.spec.layers
        self.below = {
            edge.source for edge in node.edges if sink is not None and layers[edge.source].kind is not LayerKind.INPUT
        }

    def block(self, low: int, belows: Belows) -> float:
        """Return the error of the block of units from `low`; give its gradients, add to `belows`."""
        high = min(low + block_width(self.node.units), self.node.units)
        if self.compiled:
            return self._compiled_block(low, high, belows)
        target = self.targets.block(low, high, self.error.softmax)
        z = self.kept[low] if low in self.kept else self._sums(low, high)
        if low not in self.kept:
            z += self._bias(low, high)
        weights, shares = self.targets.weights, self.targets.shares
        error = losses.block_error(self.error, z, target, weights, self.normalizer, shares)
        if self.sink is not None:
            z /= self.examples
            self._dense_gradients(low, high, z, z.sum(axis=0), belows)
        return error

    def _sums(self, low: int, high: int) -> Floats:
        """Return z (b, high - low) without the biases, in scratch memory."""
        z = SCRATCH.get("sums", (self.examples, high - low), self.dtype)
        return self.forward.block(self.node, self.values, low, z)

    def _bias(self, low: int, high: int) -> Floats:
        biases = [self.forward.network.biases[edge.number][low:high] for edge in self.node.edges]
        return biases[0] if len(biases) == 1 else np.sum(biases, axis=0)

    def _is_compiled(self) -> bool:
        """Whether the compiled loops compute just this: a cross entropy of sigmoid units with sparse targets."""
        error, targets = self.error, self.targets
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

    def _compiled_block(self, low: int, high: int, belows: Belows) -> float:
        columns, margin = self.targets.columns, self.error.margin
        assert LOOPS is not None and columns is not None
        z, bias = self._sums(low, high), self._bias(low, high)
        weighted = self.error.kind is ErrorFunction.DATA_MARGINAL and not self.targets.boolean
        arguments = (
            z,
            bias,
            columns.indptr[low : high + 1],
            columns.indices,
            columns.data if weighted else None,
            (margin.one_target, margin.zero_target, margin.one_scale, margin.zero_scale),
            1 / self.examples,
            SCRATCH.get("bias", (high - low,), self.dtype),
        )
        if margin.zero_target > 0 and self.sink is not None:
            error = self._sparse_block(low, high, arguments, belows)
            if error is not None:
                return error
        error = float(LOOPS.sigmoid_error(*arguments))
        if self.sink is not None:
            self._dense_gradients(low, high, z, arguments[-1], belows)
        return error

    def _sparse_block(self, low: int, high: int, arguments: tuple[Any, ...], belows: Belows) -> float | None:
        """Do a block whose delta is mostly zero; None when it is not, and nothing was done."""
        assert LOOPS is not None and self.sink is not None
        layouts = self.forward.layouts
        if any(layouts[edge.number] is not Layout.BY_OUTPUT for edge in self.node.edges):
            return None
        room = max(1, int(SPARSE_DELTA * arguments[0].size))
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
            gradient = SCRATCH.get("gradient", (high - low, x.shape[1]), self.dtype)
            LOOPS.gated_gradient(starts, columns, delta, x, gradient)
            self.sink.rows(edge.owner, low, gradient)
            self.sink.bias(edge.number, low, arguments[-1].copy())
        return float(error)

    def _dense_gradients(self, low: int, high: int, delta: Floats, bias: Floats, belows: Belows) -> None:
        """Hand over the gradients of a block, from delta (b, high - low) of the mean error."""
        assert self.sink is not None
        for edge in self.node.edges:
            w = self.forward.network.stores[edge.owner]
            if self.forward.layouts[edge.number] is Layout.BLOCKED:
                self._table_gradient(edge.source, edge.owner, self.forward.table(edge, low), delta, w.shape[1])
            else:
                x = self.values.out[edge.source]
                if edge.source in belows:
                    below = SCRATCH.get("below", x.shape, self.dtype)
                    belows[edge.source] += np.matmul(delta, w[low:high], out=below)
                gradient = SCRATCH.get("gradient", (high - low, x.shape[1]), self.dtype)
                self.sink.rows(edge.owner, low, np.matmul(delta.T, x, out=gradient))
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
    starts, keep = block_starts(node.units), node.units <= KEPT
    examples = values.out[node.edges[0].source].shape[0]

    def block(low: int) -> tuple[tuple[Floats, Floats], Floats | None]:
        with np.errstate(all="ignore"):
            width = min(block_width(node.units), node.units - low)
            z = forward.biased_block(node, values, low, np.empty((examples, width), forward.network.dtype))
            return losses.softmax_part(z), z if keep else None

    blocks = list(forward.each(block, starts))
    kept = {low: z for low, (_, z) in zip(starts, blocks, strict=True) if z is not None}
    return losses.softmax_normalizer([part for part, _ in blocks]), kept
