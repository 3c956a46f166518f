"""Error functions: the loss of a block of output units, and delta = dLoss/dz in place of the sums z.

Shapes: b examples, n units of the block. A target is either sparse (all units are first taken for zeros, then the
entries are put right, so that nothing is made dense) or dense. Loss and delta are summed over examples and units;
each example counts w times (its weight, 1 without weights).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.ops.activations import (
    ROWWISE,
    activate,
    activation_gradient,
    apply_dropout,
    dropout_derivative,
    rowwise_sum,
    sigmoid,
)
from nnlib.spec.types import Activation, Boost, ErrorFunction, Layer, Marginal, NetworkSpec
from nnlib.util.arrays import Floats

OPEN = Marginal(one_target=1.0, zero_target=0.0, one_scale=1.0, zero_scale=1.0)
MARGINS = (ErrorFunction.MARGINAL, ErrorFunction.DATA_MARGINAL)
CROSS_ENTROPIES = (ErrorFunction.CROSS_ENTROPY, *MARGINS)


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """The stored targets of a block: unit `columns[i]` of example `rows[i]` should be `values[i]` (None: all one)."""

    rows: NDArray[np.integer]
    columns: NDArray[np.integer]
    values: Floats | None = None
    alone: bool = False  # only these count, units without an entry have no error (SparseIgnoreZero)

    def of(self, dtype: Any) -> Floats:
        """Return the values, ones where there are none."""
        return np.ones(len(self.rows), dtype) if self.values is None else self.values


Target = Entries | Floats  # Floats: dense, (b, n)


@dataclass(frozen=True, slots=True)
class Error:
    """An error function with everything that the network says of it."""

    kind: ErrorFunction
    layer: Layer
    margin: Marginal
    boost: Boost
    compat: bool

    @property
    def softmax(self) -> bool:
        """Whether it is a cross entropy over a SoftMax layer, which needs `normalizer` of all blocks."""
        return self.layer.activation is Activation.SOFTMAX and self.kind in CROSS_ENTROPIES

    @property
    def blockwise(self) -> bool:
        """Whether a block of units can be computed without the others (or with a `normalizer` of all)."""
        return self.softmax or self.layer.activation not in ROWWISE


def error_of(spec: NetworkSpec, layer: Layer) -> Error:
    """Return the error of one output layer; CrossEntropy is the marginal one with open gates."""
    margin = spec.marginal if spec.error in MARGINS else OPEN
    boost = spec.boost if spec.error not in MARGINS else Boost()
    return Error(spec.error, layer, margin, boost, spec.compat)


def block_error(
    error: Error,
    z: Floats,
    target: Target,
    weights: Floats | None = None,
    normalizer: Floats | None = None,
    shares: Floats | None = None,
    keep: NDArray[np.bool_] | None = None,
) -> float:
    """Return the loss of a block, summed, and overwrite its sums z (b, n) with delta.

    `weights` (b, 1) are the examples' weights; `normalizer` and `shares` are for SoftMax with a cross entropy, see
    `softmax_error`; `keep` (b, n) is what dropout keeps, for all but those.
    """
    if error.softmax:
        assert normalizer is not None and shares is not None, "the caller computes both over all blocks"
        return softmax_error(error, z, target, normalizer, shares, weights)
    if error.kind not in CROSS_ENTROPIES:
        return pointwise_error(error, z, target, weights, keep)
    if keep is None:
        return sigmoid_error(error, z, target, weights)
    z *= keep  # a dropped sigmoid unit gives 0.5, and so does a sum of 0
    loss = sigmoid_error(error, z, target, weights)
    z *= keep
    return loss


def pointwise(kind: ErrorFunction, a: Floats, t: Floats | float) -> tuple[Floats, Floats]:
    """Return loss and dLoss/da of single units with output a and target t.

    L1 |a - t|; L2 (a - t)^2 / 2; Hinge max(0, 1 - t a); L2Hinge d^2 / 2 with d = min(0, a - |t|) where t > 0 and
    max(0, a - |t|) elsewhere.
    """
    if kind is ErrorFunction.HINGE:
        inside = t * a < 1
        return inside * (1 - t * a), np.where(inside, -t, 0).astype(a.dtype)
    difference = a - (abs(t) if kind is ErrorFunction.L2_HINGE else t)  # np.abs would make a number a float64
    if kind is ErrorFunction.L1:
        return np.abs(difference), np.sign(difference)
    if kind is ErrorFunction.L2_HINGE:
        difference = np.where(np.greater(t, 0), np.minimum(difference, 0), np.maximum(difference, 0))
    return difference * difference / 2, difference


def pointwise_error(
    error: Error, z: Floats, target: Target, weights: Floats | None, keep: NDArray[np.bool_] | None = None
) -> float:
    """L1, L2, L2Hinge and Hinge, for every activation; see `block_error`."""
    layer = error.layer
    total = rowwise_sum(layer, z) if layer.activation in ROWWISE else None
    active = activate(layer, z.copy())
    a = active if keep is None else apply_dropout(layer, active, keep)
    one, zero = error.boost.one, error.boost.zero
    if isinstance(target, Entries):
        at = (target.rows, target.columns)
        hit_loss, hit_delta = pointwise(error.kind, a[at], target.of(a.dtype))
        if target.alone:
            losses, z[...] = np.zeros_like(a), 0
        else:
            losses, z[...] = pointwise(error.kind, a, 0.0)
            z *= zero
        losses *= 1 if error.compat else zero
        losses[at] = hit_loss * (1 if error.compat else one)
        z[at] = hit_delta * one
    else:
        losses, z[...] = pointwise(error.kind, a, target)
        if not error.compat and (one, zero) != (1, 1):
            boost = np.where(target != 0, a.dtype.type(one), a.dtype.type(zero))
            losses *= boost
            z *= boost
    if weights is not None:
        losses *= weights
        z *= weights
    if keep is not None:
        z *= dropout_derivative(layer, keep, z.dtype)
    activation_gradient(layer, z, active, total)
    return float(losses.sum(dtype=np.float64))


def sigmoid_error(error: Error, z: Floats, target: Target, weights: Floats | None) -> float:
    """The cross entropies over Sigmoid units, a = sigmoid(z); see `block_error`.

    CrossEntropy: loss -t log(a) - (1 - t) log(1 - a), delta a - t. The marginal ones: a zero counts if a > zeroTarget,
    loss -zeroScale log(1 - a), delta zeroScale a; a target other than zero counts if a < oneTarget, loss
    -oneScale v log(a), delta oneScale v (a - 1), where v is the target for DataScaledMarginalCrossEntropy, else 1.
    """
    if not isinstance(target, Entries):
        return _dense_sigmoid_error(error, z, target, weights)
    margin, at = error.margin, (target.rows, target.columns)
    hit_z = z[at]
    values = _values(error, target, z.dtype)
    negatives = _log_negatives(hit_z)
    if target.alone:
        loss, z[...] = 0.0, 0
    else:
        gate = _logit(margin.zero_target) if margin.zero_target > 0 else -np.inf
        closed = z <= gate if margin.zero_target > 0 else None
        loss = _open_loss(z, closed, weights)
        hit_open = hit_z > gate if margin.zero_target > 0 else np.ones(len(hit_z), bool)
        loss += float((negatives * hit_open * _at(weights, target)).sum(dtype=np.float64))
        sigmoid(z)
        if closed is not None:
            z[closed] = 0
        zero = margin.zero_scale * error.boost.zero
        loss *= zero if not error.compat else margin.zero_scale
        if zero != 1:
            z *= z.dtype.type(zero)
    ones = sigmoid(hit_z.copy())
    if error.kind is ErrorFunction.CROSS_ENTROPY:
        hits = -negatives - values * hit_z
        delta = ones - values
    else:
        counts = (ones < margin.one_target) * values * margin.one_scale
        hits = (-negatives - hit_z) * counts
        delta = (ones - 1) * counts
    loss += float((hits * _at(weights, target)).sum(dtype=np.float64)) * (1 if error.compat else error.boost.one)
    z[at] = delta * error.boost.one
    if weights is not None:
        z *= weights
    return loss


def softmax_error(
    error: Error, z: Floats, target: Target, normalizer: Floats, shares: Floats, weights: Floats | None
) -> float:
    """The cross entropies over SoftMax units; see `block_error`.

    `normalizer` (b, 1) is log sum exp of each example's sums over all blocks. `shares` (b, 1) is the sum of an
    example's targets, by which a is multiplied; entries without values count 1 / c each, c = entries of the example,
    so that their shares are 1 (0 for an example without entries, which has no loss). With a = exp(z - normalizer),
    CrossEntropy: loss -t log(a), delta shares a - t. With margins as in DSSTNE: an entry counts if a < oneTarget,
    loss -oneScale t log(a), delta shares a - oneScale t; a zero if a > zeroTarget, delta zeroScale shares a.
    """
    margin, gated = error.margin, error.kind in MARGINS
    z -= normalizer
    if not isinstance(target, Entries):
        wanted = target != 0
        a = np.exp(z)
        counts = wanted & (a < margin.one_target) if gated else wanted
        losses = z * target * counts * (1 if weights is None else weights)
        loss = -margin.one_scale * float(losses.sum(dtype=np.float64))
        zeros = (a > margin.zero_target) * margin.zero_scale if gated else 1
        a *= shares
        z[...] = np.where(wanted, (a - margin.one_scale * target) * (counts if gated else 1), a * zeros)
    else:
        at = (target.rows, target.columns)
        logs = z[at]  # not log(a), which would hide a divergence behind a floor
        a = np.exp(z, out=z)
        ones = a[at]
        gate = ones < margin.one_target if gated else np.ones(len(ones), bool)
        share = margin.one_scale * target.of(z.dtype)
        loss = -float((logs * share * gate * _at(weights, target)).sum(dtype=np.float64))
        if target.alone and (gated or error.compat):  # without gates the other units share in a SoftMax's loss
            a[...] = 0
        elif gated:
            a *= (a > margin.zero_target) * a.dtype.type(margin.zero_scale)
        a *= shares
        a[at] = (ones * shares[target.rows, 0] - share) * gate
    if weights is not None:
        z *= weights
    return loss


def softmax_part(z: Floats) -> tuple[Floats, Floats]:
    """Return the maximum of a block of sums z (b, n) and the sum of exp(z - maximum), both (b, 1)."""
    highest = z.max(axis=1, keepdims=True)
    part = z - highest
    return highest, np.exp(part, out=part).sum(axis=1, keepdims=True)


def softmax_normalizer(parts: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Return log sum exp over all blocks, (b, 1), from what `softmax_part` gave for each."""
    highest = np.max([part[0] for part in parts], axis=0)
    total = sum(part[1] * np.exp(part[0] - highest) for part in parts)
    return np.asarray(highest + np.log(total))


