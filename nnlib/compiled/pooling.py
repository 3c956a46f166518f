"""Compiled loops of Max pooling. NumPy twin: `ops/pooling.py`, which adds gradients up in another order.

Maps are (n, D, H, W), row-contiguous; `windows` has (kernel, stride, padding before, dilation) of the three axes, and
every window sees a value that is no padding.
"""

from __future__ import annotations

import numpy as np

from nnlib.compiled.compiler import compile_loop
from nnlib.util.arrays import Floats

Windows = tuple[tuple[int, int, int, int], ...]


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
