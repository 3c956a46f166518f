"""Compiled convolutions: maps laid out and tiles of what they give. Twins: `ops.convolution`, `cpu.maps.convolution`.

`lay`, `put` and pitches are those of `cpu.maps.shifts`, which says what they mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.compiled.compiler import compile_loop, compile_within
from nnlib.compiled.tiles import (
    ALONE,
    ALONE_VECTORS,
    DOTS,
    FEW,
    ROWS,
    VECTORS,
    clear,
    copy,
    copy_half,
    dots,
    dots_alone,
    sums,
    sums_alone,
    sums_alone_narrow,
    sums_few,
    sums_few_narrow,
    sums_narrow,
)
from nnlib.compiled.vectors import LANES

Floats = NDArray[Any]
Longs = NDArray[Any]
MANY, OTHERS = DOTS


@compile_loop
def lay_out(
    x: Floats, first: int, lay: Any, starts: Longs, examples: int, lanes: int, channels: int, out: Floats
) -> None:
    """Write channels of examples, of which the first number is x[first], to `out`, with zeros around their maps.

    With more than one of `lanes` there are as many examples, and each place has all of them.
    """
    size, step, extent, wide = lay.size, lay.step, lay.extent, lay.wide
    numbers, target = x.ctypes.data, out.ctypes.data
    for phase in range(starts.shape[0]):
        z0, y0, x0 = starts[phase, 0], starts[phase, 1], starts[phase, 2]
        z1, y1, x1 = _first(z0, step.z), _first(y0, step.y), _first(x0, step.x)
        z2, y2, x2 = _last(z0, step.z, size.z), _last(y0, step.y, size.y), _last(x0, step.x, size.x)
        z2, y2, count = min(z2, extent.z), min(y2, extent.y), min(x2, extent.x) - x1
        for channel in range(channels):
            block = target + 4 * (channel * wide.channel + phase * lay.phase)
            clear(block, lay.phase, 0, 0, 0, 0)
            for example in range(examples if lanes == 1 else 1):
                begin = first + example * lay.source.example + channel * lay.source.channel + x0 + x1 * step.x
                for z in range(z1, z2):
                    for y in range(y1, y2):
                        source = begin + (z * step.z + z0) * lay.source.slice + (y * step.y + y0) * lay.source.row
                        there = block + 4 * (example * wide.example + z * wide.slice + y * wide.row + x1 * lanes)
                        if lanes > 1:
                            at = (there - target) // 4
                            for _ in range(count):
                                for lane in range(LANES):
                                    out[at + lane] = x[source + lane * lay.source.example]
                                at += LANES
                                source += step.x
                        elif step.x == 1:
                            copy(numbers + 4 * source, there, count, 0, 0, 0)
                        elif step.x == 2:
                            copy_half(numbers + 4 * source, there, count, 0, 0, 0)
                        else:
                            at = (there - target) // 4
                            for n in range(count):
                                out[at + n] = x[source + n * step.x]


@compile_within
def _first(start: int, step: int) -> int:
    return max(0, (step - 1 - start) // step)


@compile_within
def _last(start: int, step: int, size: int) -> int:
    return (size - start + step - 1) // step


@compile_loop
def put_back(
    rows: Floats, pitch: int, put: Any, first: int, examples: int, lanes: int, channels: int, out: Floats
) -> None:
    """Write what is laid out in `rows`, channels `pitch` apart, to where it belongs from out[first] on."""
    extent, step, wide = put.extent, put.step, put.wide
    source, target = rows.ctypes.data, out.ctypes.data
    for channel in range(channels):
        for example in range(examples):
            for z in range(extent.z):
                for y in range(extent.y):
                    at = channel * pitch + example * wide.example + z * wide.slice + y * wide.row
                    to = first + example * put.target.example + channel * put.target.channel + z * step.z + y * step.y
                    if lanes > 1:
                        for n in range(extent.x):
                            out[to + n * step.x] = rows[at + n * lanes]
                    elif step.x == 1:
                        copy(source + 4 * at, target + 4 * to, extent.x, 0, 0, 0)
                    else:
                        for n in range(extent.x):
                            out[to + n * step.x] = rows[at + n]


@compile_loop
def pack(w: Floats, rows: int, pitch: int, apart: int, places: Longs, block: int, out: Floats) -> None:
    """Write a block of rows of weights, place by place, to out[:, block] (groups, places, rows of a block).

    Weights of a group lie `apart`, and of it `rows` by `pitch`; behind the last are zeros.
    """
    many = out.shape[3]
    for group in range(out.shape[0]):
        for n in range(places.size):
            for m in range(many):
                row = block * many + m
                out[group, block, n, m] = w[group * apart + row * pitch + places[n]] if row < rows else 0


@compile_loop
def convolve(
    x: Floats,
    first: int,
    lay: Any,
    starts: Longs,
    base: Longs,
    width: int,
    w: Floats,
    groups: tuple[int, int],
    blocks: tuple[int, int],
    examples: int,
    lanes: int,
    channels: tuple[int, int],
    put: Any,
    to: int,
    laid: Floats,
    rows: Floats,
    out: Floats,
) -> None:
    """Write to `out`, from `to` on, what the weights w (groups, blocks, channels and places, rows of a block) give.

    `groups` and `blocks` are taken from the first to behind the last; `channels` are those of a group, of the source
    and of the target. `laid` and `rows` are memory: for all channels of a source, and for the rows of a block.
    """
    below, above = channels
    many, pitch, count = w.shape[3], rows.size // w.shape[3], base.size
    places = base.ctypes.data
    for group in range(groups[0], groups[1]):
        lay_out(x, first + group * below * lay.source.channel, lay, starts, examples, lanes, below, laid)
        for block in range(blocks[0], blocks[1]):
            weights = w[group, block].ctypes.data
            for z in range(put.extent.z if lanes > 1 else 1):
                for y in range(put.extent.y if lanes > 1 else 1):
                    at = 4 * (z * lay.wide.slice + y * lay.wide.row)
                    _sum_tiles(laid.ctypes.data + at, places, count, weights, rows.ctypes.data + at, pitch, width, many)
            target = to + (group * above + block * many) * put.target.channel
            put_back(rows, pitch, put, target, examples, lanes, min(many, above - block * many), out)


@compile_loop
def convolve_as_it_is(
    x: Floats,
    first: int,
    base: Longs,
    width: int,
    w: Floats,
    groups: tuple[int, int],
    blocks: tuple[int, int],
    channels: tuple[int, int],
    pitches: tuple[int, int],
    to: int,
    out: Floats,
) -> None:
    """As `convolve`, of maps that are not laid out; channels have `pitches` in x and in `out`."""
    below, above = channels
    many = w.shape[3]
    tile = (VECTORS if many > 1 else ALONE_VECTORS) * LANES
    for group in range(groups[0], groups[1]):
        for at in range(0, width, tile):
            here = x.ctypes.data + 4 * (first + group * below * pitches[0] + at)
            some = min(tile, width - at)
            for block in range(blocks[0], blocks[1]):
                there = out.ctypes.data + 4 * (to + (group * above + block * many) * pitches[1] + at)
                weights = w[group, block].ctypes.data
                _sum_tiles(here, base.ctypes.data, base.size, weights, there, pitches[1], some, many)


@compile_within
def _sum_tiles(x: int, base: int, count: int, w: int, z: int, pitch: int, width: int, many: int) -> None:
    """Compute z (many, width) at an address; what lies behind the width up to a vector's end is overwritten."""
    tile = 4 * (VECTORS if many > 1 else ALONE_VECTORS) * LANES
    at, end = 0, 4 * width
    while at < end:
        whole = at + tile <= end
        if many == ROWS and whole:
            sums(x + at, base, count, w, z + at, pitch)
        elif many == ROWS:
            sums_narrow(x + at, base, count, w, z + at, pitch)
        elif many == FEW and whole:
            sums_few(x + at, base, count, w, z + at, pitch)
        elif many == FEW:
            sums_few_narrow(x + at, base, count, w, z + at, pitch)
        elif whole:
            sums_alone(x + at, base, count, w, z + at, pitch)
        else:
            sums_alone_narrow(x + at, base, count, w, z + at, pitch)
        at += tile if whole else 4 * LANES


