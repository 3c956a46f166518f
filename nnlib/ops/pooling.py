"""The largest or the mean of the values under a window that is moved over each map.

Shapes: x (b, units) holds C maps an example, one after the other, each of sizes (D, H, W), (H, W) or (W,), a row after
the other. What is padding does not count: Max never takes it, Average divides by the number of values under the
window, and a window over padding alone gives 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import EllipsisType

import numpy as np

from nnlib.spec.geometry import Maps, Sweep, Window
from nnlib.spec.types import PoolingFunction
from nnlib.util.arrays import Floats

WHOLE = {PoolingFunction.GLOBAL_MAX: PoolingFunction.MAX, PoolingFunction.GLOBAL_AVERAGE: PoolingFunction.AVERAGE}

Cut = tuple[slice | EllipsisType, ...]  # of the maps' axes


def whole(maps: Maps) -> Sweep:
    """Return the sweep whose only window is as large as the maps: that of GlobalMax and GlobalAverage."""
    windows = tuple(Window(size, size, 1, 0, 0) for size in maps.sizes)
    return Sweep(maps, Maps(maps.channels, (1,) * len(maps.sizes)), windows)


def forward(function: PoolingFunction, x: Floats, sweep: Sweep) -> Floats:
    """Return what each window gives, (b, target units)."""
    largest = WHOLE.get(function, function) is PoolingFunction.MAX
    if _is_whole(sweep):
        rows = x.reshape(len(x) * sweep.source.channels, -1)
        return np.reshape(rows.max(axis=1) if largest else rows.mean(axis=1), (len(x), -1))
    source, shape = _maps(x, sweep.source), (-1, *(window.out for window in sweep.windows))
    if largest:
        a = np.full((len(source), *shape[1:]), -np.inf, x.dtype)
        for out, seen in _places(sweep):
            np.maximum(a[out], source[seen], out=a[out])
        a[:, counts(sweep) == 0] = 0
    else:
        a = np.zeros((len(source), *shape[1:]), x.dtype)
        for out, seen in _places(sweep):
            a[out] += source[seen]
        a /= np.maximum(counts(sweep), 1).astype(x.dtype)
    return a.reshape(len(x), -1)


def backward(function: PoolingFunction, x: Floats, a: Floats, delta: Floats, sweep: Sweep) -> Floats:
    """Return dLoss/dx from delta = dLoss/da: all to the first of the largest values, or the same to each."""
    largest = WHOLE.get(function, function) is PoolingFunction.MAX
    if _is_whole(sweep):
        return _whole_gradient(x, delta, sweep, largest)
    below = np.zeros_like(x)
    source, target = _maps(x, sweep.source), _maps(below, sweep.source)
    shape = (-1, *(window.out for window in sweep.windows))
    a, delta = a.reshape(shape), delta.reshape(shape)
    if largest:
        left = np.ones(a.shape, bool)  # windows whose largest value is still to be met
        for out, seen in _places(sweep):
            here = left[out] & (source[seen] == a[out])
            target[seen] += np.where(here, delta[out], 0)
            left[out] &= ~here
    else:
        share = delta / np.maximum(counts(sweep), 1).astype(x.dtype)
        for out, seen in _places(sweep):
            target[seen] += share[out]
    return below


def _is_whole(sweep: Sweep) -> bool:
    return all(w.kernel == w.size and w.out == 1 and not w.low and w.dilation == 1 for w in sweep.windows)


def _whole_gradient(x: Floats, delta: Floats, sweep: Sweep, largest: bool) -> Floats:
    rows = x.reshape(len(x) * sweep.source.channels, -1)
    if largest:
        below = np.zeros_like(rows)
        below[np.arange(len(rows)), rows.argmax(axis=1)] = delta.reshape(-1)
    else:
        below = np.repeat(delta.reshape(-1, 1) / x.dtype.type(rows.shape[1]), rows.shape[1], axis=1)
    return below.reshape(x.shape)


def counts(sweep: Sweep) -> Floats:
    """Return how many values are under each window, of the target's sizes."""
    found = np.ones((), np.int64)
    for window in sweep.windows:
        own = np.zeros(window.out, np.int64)
        for k in range(window.kernel):
            own[_cut(window, k)[0]] += 1
        found = np.multiply.outer(found, own)
    return found


def _maps(x: Floats, maps: Maps) -> Floats:
    """Return x (b, units) as (b C, sizes)."""
    return x.reshape(len(x) * maps.channels, *maps.sizes)


def _places(sweep: Sweep) -> Iterator[tuple[Cut, Cut]]:
    """Yield for each place of the kernel, in scan order, the windows that see a value there, and the values."""
    for place in itertools.product(*(range(window.kernel) for window in sweep.windows)):
        cuts = [_cut(window, k) for window, k in zip(sweep.windows, place, strict=True)]
        yield (..., *(out for out, _ in cuts)), (..., *(seen for _, seen in cuts))


def _cut(window: Window, k: int) -> tuple[slice, slice]:
    """Return the windows of an axis whose k-th place is no padding, and what they see there."""
    shift = k * window.dilation - window.low
    first = max(0, -(shift // window.stride))
    last = min(window.out, (window.size - 1 - shift) // window.stride + 1)
    if last <= first:
        return slice(0), slice(0)
    start = first * window.stride + shift
    return slice(first, last), slice(start, start + (last - first - 1) * window.stride + 1, window.stride)
