"""Compiled loops of layers of maps: batch normalization and Max pooling.

Twins: `ops/batch_norm.py`, in the precision of arrays where sums are in float64 here; `ops/pooling.py`, which adds
gradients up in another order. Maps are row-contiguous. Of batch normalization they are (b, C, S), and `some` is a range
of channels, from the first to behind the last. Of pooling they are (n, D, H, W); `windows` has (kernel, stride, padding
before, dilation) of the three axes, and every window sees a value that is no padding.
"""

from __future__ import annotations

import numpy as np

from nnlib.compiled.compiler import compile_loop, compile_sums
from nnlib.util.arrays import Floats

Range = tuple[int, int]
Windows = tuple[tuple[int, int, int, int], ...]


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


@compile_loop
def max_pool(x: Floats, a: Floats, windows: Windows) -> None:
    """Write to `a` the largest value under each window; NaN is larger than any."""
    (deep, z_step, z_low, z_apart), (high, y_step, y_low, y_apart), (wide, x_step, x_low, x_apart) = windows
    for n in range(a.shape[0]):
        for z_out in range(a.shape[1]):
            for y_out in range(a.shape[2]):
                row = a[n, z_out, y_out]
                row[:] = -np.inf
                for z in range(z_out * z_step - z_low, z_out * z_step - z_low + deep * z_apart, z_apart):
                    if z < 0 or z >= x.shape[1]:
                        continue
                    for y in range(y_out * y_step - y_low, y_out * y_step - y_low + high * y_apart, y_apart):
                        if y < 0 or y >= x.shape[2]:
                            continue
                        seen = x[n, z, y]
                        for k in range(wide):
                            shift = k * x_apart - x_low
                            first = max(0, -(shift // x_step))
                            last = min(row.size, (seen.size - 1 - shift) // x_step + 1)
                            for x_out in range(first, last):
                                value = seen[x_out * x_step + shift]
                                row[x_out] = value if value > row[x_out] or value != value else row[x_out]


@compile_loop
def max_pool_gradient(x: Floats, below: Floats, a: Floats, delta: Floats, windows: Windows) -> None:
    """Write to `below` dLoss/dx: each delta = dLoss/da goes to the first value of its window that is equal to a."""
    (deep, z_step, z_low, z_apart), (high, y_step, y_low, y_apart), (wide, x_step, x_low, x_apart) = windows
    for n in range(a.shape[0]):
        below[n] = 0
        for z_out in range(a.shape[1]):
            for y_out in range(a.shape[2]):
                for x_out in range(a.shape[3]):
                    largest, found = a[n, z_out, y_out, x_out], False
                    for z in range(z_out * z_step - z_low, z_out * z_step - z_low + deep * z_apart, z_apart):
                        if found or z < 0 or z >= x.shape[1]:
                            continue
                        for y in range(y_out * y_step - y_low, y_out * y_step - y_low + high * y_apart, y_apart):
                            if found or y < 0 or y >= x.shape[2]:
                                continue
                            for k in range(wide):
                                at = x_out * x_step - x_low + k * x_apart
                                if 0 <= at < x.shape[3] and x[n, z, y, at] == largest:
                                    below[n, z, y, at] += delta[n, z_out, y_out, x_out]
                                    found = True
                                    break