def _dense_sigmoid_error(error: Error, z: Floats, t: Floats, weights: Floats | None) -> float:
    negatives = _log_negatives(z.reshape(-1)).reshape(z.shape)
    if error.kind is ErrorFunction.CROSS_ENTROPY:
        losses = -negatives - t * z
        sigmoid(z)
        z -= t
        boost = np.where(t != 0, error.boost.one, error.boost.zero).astype(z.dtype)
        if not error.compat and (error.boost.one, error.boost.zero) != (1, 1):
            losses *= boost
            z *= boost
    else:
        margin = error.margin
        value = t if error.kind is ErrorFunction.DATA_MARGINAL else 1
        ones = (-negatives - z) * margin.one_scale * value
        a = sigmoid(z)
        one, zero = (t != 0) & ~(a >= margin.one_target), (t == 0) & ~(a <= margin.zero_target)  # NaN counts
        losses = np.where(one, ones, np.where(zero, -negatives * margin.zero_scale, 0))
        z[...] = np.where(one, (a - 1) * margin.one_scale * value, np.where(zero, a * margin.zero_scale, 0))
    if weights is not None:
        losses *= weights
        z *= weights
    return float(losses.sum(dtype=np.float64))


def _values(error: Error, target: Entries, dtype: Any) -> Floats:
    """Return what an entry counts: with CrossEntropy its target, with margins how much, see `sigmoid_error`."""
    if error.kind is ErrorFunction.MARGINAL or (error.kind is ErrorFunction.CROSS_ENTROPY and error.compat):
        return np.ones(len(target.rows), dtype)
    return target.of(dtype)


