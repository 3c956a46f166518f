"""Batch normalization of maps on the processors of this machine; `ops/batch_norm.py` has the formulas.

Channels are independent of each other, so pieces are some channels of all examples. Arrays of maps are (b, C, S),
row-contiguous, those of statistics and gradients (C,), of which the pieces' part is written.
"""

from __future__ import annotations

from nnlib.compiled.select import LOOPS
from nnlib.ops import batch_norm
from nnlib.ops.batch_norm import BatchNorm, Moments, Normed
from nnlib.util.arrays import Floats


def normalize(norm: BatchNorm, z: Floats, channels: slice, inverse: Floats, out: Floats) -> None:
    """See `batch_norm.forward`: z in place, and the rest into `inverse` (C,) and `out` (b, C, S)."""
    found = Moments.of_nothing(z.shape[1], z.dtype)
    measure(z, channels, found)
    part = Moments(z.size // z.shape[1], found.mean[channels], found.squares[channels])
    inverse[channels] = batch_norm.remember(norm.part(channels), part)
    normalize_by(norm, z, channels, found.mean, inverse, out)


def measure(z: Floats, channels: slice, found: Moments) -> None:
    """See `batch_norm.moments_of`; of `found` the mean and the squares are written."""
    if LOOPS is None:
        part = batch_norm.moments_of(z[:, channels])
        found.mean[channels], found.squares[channels] = part.mean, part.squares
    else:
        LOOPS.measure_maps(z, (channels.start, channels.stop), found.mean, found.squares)


def normalize_by(norm: BatchNorm, z: Floats, channels: slice, mean: Floats, inverse: Floats, out: Floats) -> None:
    """See `batch_norm.normalize`: z in place, and what it returns into `out` (b, C, S)."""
    if LOOPS is None:
        out[:, channels] = batch_norm.normalize(norm.part(channels), z[:, channels], mean[channels], inverse[channels])
    else:
        some = channels.start, channels.stop
        LOOPS.normalize_maps(z, (mean, inverse), (norm.scale, norm.bias), some, out)


def normalize_back(
    norm: BatchNorm, normed: Normed, delta: Floats, channels: slice, scale: Floats, bias: Floats
) -> None:
    """See `batch_norm.backward`: delta in place, and the gradients of scale and bias, (C,)."""
    sum_back(normed, delta, channels, scale, bias)
    normalize_back_by(norm, normed, delta, channels, (scale, bias), delta.size // delta.shape[1])


def sum_back(normed: Normed, delta: Floats, channels: slice, scale: Floats, bias: Floats) -> None:
    """See `batch_norm.sums_of`."""
    if LOOPS is None:
        part = Normed(normed.normal[:, channels], normed.inverse[channels])
        scale[channels], bias[channels] = batch_norm.sums_of(part, delta[:, channels])
    else:
        LOOPS.sum_maps_back(delta, normed.normal, (channels.start, channels.stop), scale, bias)


def normalize_back_by(
    norm: BatchNorm, normed: Normed, delta: Floats, channels: slice, gradients: tuple[Floats, Floats], count: int
) -> None:
    """See `batch_norm.normalize_back`: delta in place, by the gradients of scale and bias over the whole batch."""
    if LOOPS is None:
        part = Normed(normed.normal[:, channels], normed.inverse[channels])
        scale, bias = (gradient[channels] for gradient in gradients)
        own, given = norm.part(channels), delta[:, channels]
        delta[:, channels] = batch_norm.normalize_back(own, part, given, scale, bias, count)
    else:
        factor, some = norm.scale * normed.inverse, (channels.start, channels.stop)
        LOOPS.normalize_maps_back(delta, normed.normal, factor, some, gradients, count)
