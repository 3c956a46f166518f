"""Batch normalization of the sums of a layer (Ioffe and Szegedy 2015), one scale and bias a unit.

Shapes: b examples, n units. In training the statistics are those of the batch; running averages of them, each new
batch with weight 0.1, are kept for prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nnlib.util.arrays import Floats

EPSILON = 1e-5
NEWEST = 0.1  # weight of the newest batch in the running averages


@dataclass(frozen=True, slots=True, eq=False)
class BatchNorm:
    """Parameters and running statistics of a layer's batch normalization, each (units,)."""

    scale: Floats
    bias: Floats
    mean: Floats
    variance: Floats

    @staticmethod
    def start(units: int, dtype: Any = np.float32) -> BatchNorm:
        """Return scale 1, bias 0, and the statistics of a layer that has seen nothing."""
        return BatchNorm(np.ones(units, dtype), np.zeros(units, dtype), np.zeros(units, dtype), np.ones(units, dtype))

    def copy(self) -> BatchNorm:
        """Return a copy with arrays of its own."""
        return BatchNorm(self.scale.copy(), self.bias.copy(), self.mean.copy(), self.variance.copy())


@dataclass(frozen=True, slots=True, eq=False)
class Normed:
    """What the backward pass needs: the normalized sums (b, n) and 1 / standard deviation (n,)."""

    normal: Floats
    inverse: Floats


def forward(norm: BatchNorm, z: Floats) -> tuple[Normed, Floats]:
    """Return what the backward pass needs, and the normalized, scaled and shifted sums; z is overwritten."""
    mean, variance = z.mean(axis=0), z.var(axis=0)
    z -= mean
    inverse = 1 / np.sqrt(variance + z.dtype.type(EPSILON))
    z *= inverse
    unbiased = variance * (len(z) / max(1, len(z) - 1))
    for running, newest in ((norm.mean, mean), (norm.variance, unbiased)):
        running *= 1 - NEWEST
        running += NEWEST * newest
    return Normed(z, inverse), z * norm.scale + norm.bias


def inference(norm: BatchNorm, z: Floats) -> Floats:
    """Normalize z by the running averages, in place, and return it."""
    z -= norm.mean
    z *= norm.scale / np.sqrt(norm.variance + z.dtype.type(EPSILON))
    z += norm.bias
    return z


def backward(norm: BatchNorm, normed: Normed, delta: Floats) -> tuple[Floats, Floats, Floats]:
    """Return dLoss/dz, and the gradients of scale and bias, from delta = dLoss/d(normalized sums)."""
    scale_gradient, bias_gradient = (delta * normed.normal).sum(axis=0), delta.sum(axis=0)
    b = delta.dtype.type(len(delta))
    below = delta - bias_gradient / b
    below -= normed.normal * (scale_gradient / b)
    below *= norm.scale * normed.inverse
    return below, scale_gradient, bias_gradient


def inference_backward(norm: BatchNorm, delta: Floats) -> Floats:
    """Return dLoss/dz from delta = dLoss/d(what `inference` gave), in place."""
    delta *= norm.scale / np.sqrt(norm.variance + delta.dtype.type(EPSILON))
    return delta
