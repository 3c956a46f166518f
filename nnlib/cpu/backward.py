"""The backward pass: the error of a batch and the gradient of its mean, piece by piece. Twin: gpu/backward.py.

The gradient of an output layer's weights exists for one block of units at a time, that of a sparse input's weights
only for the rows that the batch touches. Whoever takes the gradients may apply them at once: a weight is not read
again after its gradient was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from nnlib.compiled.select import LOOPS
from nnlib.cpu.forward import Forward, Values, cut_weights
from nnlib.cpu.maps.by_shard import by_shard, weight_gradient
from nnlib.cpu.maps.layers import Belows
from nnlib.cpu.maps.pieces import by_examples
from nnlib.cpu.output import blocked_error, whole_error
from nnlib.cpu.sink import Sink
from nnlib.model.graph import Node
from nnlib.ops import batch_norm
from nnlib.ops.activations import activation_gradient, dropout_derivative, unmasked_gradient
from nnlib.ops.limits import limit_norms, sparseness_gradient, sparseness_penalty
from nnlib.ops.targets import Targets
from nnlib.spec.types import Edge, LayerKind, LayerType
from nnlib.util.arrays import Floats
from nnlib.util.threads import choose_threads, consume, map_in_turn


@dataclass(slots=True, eq=False)
class _Way:
    """The way back of a batch that went forward: where it is."""

    values: Values
    targets: Sequence[Mapping[int, Targets]]  # of each of the `values.parts`
    sink: Sink
    errors: list[float]  # of each, summed over its examples, so far
    deltas: dict[int, Floats] = field(default_factory=dict)  # dLoss/d(what the next layers see), by layer


def backward(forward: Forward, values: Values, targets: Mapping[int, Targets], sink: Sink) -> float:
    """Return the error summed over the examples; give the gradient of its mean to `sink`, last layer first.

    The error of layers that are cut goes to `values.errors`, by shard.
    """
    return backward_shards(forward, values, [targets], sink)[0]


def backward_shards(
    forward: Forward, values: Values, targets: Sequence[Mapping[int, Targets]], sink: Sink
) -> list[float]:
    """As `backward`, of a batch that is cut: return the error of each of the `values.parts`, which have `targets`.

    Where a batch is normalized all ranks have to do it at once.
    """
    way = _Way(values, targets, sink, [0.0] * len(targets))
    for node in reversed(forward.nodes):
        delta = _delta(forward, node, way)
        if delta is not None:
            delta = _norm_backward(forward, node, values, _limited(forward, node, values, delta), sink)
            _give(forward, node, way, delta)
    return way.errors


def _delta(forward: Forward, node: Node, way: _Way) -> Floats | None:
    """Return dLoss/d(sums after batch normalization) of a layer; None where nothing is to be done with it.

    That is so of inputs, where no output layer depends on it, and where nothing learns from here on; a blocked layer is
    done with.
    """
    if node.layer.kind is LayerKind.INPUT:
        return None
    learns, values = node.number in forward.learning, way.values
    targets = [some[node.number] for some in way.targets if node.error is not None]
    if node.blocked:
        errors, belows = blocked_error(forward, node, values, targets, way.sink if learns else None)
        way.errors = [sum(pair) for pair in zip(way.errors, errors, strict=True)]
        for layer, below in belows.items():
            _add(forward, way, layer, below)
        return None
    delta: Floats | None = way.deltas.pop(node.number, None)
    if delta is not None:
        delta = _through_layer(forward, node, values, delta)
    if node.error is not None:
        found = [whole_error(node, part, some) for part, some in zip(values.parts(), targets, strict=True)]
        way.errors = [before + error for before, (error, _) in zip(way.errors, found, strict=True)]
        own = found[0][1] if len(found) == 1 else np.concatenate([one for _, one in found])
        own /= values.mean_over or len(own)
        delta = own if delta is None else delta + own
    return delta if learns else None


def _give(forward: Forward, node: Node, way: _Way, delta: Floats) -> None:
    """Give the gradients of a layer, from dLoss/d(its sums), and the layers before it their part."""
    skipped = [(skip, delta.copy()) for skip in node.skips if skip in forward.learning]
    for layer, below in (*_belows(forward, node, way.values, delta, way.sink), *skipped):
        _add(forward, way, layer, below)


def _add(forward: Forward, way: _Way, layer: int, delta: Floats) -> None:
    known = way.deltas.get(layer)
    if known is None:
        way.deltas[layer] = delta
        return

    def some(examples: slice) -> None:
        known[examples] += delta[examples]

    by_examples(forward.each, some, *delta.shape)


def _through_layer(forward: Forward, node: Node, values: Values, delta: Floats) -> Floats:
    """Turn dLoss/d(what the next layers see) into dLoss/d(sums after batch normalization)."""
    layer, keep, total = node.layer, values.keep.get(node.number), values.totals.get(node.number)
    a, out = values.active(node.number), values.out[node.number]
    unmasked = keep is not None and forward.network.spec.compat
    rule = forward.network.spec.sparseness_of(layer)
    penalty = sparseness_gradient(rule, out if unmasked else a) if rule.beta else None

    def some(examples: slice) -> None:
        part = delta[examples]
        if keep is not None and not unmasked:
            part *= dropout_derivative(layer, keep[examples], delta.dtype)
        if penalty is not None:
            part += penalty
        if unmasked:
            delta[examples] = unmasked_gradient(layer, part, out[examples])
        else:
            activation_gradient(layer, part, a[examples], None if total is None else total[examples])

    by_examples(forward.each, some, *delta.shape)
    return delta


def _limited(forward: Forward, node: Node, values: Values, delta: Floats) -> Floats:
    """Apply the limit of delta's norm, in place: of each example's own delta, which is b times its part in the mean."""
    limit, examples = node.layer.delta_norm, values.mean_over or len(delta)
    if limit:
        by_examples(forward.each, lambda some: limit_norms(delta[some], limit, 1, examples), *delta.shape)
    return delta


def _norm_backward(forward: Forward, node: Node, values: Values, delta: Floats, sink: Sink) -> Floats:
    """Go back through batch normalization."""
    if not node.layer.batch_norm:
        return delta
    norm, fixed = forward.network.norms[node.number], node.number in forward.network.fixed
    if values.norms is not None and not fixed:
        return values.norms.backward(node, norm, values.normed[node.number], delta, sink)
    if node.layer.type is not LayerType.FULLY_CONNECTED:
        return forward.maps.norm_backward(node, values, delta, sink)
    if fixed:
        return batch_norm.inference_backward(norm, delta)
    below, scale_gradient, bias_gradient = batch_norm.backward(norm, values.normed[node.number], delta)
    sink.norm(node.number, scale_gradient, bias_gradient)
    return below


def _belows(forward: Forward, node: Node, values: Values, delta: Floats, sink: Sink) -> Belows:
    """Give the gradients of a layer's weights to `sink`; return dLoss/d(what the layers before it that learn give)."""
    if node.layer.type is not LayerType.FULLY_CONNECTED:
        return forward.maps.backward(node, values, delta, sink)
    found = [(edge.source, _edge_gradient(forward, edge, values, delta, sink)) for edge in node.edges]
    return [(source, below) for source, below in found if below is not None]


