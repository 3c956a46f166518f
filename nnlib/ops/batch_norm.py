"""Batch normalization of the sums of a layer (Ioffe and Szegedy 2015), one scale and bias a unit, or a map.

Shapes: b examples, n units; for maps (b, C, S), C maps of S places, whose statistics are over examples and places, and
`n` below is C. In training the statistics are those of the batch; running averages of them, each new batch with weight
0.1, are kept for prediction.

Of a batch that is cut, parts have means and sums of squares of the distances from them, which are merged: sums of
squares of the numbers themselves would lose the variance where the mean is far from 0.
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


@dataclass(slots=True, eq=False)
class Moments:
    """Of `count` numbers of each unit their mean, and the sum of the squares of their distances from it, each (n,)."""

    count: int
    mean: Floats
    squares: Floats

    @staticmethod
    def of_nothing(units: int, dtype: Any) -> Moments:
        """Return those of no numbers at all."""
        return Moments(0, np.zeros(units, dtype), np.zeros(units, dtype))

    def __iadd__(self, other: Moments) -> Moments:
        """Take in those of other numbers (Chan, Golub and LeVeque 1979)."""
        count = self.count + other.count
        if count:
            apart, share = other.mean - self.mean, other.count / count
            self.mean += apart * share
            self.squares += other.squares + apart * apart * (self.count * share)
        self.count = count
        return self


def moments_of(z: Floats) -> Moments:
    """Return the moments of sums, (n,)."""
    mean = z.mean(axis=_axes(z))
    apart = z - _wide(mean, z)
    return Moments(z.size // z.shape[1], mean, np.square(apart, out=apart).sum(axis=_axes(z)))


def forward(norm: BatchNorm, z: Floats) -> tuple[Normed, Floats]:
    """Return what the backward pass needs, and the normalized, scaled and shifted sums; z is overwritten."""
    found = moments_of(z)
    inverse = remember(norm, found)
    return Normed(z, inverse), normalize(norm, z, found.mean, inverse)


def remember(norm: BatchNorm, batch: Moments) -> Floats:
    """Take a batch's statistics into the running averages, and return 1 / standard deviation (n,)."""
    variance = batch.squares / batch.count
    unbiased = variance * (batch.count / max(1, batch.count - 1))
    for running, newest in ((norm.mean, batch.mean), (norm.variance, unbiased)):
        running *= 1 - NEWEST
        running += NEWEST * newest
    return np.asarray(1 / np.sqrt(variance + variance.dtype.type(EPSILON)))


def normalize(norm: BatchNorm, z: Floats, mean: Floats, inverse: Floats) -> Floats:
    """Normalize z in place by a mean and 1 / standard deviation (n,); return it scaled and shifted."""
    z -= _wide(mean, z)
    z *= _wide(inverse, z)
    out = z * _wide(norm.scale, z)
    out += _wide(norm.bias, z)
    return out


def inference(norm: BatchNorm, z: Floats) -> Floats:
    """Normalize z by the running averages, in place, and return it."""
    z -= _wide(norm.mean, z)
    z *= _wide(norm.scale / np.sqrt(norm.variance + z.dtype.type(EPSILON)), z)
    z += _wide(norm.bias, z)
    return z


def backward(norm: BatchNorm, normed: Normed, delta: Floats) -> tuple[Floats, Floats, Floats]:
    """Return dLoss/dz, and the gradients of scale and bias, from delta = dLoss/d(normalized sums)."""
    scale, bias = sums_of(normed, delta)
    return normalize_back(norm, normed, delta, scale, bias, delta.size // delta.shape[1]), scale, bias


def sums_of(normed: Normed, delta: Floats) -> tuple[Floats, Floats]:
    """Return the gradients of scale and bias, (n,), or the part in them of some examples."""
    over = _axes(delta)
    return (delta * normed.normal).sum(axis=over), delta.sum(axis=over)


def normalize_back(norm: BatchNorm, normed: Normed, delta: Floats, scale: Floats, bias: Floats, count: int) -> Floats:
    """Return dLoss/dz from the gradients of scale and bias over the whole batch, of `count` numbers of each unit."""
    seen = delta.dtype.type(count)
    below = delta - _wide(bias / seen, delta)
    below -= normed.normal * _wide(scale / seen, delta)
    below *= _wide(norm.scale * normed.inverse, delta)
    return below


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
