"""The mathematics of single operations, as pure NumPy functions: initial weights, activations, errors.

Shapes: b examples, n units. Every function keeps the dtype of its arrays (float32, or float64 in tests).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.architecture import Activation, ErrorFunction, Marginal, NetworkSpec, Scheme, WeightInit

Floats = NDArray[Any]  # float32, in tests float64

LOG_FLOOR = 1e-12  # log(max(LOG_FLOOR, a)), as in DSSTNE
SIGMOID_DROPPED = 0.5  # what a dropped sigmoid unit gives, as in DSSTNE; others give 0


def initial_weights(init: WeightInit, shape: tuple[int, int], random: np.random.Generator) -> NDArray[np.float32]:
    """Return weights of `shape` (in, out) for a scheme of DSSTNE, with S = Scale.

    Xavier: uniform in +-S sqrt(6 / (in + out)), as Glorot and Bengio (2010) have it; CaffeXavier: uniform in
    +-S sqrt(3 / out); Uniform: uniform in +-S; Gaussian: S times a standard normal; UnitBall: uniform in
    (0, S]; Constant: S.
    """
    inputs, outputs = shape
    scale = np.float32(init.scale)
    if init.scheme is Scheme.CONSTANT:
        return np.full(shape, scale)
    if init.scheme is Scheme.GAUSSIAN:
        return scale * random.standard_normal(shape, dtype=np.float32)
    uniform = random.random(shape, dtype=np.float32)  # in [0, 1)
    if init.scheme is Scheme.UNIT_BALL:
        return scale * (1 - uniform)
    span = {
        Scheme.XAVIER: np.sqrt(6 / (inputs + outputs)),
        Scheme.CAFFE_XAVIER: np.sqrt(3 / outputs),
        Scheme.UNIFORM: 1.0,
    }[init.scheme]
    uniform = 2 * uniform - 1
    uniform *= scale * np.float32(span)
    return uniform


def activate(kind: Activation, z: Floats) -> Floats:
    """Turn z into f(z), in place, and return it. SoftMax has its own path, see `softmax_normalizer`."""
    if kind is Activation.SIGMOID:
        np.negative(z, out=z)
        np.exp(z, out=z)
        z += 1
        np.reciprocal(z, out=z)
    elif kind is Activation.TANH:
        np.tanh(z, out=z)
    elif kind is Activation.RELU:
        np.maximum(z, 0, out=z)
    return z


def derivative(kind: Activation, a: Floats) -> Floats:
    """Return f'(z) in terms of a = f(z)."""
    if kind is Activation.SIGMOID:
        return np.asarray(a * (1 - a))
    if kind is Activation.TANH:
        return np.asarray(1 - a * a)
    if kind is Activation.RELU:
        return (a > 0).astype(a.dtype)
    return np.ones(a.shape, a.dtype)


def dropped(kind: Activation, a: Floats, keep: NDArray[np.bool_], p: float) -> Floats:
    """Return a after dropout with probability p: kept units are scaled by 1 / (1 - p), dropped ones give 0.

    Sigmoid units are not scaled and give 0.5 when dropped, as in DSSTNE.
    """
    if kind is Activation.SIGMOID:
        return np.where(keep, a, a.dtype.type(SIGMOID_DROPPED))
    scale: Floats = keep * a.dtype.type(1 / (1 - p))
    return a * scale


def dropped_derivative(kind: Activation, keep: NDArray[np.bool_], p: float, dtype: Any) -> Floats:
    """Return the derivative of `dropped` with respect to a."""
    result: Floats = keep * dtype.type(1 if kind is Activation.SIGMOID else 1 / (1 - p))
    return result


@dataclass(frozen=True, slots=True)
class Hits:
    """Where the target is one in a block of items: unit `columns[i]` of example `rows[i]`."""

    rows: NDArray[np.integer]
    columns: NDArray[np.integer]


