"""Convolutions of float32 numbers whose kernels see one channel each, map by map where they are; others go elsewhere.

A map's sums depend on the map alone; the gradient of weights is summed over examples in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnlib.cpu.maps.by_shard import by_shard
from nnlib.cpu.maps.pieces import NUMBERS
from nnlib.spec.geometry import Sweep, Window
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import Each, consume

if TYPE_CHECKING:
    from nnlib.cpu.maps.convolution import Convolutions

STRIDES, KERNELS = (1, 2), (3, 5, 7)  # along a row
PIECES = 8  # at least, where there is as much work

Bits = NDArray[np.uint16]


class Walk(NamedTuple):
    """How a kernel moves over a map, as `compiled/depthwise.py` and `rows.py` have it."""

    way: tuple[int, int]
    bits: Bits
    numbers: Longs
    zeros: Floats  # whose address is in `numbers`


class Depthwise:
    """See `Convolutions`; `others` computes what is not of one channel each."""

    def __init__(self, loops: ModuleType, others: Convolutions) -> None:
        self._loops, self._others = loops, others

    def forward(self, x: Floats, w: Floats, sweep: Sweep, each: Each) -> Floats:
        """See `Convolutions`."""
        return self._sweep(x, w, sweep, each) if _is_met(sweep) else self._others.forward(x, w, sweep, each)

    def input_gradient(self, delta: Floats, w: Floats, sweep: Sweep, each: Each) -> Floats:
        """See `Convolutions`; with strides of 1 it is a convolution of delta with the kernel turned around."""
        if _is_met(sweep) and all(window.stride == 1 for window in sweep.windows):
            return self._sweep(delta, w[:, ::-1], _turn(sweep), each)
        return self._others.input_gradient(delta, w, sweep, each)

    def weight_gradient(
        self, x: Floats, delta: Floats, sweep: Sweep, each: Each, shards: Sequence[slice] = ()
    ) -> Floats:
        """See `Convolutions`."""
        if not _is_met(sweep):
            return self._others.weight_gradient(x, delta, sweep, each, shards)
        if shards:
            return by_shard(lambda some: self.weight_gradient(x[some], delta[some], sweep, each), shards)
        count, loops, walk = sweep.groups, self._loops, _walk(sweep, self._loops.LANES)
        x = np.ascontiguousarray(x).reshape(len(x), count, sweep.source.area)
        delta = np.ascontiguousarray(delta).reshape(len(delta), count, sweep.target.area)
        channels = _cut(count, PIECES)
        examples = _cut(len(x), -(-PIECES // len(channels)))
        gradient = np.zeros((count, sweep.volume), np.float32)

        def piece(number: int) -> Floats:
            low, high = channels[number // len(examples)]
            found = np.zeros((high - low, sweep.volume, loops.LANES), np.float32)
            loops.correlate_maps(x, delta, examples[number % len(examples)], low, *walk[:3], found)
            total: Floats = found.sum(axis=2)
            return total

        for number, part in enumerate(each(piece, range(len(channels) * len(examples)))):
            gradient[slice(*channels[number // len(examples)])] += part
        return gradient

    def _sweep(self, x: Floats, w: Floats, sweep: Sweep, each: Each) -> Floats:
        """Return z (b, target units)."""
        maps, loops, walk = len(x) * sweep.groups, self._loops, _walk(sweep, self._loops.LANES)
        z = np.empty((len(x), sweep.target.units), np.float32)
        x, w = np.ascontiguousarray(x).reshape(maps, sweep.source.area), np.ascontiguousarray(w)
        out, pieces = z.reshape(maps, sweep.target.area), _cut(maps, max(PIECES, max(x.size, z.size) // NUMBERS))
        consume(each(lambda n: loops.sweep_maps(x, w, pieces[n], *walk[:3], out), range(len(pieces))))
        return z


def _is_met(sweep: Sweep) -> bool:
    """Whether a square kernel, of one of the sizes that are compiled, sees one of several channels."""
    if len(sweep.windows) != 2 or not 1 < sweep.groups == sweep.source.channels == sweep.target.channels:
        return False
    rows, row = sweep.windows
    return rows.kernel == row.kernel and row.kernel in KERNELS and row.stride in STRIDES


def _turn(sweep: Sweep) -> Sweep:
    """Return how a source's gradient is made of delta, if strides are 1; padding may be below 0."""
    windows = []
    for window in sweep.windows:
        low, reach = window.span - 1 - window.low, window.span - 1
        high = window.size - window.out + reach - low
        windows.append(Window(window.out, window.kernel, 1, low, high, window.dilation))
    return replace(sweep, source=sweep.target, target=sweep.source, windows=tuple(windows))


@lru_cache(maxsize=256)
def _walk(sweep: Sweep, lanes: int) -> Walk:
    rows, row = sweep.windows
    zeros, vectors = np.zeros(row.size, np.float32), -(-row.out // lanes)
    first = np.arange(0, vectors * lanes, lanes)[:, None, None, None]  # place of each vector
    lane, part = np.arange(lanes), np.arange(row.stride * lanes).reshape(row.stride, lanes)
    places = np.arange(row.kernel)[:, None, None] * row.dilation - row.low
    met = first * row.stride + places + part
    source = (met >= 0) & (met < row.size) & (first + part // row.stride < row.out)
    own = np.broadcast_to(first + lane < row.out, (vectors, row.kernel, 1, lanes))
    bits = (np.concatenate([source, own], axis=2) << lane).sum(axis=3).astype(np.uint16)
    numbers = (
        *(zeros.ctypes.data - 4 * row.low, vectors, bits.strides[0], 4 * row.dilation),
        *(rows.out, rows.size, rows.stride, rows.dilation, rows.low, -4 * row.low, 4 * row.size, 4 * row.out),
    )
    return Walk((row.stride, row.kernel), bits, np.array(numbers, np.int64), zeros)


def _cut(count: int, parts: int) -> list[tuple[int, int]]:
    """Cut into at most so many parts that differ little: the first of each, and the one behind the last."""
    parts = max(1, min(count, parts))
    return [(n * count // parts, (n + 1) * count // parts) for n in range(parts)]
