"""Compiled batch normalization of maps, with sums in float64. Twin: `ops/batch_norm.py`, in the precision of arrays.

Maps are (b, C, S), row-contiguous; `some` is a range of channels, from the first to behind the last.
"""

from __future__ import annotations

import numpy as np

from nnlib.compiled.compiler import compile_loop, compile_sums
from nnlib.util.arrays import Floats

Range = tuple[int, int]


@compile_loop
def measure_maps(z: Floats, some: Range, mean: Floats, squares: Floats) -> None:
    """Write the mean of each channel, and the sum of the squares of the distances from it."""
    for channel in range(some[0], some[1]):
        _measure(z, channel, mean, squares)


@compile_loop
def normalize_maps(
    z: Floats, statistics: tuple[Floats, Floats], parameters: tuple[Floats, Floats], some: Range, out: Floats
) -> None:
    """Normalize z in place by mean and 1 / standard deviation, and write to `out` that times scale plus bias."""
    mean, inverse = statistics
    scale, bias = parameters
    for channel in range(some[0], some[1]):
        centre, factor, wide, shift = mean[channel], inverse[channel], scale[channel], bias[channel]
        for n in range(z.shape[0]):
            row, target = z[n, channel], out[n, channel]
            for s in range(row.size):
                normal = (row[s] - centre) * factor
                row[s] = normal
                target[s] = normal * wide + shift


@compile_sums
def _measure(z: Floats, channel: int, mean: Floats, squares: Floats) -> None:
    seen = z.shape[0] * z.shape[2]
    total = 0.0
    for n in range(z.shape[0]):
        row = z[n, channel]
        for s in range(row.size):
            total += np.float64(row[s])
    mean[channel] = total / seen
    centre, total = mean[channel], 0.0
    for n in range(z.shape[0]):
        row = z[n, channel]
        for s in range(row.size):
            total += np.float64((row[s] - centre) * (row[s] - centre))
    squares[channel] = total


@compile_loop
def sum_maps_back(delta: Floats, normal: Floats, some: Range, scale: Floats, bias: Floats) -> None:
    """Write the gradients of scale and bias, from delta = dLoss/d(normalized sums)."""
    for channel in range(some[0], some[1]):
        _correlate(delta, normal, channel, scale, bias)


@compile_loop
def normalize_maps_back(
    delta: Floats, normal: Floats, factor: Floats, some: Range, gradients: tuple[Floats, Floats], count: int
) -> None:
    """Turn delta into dLoss/dz, in place, by the gradients of scale and bias over `count` numbers of each channel.

    `factor` is scale times 1 / standard deviation.
    """
    scale, bias = gradients
    seen = delta.dtype.type(count)
    for channel in range(some[0], some[1]):
        shift, slope, wide = bias[channel] / seen, scale[channel] / seen, factor[channel]
        for n in range(delta.shape[0]):
            row, met = delta[n, channel], normal[n, channel]
            for s in range(row.size):
                row[s] = (row[s] - shift - met[s] * slope) * wide


@compile_sums
def _correlate(delta: Floats, normal: Floats, channel: int, scale: Floats, bias: Floats) -> None:
    product, total = 0.0, 0.0
    for n in range(delta.shape[0]):
        row, met = delta[n, channel], normal[n, channel]
        for s in range(row.size):
            product += np.float64(row[s] * met[s])
            total += np.float64(row[s])
    scale[channel], bias[channel] = product, total
