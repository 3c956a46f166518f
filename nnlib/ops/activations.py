"""What units make of their weighted sums, what dropout makes of that, and the derivatives of both.

Shapes: b examples, n units. Every function keeps the dtype of its arrays (float32, or float64 in tests). Derivatives
are in terms of a = f(z), so that the sums z need not be kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.spec.types import Activation, Layer, LayerKind
from nnlib.util.arrays import Floats

ROWWISE = (Activation.SOFTMAX, Activation.RELU_MAX, Activation.LINEAR_MAX)  # a unit depends on its whole layer
SMALLEST_SUM = 1e-30  # divisor of RELUMax and LinearMax when all of a layer is zero
SIGMOID_DROPPED = 0.5  # what a dropped sigmoid unit gives, as in DSSTNE; others give 0


def activate(layer: Layer, z: Floats) -> Floats:
    """Turn z (b, n) into a = f(z), in place, and return it.

    Sigmoid 1 / (1 + e^-z); Tanh; Linear z; Relu max(0, z); LeakyRectifiedLinear max(z, slope z); ELU z > 0: z, else
    alpha (e^z - 1); SELU lambda times that; SoftPlus ln(1 + e^z); SoftSign z / (1 + |z|); SoftMax e^z / sum e^z.
    Relu6, which DSSTNE does not have, min(6, max(0, z)).
    DSSTNE names RELUMax and LinearMax without a definition; here they are max(0, z) / sum max(0, z) and z / sum |z|.
    """
    kind = layer.activation
    if kind is Activation.SIGMOID:
        return sigmoid(z)
    if kind is Activation.TANH:
        np.tanh(z, out=z)
    elif kind is Activation.RELU:
        np.maximum(z, 0, out=z)
    elif kind is Activation.RELU6:
        np.clip(z, 0, 6, out=z)
    elif kind is Activation.LEAKY_RELU:
        np.maximum(z, z * z.dtype.type(layer.slope), out=z)
    elif kind in (Activation.ELU, Activation.SELU):
        below = np.expm1(np.minimum(z, 0))
        below *= layer.alpha
        np.copyto(z, below, where=z <= 0)
        if kind is Activation.SELU:
            z *= layer.selu_lambda
    elif kind is Activation.SOFTPLUS:
        np.logaddexp(z, z.dtype.type(0), out=z)
    elif kind is Activation.SOFTSIGN:
        z /= 1 + np.abs(z)
    elif kind is Activation.SOFTMAX:
        softmax(z)
    elif kind in (Activation.RELU_MAX, Activation.LINEAR_MAX):
        z /= rowwise_sum(layer, z)
        if kind is Activation.RELU_MAX:
            np.maximum(z, 0, out=z)
    return z


def sigmoid(z: Floats) -> Floats:
    """Turn z into 1 / (1 + e^-z), in place, and return it."""
    np.negative(z, out=z)
    np.exp(z, out=z)
    z += 1
    np.reciprocal(z, out=z)
    return z


def softmax(z: Floats) -> Floats:
    """Turn each row of z (b, n) into e^z / sum e^z, in place, and return it."""
    z -= z.max(axis=1, keepdims=True)
    np.exp(z, out=z)
    z /= z.sum(axis=1, keepdims=True)
    return z


def rowwise_sum(layer: Layer, z: Floats) -> Floats:
    """Return what RELUMax or LinearMax divide the sums z by, (b, 1)."""
    parts = np.maximum(z, 0) if layer.activation is Activation.RELU_MAX else np.abs(z)
    return np.asarray(np.maximum(parts.sum(axis=1, keepdims=True), SMALLEST_SUM))


def derivative(layer: Layer, a: Floats) -> Floats | None:
    """Return f'(z) in terms of a = f(z) for a unit by itself, None for 1 everywhere; not for ROWWISE ones."""
    kind, alpha = layer.activation, layer.alpha
    if kind is Activation.SIGMOID:
        return np.asarray(a * (1 - a))
    if kind is Activation.TANH:
        return np.asarray(1 - a * a)
    if kind is Activation.RELU:
        return (a > 0).astype(a.dtype)
    if kind is Activation.RELU6:
        return ((a > 0) & (a < 6)).astype(a.dtype)
    if kind is Activation.LEAKY_RELU:
        return np.asarray(np.where(a > 0, a.dtype.type(1), a.dtype.type(layer.slope)))
    if kind is Activation.ELU:
        return np.asarray(np.where(a > 0, a.dtype.type(1), a + a.dtype.type(alpha)))
    if kind is Activation.SELU:
        scale = a.dtype.type(layer.selu_lambda)
        return np.asarray(np.where(a > 0, scale, a + scale * a.dtype.type(alpha)))
    if kind is Activation.SOFTPLUS:
        return np.asarray(-np.expm1(-a))
    if kind is Activation.SOFTSIGN:
        return np.asarray((1 - np.abs(a)) ** 2)
    return None