def _at(weights: Floats | None, target: Entries) -> Floats | float:
    return 1.0 if weights is None else weights[target.rows, 0]


def _logit(a: float) -> float:
    return float(np.log(a / (1 - a))) if a < 1 else np.inf


def _log_negatives(z: Floats) -> Floats:
    """Return log(1 - sigmoid(z)) = -log(1 + e^z)."""
    return np.asarray(-np.logaddexp(z, z.dtype.type(0)))


def _open_loss(z: Floats, closed: NDArray[np.bool_] | None, weights: Floats | None) -> float:
    """Return the sum of log(1 + e^z) over the units that are not closed."""
    tails = np.exp(-np.abs(z))  # log(1 + e^z) = max(z, 0) + log(1 + e^-|z|)
    tails += 1
    heads = np.maximum(z, 0)
    if closed is not None:
        tails[closed], heads[closed] = 1, 0
    if weights is not None:
        losses = (heads + np.log(tails)) * weights
        return float(losses.sum(dtype=np.float64))
    return float(heads.sum(dtype=np.float64)) + _log_of_products(tails)


def _log_of_products(factors: Floats) -> float:
    """Return the sum of the logarithms of factors (b, n) in [1, 2]; logarithms cost more than all else here."""
    flat = factors.reshape(-1)
    part = flat.size // 16
    product = flat[:part].copy()
    for n in range(1, 16):
        product *= flat[n * part : (n + 1) * part]
    return float(np.log(product).sum(dtype=np.float64) + np.log(flat[16 * part :]).sum(dtype=np.float64))
