"""Compiled convolutions of each channel by itself, with square kernels. Twins: `ops.convolution`, `cpu.maps.depthwise`.

`way` is stride and size of the kernel; `bits` and `numbers` are those of `rows`.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from nnlib.compiled.compiler import compile_loop
from nnlib.compiled.rows import (
    correlate_3,
    correlate_3_by_2,
    correlate_5,
    correlate_5_by_2,
    correlate_7,
    correlate_7_by_2,
    sum_3,
    sum_3_by_2,
    sum_5,
    sum_5_by_2,
    sum_7,
    sum_7_by_2,
)

Floats = NDArray[Any]
Bits = NDArray[Any]
Longs = NDArray[Any]
Way = tuple[int, int]


@compile_loop
def sweep_maps(x: Floats, w: Floats, maps: tuple[int, int], way: Way, bits: Bits, numbers: Longs, out: Floats) -> None:
    """Write to `out` (maps, places) what w (channels, kernel) gives of x (maps, places), from a map to behind the last.

    Map m is of channel m % channels.
    """
    table, walk = bits.ctypes.data, numbers.ctypes.data
    for m in range(maps[0], maps[1]):
        here, there = x.ctypes.data + 4 * m * x.shape[1], out.ctypes.data + 4 * m * out.shape[1]
        weights = w.ctypes.data + 4 * (m % w.shape[0]) * w.shape[1]
        if way == (1, 3):
            sum_3(here, weights, table, there, walk, 0)
        elif way == (1, 5):
            sum_5(here, weights, table, there, walk, 0)
        elif way == (1, 7):
            sum_7(here, weights, table, there, walk, 0)
        elif way == (2, 3):
            sum_3_by_2(here, weights, table, there, walk, 0)
        elif way == (2, 5):
            sum_5_by_2(here, weights, table, there, walk, 0)
        else:
            sum_7_by_2(here, weights, table, there, walk, 0)


@compile_loop
def correlate_maps(
    x: Floats, delta: Floats, examples: tuple[int, int], first: int, way: Way, bits: Bits, numbers: Longs, out: Floats
) -> None:
    """Add to `out` (channels from `first` on, kernel, lanes) what examples, from one to behind the last, contribute.

    x and delta are (examples, channels, places); the lanes of a sum are to be added up.
    """
    table, walk = bits.ctypes.data, numbers.ctypes.data
    for example in range(examples[0], examples[1]):
        for channel in range(out.shape[0]):
            m = example * x.shape[1] + first + channel
            here, there = x.ctypes.data + 4 * m * x.shape[2], delta.ctypes.data + 4 * m * delta.shape[2]
            sums = out.ctypes.data + 4 * channel * out.shape[1] * out.shape[2]
            if way == (1, 3):
                correlate_3(here, there, table, sums, walk, 0)
            elif way == (1, 5):
                correlate_5(here, there, table, sums, walk, 0)
            elif way == (1, 7):
                correlate_7(here, there, table, sums, walk, 0)
            elif way == (2, 3):
                correlate_3_by_2(here, there, table, sums, walk, 0)
            elif way == (2, 5):
                correlate_5_by_2(here, there, table, sums, walk, 0)
            else:
                correlate_7_by_2(here, there, table, sums, walk, 0)