def marginal_of(spec: NetworkSpec) -> Marginal:
    """Return the margins of the error function; CrossEntropy is the marginal one with open gates."""
    if spec.error is ErrorFunction.CROSS_ENTROPY:
        return Marginal(one_target=1.0, zero_target=0.0, one_scale=1.0, zero_scale=1.0)
    return spec.marginal


def sigmoid_error(z: Floats, hits: Hits, margin: Marginal) -> float:
    """Return the loss of a block, summed, and overwrite the logits z (b, n) with delta = dLoss/dz.

    With a = sigmoid(z): a zero counts if a > zeroTarget, loss -zeroScale log(1 - a), delta zeroScale a; a one
    counts if a < oneTarget, loss -oneScale log(a), delta oneScale (a - 1). All units are first taken for zeros,
    then the ones are put right, so that the target is never made dense.
    """
    a = activate(Activation.SIGMOID, z)
    ones = a[hits.rows, hits.columns]
    if margin.zero_target > 0:
        np.multiply(a, a > margin.zero_target, out=a)
    loss = -margin.zero_scale * (_log_sum(1 - a) - float(_log(1 - a[hits.rows, hits.columns]).sum()))
    gate = ones < margin.one_target
    loss -= margin.one_scale * float((_log(ones) * gate).sum())
    if margin.zero_scale != 1:
        a *= a.dtype.type(margin.zero_scale)
    a[hits.rows, hits.columns] = margin.one_scale * (ones - 1) * gate
    return loss


def softmax_error(z: Floats, normalizer: Floats, hits: Hits, counts: Floats, margin: Marginal) -> float:
    """Return the loss of a block, summed, and overwrite the logits z (b, n) with delta = dLoss/dz.

    `normalizer` (b, 1) is log sum exp of each example's logits over all blocks, `counts` (b, 1) its number of
    ones c; an example without ones has no loss. With a = exp(z - normalizer), a one counts if a < oneTarget:
    loss -(oneScale / c) log(a), delta a - oneScale / c; a zero if a > zeroTarget: delta zeroScale a.
    """
    z -= normalizer
    logs = z[hits.rows, hits.columns]  # not log(a), which would hide a divergence behind a floor
    a = np.exp(z, out=z)
    a *= counts > 0
    ones = a[hits.rows, hits.columns]
    share = margin.one_scale / counts[hits.rows, 0]
    gate = ones < margin.one_target
    loss = -float((logs * share * gate).sum())
    if margin.zero_target > 0:
        np.multiply(a, a > margin.zero_target, out=a)
    if margin.zero_scale != 1:
        a *= a.dtype.type(margin.zero_scale)
    a[hits.rows, hits.columns] = (ones - share) * gate
    return loss


def softmax_part(z: Floats) -> tuple[Floats, Floats]:
    """Return the maximum of a block of logits z (b, n) and the sum of exp(z - maximum), both (b, 1)."""
    highest = z.max(axis=1, keepdims=True)
    part = z - highest
    return highest, np.exp(part, out=part).sum(axis=1, keepdims=True)


def softmax_normalizer(parts: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Return log sum exp over all blocks, (b, 1), from what `softmax_part` gave for each."""
    highest = np.max([part[0] for part in parts], axis=0)
    total = sum(part[1] * np.exp(part[0] - highest) for part in parts)
    return np.asarray(highest + np.log(total))


def _log(a: Floats) -> Floats:
    a = np.maximum(a, LOG_FLOOR)
    return np.log(a, out=a)


def _log_sum(a: Floats) -> float:
    """Return the sum of log(max(LOG_FLOOR, a)), a (b, n) in [0, 1], overwriting a.

    Logarithms cost more than all else here, so they are taken of products of three, at least 1e-36 each.
    """
    np.maximum(a, LOG_FLOOR, out=a)
    third = a.shape[1] // 3
    product = a[:, :third] * a[:, third : 2 * third]
    product *= a[:, 2 * third : 3 * third]
    return float(np.log(product, out=product).sum() + np.log(a[:, 3 * third :]).sum())
