"""Batch normalization of the sums of a layer (Ioffe and Szegedy 2015), one scale and bias a unit, or a map.

Shapes: b examples, n units; for maps (b, C, S), C maps of S places, whose statistics are over examples and places, and
`n` below is C. In training the statistics are those of the batch; running averages of them, each new batch with weight
0.1, are kept for prediction.
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
    """Parameters and running statistics of a layer's batch normalization, each (n,)."""

    scale: Floats
    bias: Floats
    mean: Floats
    variance: Floats

    def part(self, some: slice) -> BatchNorm:
        """Return some of the units or maps, as views."""
        return BatchNorm(*(array[some] for array in (self.scale, self.bias, self.mean, self.variance)))

    @staticmethod
    def start(units: int, dtype: Any = np.float32) -> BatchNorm:
        """Return scale 1, bias 0, and the statistics of a layer that has seen nothing."""
        return BatchNorm(np.ones(units, dtype), np.zeros(units, dtype), np.zeros(units, dtype), np.ones(units, dtype))

    def copy(self) -> BatchNorm:
        """Return a copy with arrays of its own."""
        return BatchNorm(self.scale.copy(), self.bias.copy(), self.mean.copy(), self.variance.copy())


@dataclass(frozen=True, slots=True, eq=False)
class Normed:
    """What the backward pass needs: the normalized sums, and 1 / standard deviation (n,)."""

    normal: Floats
    inverse: Floats


def forward(norm: BatchNorm, z: Floats) -> tuple[Normed, Floats]:
    """Return what the backward pass needs, and the normalized, scaled and shifted sums; z is overwritten."""
    over = _axes(z)
    mean = z.mean(axis=over)
    z -= _wide(mean, z)
    variance = np.square(z).mean(axis=over)
    inverse = 1 / np.sqrt(variance + z.dtype.type(EPSILON))
    z *= _wide(inverse, z)
    remember(norm, mean, variance, z.size // z.shape[1])
    out = z * _wide(norm.scale, z)
    out += _wide(norm.bias, z)
    return Normed(z, inverse), out


def remember(norm: BatchNorm, mean: Floats, variance: Floats, seen: int) -> None:
    """Take a batch's statistics, each of so many numbers, into the running averages."""
    unbiased = variance * (seen / max(1, seen - 1))
    for running, newest in ((norm.mean, mean), (norm.variance, unbiased)):
        running *= 1 - NEWEST
        running += NEWEST * newest


def inference(norm: BatchNorm, z: Floats) -> Floats:
    """Normalize z by the running averages, in place, and return it."""
    z -= _wide(norm.mean, z)
    z *= _wide(norm.scale / np.sqrt(norm.variance + z.dtype.type(EPSILON)), z)
    z += _wide(norm.bias, z)
    return z


def backward(norm: BatchNorm, normed: Normed, delta: Floats) -> tuple[Floats, Floats, Floats]:
    """Return dLoss/dz, and the gradients of scale and bias, from delta = dLoss/d(normalized sums)."""
    over = _axes(delta)
    scale_gradient, bias_gradient = (delta * normed.normal).sum(axis=over), delta.sum(axis=over)
    seen = delta.dtype.type(delta.size // delta.shape[1])
    below = delta - _wide(bias_gradient / seen, delta)
    below -= normed.normal * _wide(scale_gradient / seen, delta)
    below *= _wide(norm.scale * normed.inverse, delta)
    return below, scale_gradient, bias_gradient


def inference_backward(norm: BatchNorm, delta: Floats) -> Floats:
    """Return dLoss/dz from delta = dLoss/d(what `inference` gave), in place."""
    delta *= _wide(norm.scale / np.sqrt(norm.variance + delta.dtype.type(EPSILON)), delta)
    return delta


def _axes(z: Floats) -> tuple[int, ...]:
    """Return what statistics are over: examples, and places of maps."""
    return (0, 2)[: z.ndim - 1]


def _wide(array: Floats, z: Floats) -> Floats:
    """Return an array (n,) so that it meets the units or maps of z."""
    return array if z.ndim == 2 else array[:, None]