def _edge_gradient(forward: Forward, edge: Edge, values: Values, delta: Floats, sink: Sink) -> Floats | None:
    """Give the gradient of an edge to `sink`; return dLoss/d(its source), None where nothing learns from there on."""
    x, w, products = values.out[edge.source], forward.network.stores[edge.owner], forward.products
    learning = edge.source in forward.learning
    below = np.empty((len(delta), x.shape[1]), delta.dtype) if learning else None
    if edge.owner in forward.network.locked:
        if below is not None:
            weights = products.factor(w if edge.transposed else w.T, "weights")
            forward.multiply(values, products.factor(delta), weights, below)
        return below
    if sparse.issparse(x):
        if edge.transposed:
            sink.rows(edge.number, 0, np.ascontiguousarray((x.T @ delta).T))
        else:
            touched = values.touched_by(edge.source)

            def share(low: int) -> None:
                rows, gradient = touched.gradient(delta, low)
                sink.touched(edge.owner, 0, rows, gradient)

            consume(choose_threads(forward.each, x.nnz * w.shape[1])(share, touched.shares))
    elif edge.transposed:
        factor = products.factor(delta)
        below = forward.multiply(values, factor, products.factor(w, "weights")) if learning else None
        gradient = weight_gradient(products, factor, values.factors[edge.source], values.shards, w.dtype)
        sink.rows(edge.number, 0, gradient)
    else:
        factor, inputs, pieces = products.factor(delta), values.factors[edge.source], cut_weights(x.shape[1])
        each = choose_threads(forward.each, delta.size * x.shape[1])
        others_read = each is not map_in_turn and not values.shards  # whose update comes when all is known

        def piece(number: int) -> None:
            some = pieces[number]
            if below is not None:
                forward.multiply(values, factor, products.factor(w[some], "weights").T, below[:, some])
            gradient = weight_gradient(products, inputs[:, some], factor, values.shards, w.dtype)
            if LOOPS is not None and others_read:
                LOOPS.take_back(w[some])
            sink.rows(edge.number, some.start, gradient)

        consume(each(piece, range(len(pieces))))
    sink.bias(edge.number, 0, by_shard(lambda some: delta[some].sum(axis=0), values.shards))
    return below


def sum_penalties(forward: Forward, values: Values) -> float:
    """Return the sparseness penalty of a batch: in its gradient, not in the error that is reported, as in DSSTNE."""
    total = 0.0
    for node in forward.nodes:
        rule = forward.network.spec.sparseness_of(node.layer)
        if rule.beta:
            total += sparseness_penalty(rule, values.active(node.number))
    return total
