"""Batch normalization of maps on the processors of this machine; `ops/batch_norm.py` has the formulas.

Channels are independent of each other, so pieces are some channels of all examples.
"""

from __future__ import annotations

import numpy as np

from nnlib.compiled.select import LOOPS
from nnlib.ops import batch_norm
from nnlib.ops.batch_norm import EPSILON, BatchNorm, Normed
from nnlib.util.arrays import Floats


def normalize(norm: BatchNorm, z: Floats, channels: slice, inverse: Floats, out: Floats) -> None:
    """Normalize some channels of z (b, C, S), row-contiguous, in place; write to `inverse` (C,) and `out` (b, C, S).

    These are 1 / standard deviation, and what is normalized, scaled and shifted; running averages take part in `norm`.
    """
    part = norm.part(channels)
    if LOOPS is None:
        found, out[:, channels] = batch_norm.forward(part, z[:, channels])
        inverse[channels] = found.inverse
        return
    mean, variance = np.empty_like(inverse), np.empty_like(inverse)
    some = channels.start, channels.stop
    LOOPS.normalize_maps(z, norm.scale, norm.bias, EPSILON, some, (mean, variance, inverse), out)
    batch_norm.remember(part, mean[channels], variance[channels], z.size // z.shape[1])


def normalize_back(
    norm: BatchNorm, normed: Normed, delta: Floats, channels: slice, scale: Floats, bias: Floats
) -> None:
    """Turn some channels of delta = dLoss/d(normalized sums) (b, C, S), row-contiguous, into dLoss/dz, in place.

    The gradients of scale and bias are written to arrays (C,).
    """
    if LOOPS is None:
        part = Normed(normed.normal[:, channels], normed.inverse[channels])
        found = batch_norm.backward(norm.part(channels), part, delta[:, channels])
        delta[:, channels], scale[channels], bias[channels] = found
        return
    factor, some = norm.scale * normed.inverse, (channels.start, channels.stop)
    LOOPS.normalize_maps_back(delta, normed.normal, factor, some, (scale, bias))