@compile_loop
def correlate(
    x: Floats,
    first: int,
    lay: Any,
    starts: Longs,
    base: Longs,
    width: int,
    delta: Floats,
    delta_first: int,
    own: Any,
    own_starts: Longs,
    apart: tuple[int, int],
    examples: int,
    lanes: int,
    channels: tuple[int, int],
    as_it_is: bool,
    laid: Floats,
    rows: Floats,
    gradient: Floats,
) -> None:
    """Add to `gradient` (groups, tiles of places, tiles of rows, what a tile gives) what some examples contribute.

    Groups are so many numbers `apart`, in x and in delta, and so many `channels` of each are used. `base` is longer
    than there are places, so that a tile of them may end behind the last. `laid` and `rows` are memory.
    """
    pitch = own.wide.channel
    shape = np.array([(width + LANES - 1) // LANES, own.extent.y if lanes > 1 else 1, own.wide.row])
    many, others = (1, ALONE) if channels[1] == 1 else (MANY, OTHERS)
    for group in range(gradient.shape[0]):
        begin, above = first + group * apart[0], delta_first + group * apart[1]
        left, right = laid.ctypes.data, rows.ctypes.data
        if as_it_is:
            left, right = x.ctypes.data + 4 * begin, delta.ctypes.data + 4 * above
        else:
            lay_out(x, begin, lay, starts, examples, lanes, channels[0], laid)
            lay_out(delta, above, own, own_starts, examples, lanes, channels[1], rows)
        for place in range(gradient.shape[1]):
            here = base.ctypes.data + 8 * place * others
            for row in range(gradient.shape[2]):
                there = right + 4 * row * many * pitch
                out = gradient[group, place, row].ctypes.data
                for z in range(own.extent.z if lanes > 1 else 1):
                    at = 4 * z * own.wide.slice
                    if channels[1] == 1:
                        dots_alone(left + at, here, there + at, pitch, out, shape.ctypes.data)
                    else:
                        dots(left + at, here, there + at, pitch, out, shape.ctypes.data)
