"""Convolutions on the processors of this machine, and their gradients. Twin: gpu/maps/convolution.py.

Work is cut into pieces whose size depends on the sweep alone, each done by one thread, and sums over examples are in
the order of the examples: so any number of threads gives the same bits. A piece unfolds what fits into a few MB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from nnlib.compiled.select import LOOPS
from nnlib.cpu.maps.by_shard import by_shard
from nnlib.cpu.maps.depthwise import Depthwise
from nnlib.cpu.maps.pieces import by_examples
from nnlib.cpu.maps.tiled import Tiled
from nnlib.ops.convolution import fold, unfold, view_by_group, view_kernels
from nnlib.spec.geometry import Maps, Sweep, Window
from nnlib.util.arrays import Floats
from nnlib.util.threads import Each, consume

UNFOLDED = 1 << 19  # numbers of an unfolded piece: 2 MB
CUTS = 8  # of the channels, where all examples are one sum

Band = tuple[
    tuple[slice, ...], tuple[slice, ...], Sweep
]  # of source maps, of target maps, the kernel from one to the other


class Convolutions(Protocol):
    """What computes convolutions; shapes are those of `ops/convolution.py`."""

    def forward(self, x: Floats, w: Floats, sweep: Sweep, each: Each) -> Floats:
        """Return z (b, target units)."""

    def input_gradient(self, delta: Floats, w: Floats, sweep: Sweep, each: Each) -> Floats:
        """Return dLoss/dx (b, source units)."""

    def weight_gradient(
        self, x: Floats, delta: Floats, sweep: Sweep, each: Each, shards: Sequence[slice] = ()
    ) -> Floats:
        """Return dLoss/dw (target channels, fan in), summed over examples, shard by shard as in `by_shard`."""


def convolutions_of(dtype: Any) -> Convolutions:
    """Return what computes convolutions of numbers of a type: the fastest that is installed."""
    if LOOPS is None or dtype != np.float32:
        return Unfolded()
    return Depthwise(LOOPS, Tiled(LOOPS)) if LOOPS.MASKED else Tiled(LOOPS)


class Unfolded:
    """Convolutions as products of unfolded maps, by NumPy alone."""

    def forward(self, x: Floats, w: Floats, sweep: Sweep, each: Each) -> Floats:
        """See `Convolutions`."""
        z = np.empty((len(x), sweep.target.units), x.dtype)
        source, target = _maps(x, sweep.source), _maps(z, sweep.target)
        kernels = view_kernels(w, sweep)

        def piece(examples: slice) -> None:
            for here, there, part in bands(sweep):
                found = np.matmul(kernels, _unfold(source[examples, :, *here], part))
                out = target[examples, :, *there]
                out[...] = found.reshape(out.shape)

        by_examples(each, piece, len(x), _unfolded_size(sweep), UNFOLDED)
        return z

    def input_gradient(self, delta: Floats, w: Floats, sweep: Sweep, each: Each) -> Floats:
        """See `Convolutions`."""
        below = np.zeros((len(delta), sweep.source.units), delta.dtype)
        source, target = _maps(below, sweep.source), _maps(delta, sweep.target)
        kernels = view_kernels(w, sweep).swapaxes(1, 2)

        def piece(examples: slice) -> None:
            for here, there, part in bands(sweep):
                rows = target[examples, :, *there]
                moved = fold(np.matmul(kernels, view_by_group(rows, part)), part)
                out = source[examples, :, *here]
                out += moved.reshape(out.shape)

        by_examples(each, piece, len(delta), _unfolded_size(sweep), UNFOLDED)
        return below

    def weight_gradient(
        self, x: Floats, delta: Floats, sweep: Sweep, each: Each, shards: Sequence[slice] = ()
    ) -> Floats:
        """See `Convolutions`; a piece is all that some source channels, or groups of them, contribute."""
        if shards:
            return by_shard(lambda some: self.weight_gradient(x[some], delta[some], sweep, each), shards)
        source, target = _maps(x, sweep.source), _maps(delta, sweep.target)
        gradient = np.zeros((sweep.target.channels, sweep.fan_in), x.dtype)
        own, above = sweep.source.channels // sweep.groups, sweep.target.channels // sweep.groups
        whole = sweep.groups == 1  # then channels are cut, else groups
        step = -(-(own if whole else sweep.groups) // CUTS)

        def piece(low: int) -> None:
            high = min(low + step, own if whole else sweep.groups)
            channels = slice(low, high) if whole else slice(low * own, high * own)
            targets = slice(None) if whole else slice(low * above, high * above)
            columns = slice(low * sweep.volume, high * sweep.volume) if whole else slice(None)
            cut = replace(
                sweep,
                source=Maps(channels.stop - channels.start, sweep.source.sizes),
                target=Maps(sweep.target.channels if whole else (high - low) * above, sweep.target.sizes),
                groups=1 if whole else high - low,
            )
            out = gradient[targets, columns]
            for example in range(len(x)):
                for here, there, part in bands(cut):
                    u = _unfold(source[example : example + 1, channels, *here], part)
                    rows = view_by_group(target[example : example + 1, targets, *there], part)
                    out += np.matmul(rows[0], u[0].swapaxes(1, 2)).reshape(out.shape)

        consume(each(piece, range(0, own if whole else sweep.groups, step)))
        return gradient


@lru_cache(maxsize=256)
def bands(sweep: Sweep) -> tuple[Band, ...]:
    """Cut target maps into bands whose unfolded source, of one example, has so many numbers at most, if that goes."""
    return tuple(_bands(sweep, 0))


def _bands(sweep: Sweep, axis: int) -> Iterator[Band]:
    if axis == len(sweep.windows):
        whole = (slice(None),) * len(sweep.windows)
        yield whole, whole, sweep
        return
    window = sweep.windows[axis]
    slice_size = _unfolded_size(sweep) // window.out
    step = max(1, min(window.out, UNFOLDED // slice_size))
    for low in range(0, window.out, step):
        here, there, part = _cut(window, low, min(low + step, window.out))
        windows = (*sweep.windows[:axis], part, *sweep.windows[axis + 1 :])
        source, target = (tuple(getattr(w, n) for w in windows) for n in ("size", "out"))
        smaller = replace(
            sweep,
            source=Maps(sweep.source.channels, source),
            target=Maps(sweep.target.channels, target),
            windows=windows,
        )
        for heres, theres, found in _bands(smaller, axis + 1) if step == 1 else _bands(smaller, len(windows)):
            yield _put(heres, axis, here), _put(theres, axis, there), found


def _put(slices: tuple[slice, ...], axis: int, one: slice) -> tuple[slice, ...]:
    return (*slices[:axis], one, *slices[axis + 1 :])


def _cut(window: Window, low: int, high: int) -> tuple[slice, slice, Window]:
    """Return which places of the source make places `low` to `high` of the target, and the kernel between them."""
    first = low * window.stride - window.low
    last = (high - 1) * window.stride - window.low + window.dilation * (window.kernel - 1) + 1
    a, b = max(first, 0), min(last, window.size)
    if a >= b:  # padding alone
        a, b, first, last = 0, 0, first - last, 0
    part = replace(window, size=b - a, low=a - first, high=last - b)
    return slice(a, b), slice(low, high), part


def _unfolded_size(sweep: Sweep) -> int:
    """Return how many numbers one example has when it is unfolded."""
    return sweep.source.channels * sweep.volume * sweep.target.area


def _unfold(x: Floats, sweep: Sweep) -> Floats:
    if all(window == Window(window.size, 1) for window in sweep.windows):
        return x.reshape(len(x), sweep.groups, sweep.fan_in, sweep.target.area)
    return unfold(x, sweep)


def _maps(values: Floats, maps: Maps) -> Floats:
    return values.reshape(len(values), maps.channels, *maps.sizes)
