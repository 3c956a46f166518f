"""Convolution of maps with a kernel, and its gradients: the reference of cpu/convolution.py and of the kernels.

Shapes: b examples; g groups of channels, each with c source and o target channels; v places of the kernel; S places of
a source map and P of a target map, on one to three axes. With x padded by zeros,

    z[n, o, p] = sum over c, k of w[o, c, k] x[n, c, p * stride + k * dilation - low]

on each axis (what everybody calls a convolution is a correlation: the kernel is not turned around). Weights are
(g o, c v), the row of a target channel [c][kz][ky][kx]. What is computed by all three functions is x unfolded,
u[n, c k, p] = x[n, c, p * stride + k * dilation - low], of which z is w u; the gradient of w is delta u^T summed over
n, and that of x is w^T delta folded back: added up wherever x went.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from nnlib.spec.geometry import Sweep, Window
from nnlib.util.arrays import Floats


def forward(x: Floats, w: Floats, sweep: Sweep) -> Floats:
    """Return z (b, g o P) of x (b, g c S) and w (g o, c v)."""
    z: Floats = np.matmul(view_kernels(w, sweep), unfold(x, sweep))
    return z.reshape(len(x), sweep.target.units)


def input_gradient(delta: Floats, w: Floats, sweep: Sweep) -> Floats:
    """Return dLoss/dx (b, g c S) from delta = dLoss/dz (b, g o P)."""
    return fold(np.matmul(view_kernels(w, sweep).swapaxes(1, 2), view_by_group(delta, sweep)), sweep)


def weight_gradient(x: Floats, delta: Floats, sweep: Sweep) -> Floats:
    """Return dLoss/dw (g o, c v), summed over the examples."""
    products: Floats = np.matmul(view_by_group(delta, sweep), unfold(x, sweep).swapaxes(2, 3))
    gradient: Floats = products.sum(axis=0)
    return gradient.reshape(sweep.target.channels, sweep.fan_in)


def unfold(x: Floats, sweep: Sweep) -> Floats:
    """Return u (b, g, c v, P): for each place of the kernel, what of x it meets."""
    padded = _padded(x, sweep)
    u = np.empty((*padded.shape[:2], sweep.volume, *sweep.target.sizes), x.dtype)
    for k, place in enumerate(_places(sweep)):
        u[:, :, k] = padded[:, :, *place]
    return u.reshape(len(x), sweep.groups, sweep.fan_in, sweep.target.area)


def fold(u: Floats, sweep: Sweep) -> Floats:
    """Return x (b, g c S) with u (b, g, c v, P) added up where `unfold` took it from."""
    zeros = np.zeros((len(u), sweep.source.units), u.dtype)
    padded = _padded(zeros, sweep)
    parts = u.reshape(len(u), sweep.source.channels, sweep.volume, *sweep.target.sizes)
    for k, place in enumerate(_places(sweep)):
        padded[:, :, *place] += parts[:, :, k]
    inner = tuple(slice(window.low, window.low + window.size) for window in sweep.windows)
    return padded[:, :, *inner].reshape(len(u), sweep.source.units)


def _padded(x: Floats, sweep: Sweep) -> Floats:
    maps = x.reshape(len(x), sweep.source.channels, *sweep.source.sizes)
    return np.pad(maps, ((0, 0), (0, 0), *((window.low, window.high) for window in sweep.windows)))


def _places(sweep: Sweep) -> Iterator[tuple[slice, ...]]:
    """Give, for each place of the kernel, where in padded maps it is put."""
    for offsets in product(*(range(window.kernel) for window in sweep.windows)):
        yield tuple(map(_met, sweep.windows, offsets))


def _met(window: Window, offset: int) -> slice:
    first = offset * window.dilation
    return slice(first, first + (window.out - 1) * window.stride + 1, window.stride)


def view_kernels(w: Floats, sweep: Sweep) -> Floats:
    """Return w (g o, c v) as (g, o, c v)."""
    return w.reshape(sweep.groups, sweep.target.channels // sweep.groups, sweep.fan_in)


def view_by_group(delta: Floats, sweep: Sweep) -> Floats:
    """Return delta (b, g o P) as (b, g, o, P)."""
    channels = sweep.target.channels // sweep.groups
    return delta.reshape(len(delta), sweep.groups, channels, sweep.target.area)