def activation_gradient(layer: Layer, delta: Floats, a: Floats, total: Floats | None = None) -> Floats:
    """Turn delta = dLoss/da into dLoss/dz, in place where it can be; `total` is `rowwise_sum` of the sums z.

    For SoftMax, dLoss/dz_j = a_j (delta_j - sum_k delta_k a_k).
    """
    kind = layer.activation
    if kind is Activation.SOFTMAX:
        delta -= (delta * a).sum(axis=1, keepdims=True)
        delta *= a
    elif kind in (Activation.RELU_MAX, Activation.LINEAR_MAX):
        assert total is not None, "the caller keeps the sums of these"
        mean = (delta * a).sum(axis=1, keepdims=True)
        if kind is Activation.RELU_MAX:
            delta -= mean
            delta *= a > 0
        else:
            delta -= mean * np.sign(a)
        delta /= total
        delta *= total > SMALLEST_SUM  # a layer of zeros stays one
    else:
        factor = derivative(layer, a)
        if factor is not None:
            delta *= factor
    return delta


def apply_dropout(layer: Layer, a: Floats, keep: NDArray[np.bool_]) -> Floats:
    """Return a after dropout: kept units are scaled by 1 / (1 - p), dropped ones give 0.

    Sigmoid units are not scaled and give 0.5 when dropped, as in DSSTNE. ELU and SELU units give their lowest value
    and all are scaled and shifted so that mean and variance stay (alpha dropout; Klambauer et al. 2017, section 2).
    """
    scale, shift, value = dropout_constants(layer)
    result: Floats = np.where(keep, a, a.dtype.type(value))
    if scale != 1:
        result *= a.dtype.type(scale)
    if shift:
        result += a.dtype.type(shift)
    return result


def dropout_derivative(layer: Layer, keep: NDArray[np.bool_], dtype: Any) -> Floats:
    """Return the derivative of `apply_dropout` with respect to a, (b, n)."""
    result: Floats = keep * dtype.type(dropout_constants(layer)[0])
    return result


def unmasked_gradient(layer: Layer, delta: Floats, out: Floats) -> Floats:
    """DSSTNE's backward pass of dropout, which knows only what the units gave after it: `out`."""
    if layer.activation is Activation.TANH:
        scale = 1 / (1 - layer.dropout)
        delta *= scale * (1 - (out / scale) ** 2)
        return delta
    factor = derivative(layer, out)
    return delta if factor is None else delta * factor


def dropout_constants(layer: Layer) -> tuple[float, float, float]:
    """Return (scale, shift, value of a dropped unit before both)."""
    p, q = layer.dropout, 1 - layer.dropout
    if layer.kind is LayerKind.INPUT:
        return 1 / q, 0.0, 0.0
    if layer.activation is Activation.SIGMOID:
        return 1.0, 0.0, SIGMOID_DROPPED
    if layer.activation in (Activation.ELU, Activation.SELU):
        low = -layer.alpha * (layer.selu_lambda if layer.activation is Activation.SELU else 1.0)
        scale = (q + low * low * p * q) ** -0.5
        return scale, -scale * p * low, low
    return 1 / q, 0.0, 0.0
