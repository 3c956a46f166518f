"""Compiled convolutions: maps laid out and tiles of what they give. Twins: `ops.convolution`, `cpu.maps.convolution`.

`lay`, `put` and pitches are those of `cpu.maps.shifts`, which says what they mean.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from nnlib.compiled.compiler import compile_loop
from nnlib.compiled.tiles import (
    ALONE,
    DOTS,
    FEW,
    LANES,
    ROWS,
    VECTORS,
    clear,
    copy,
    dots,
    dots_alone,
    sums,
    sums_alone,
    sums_alone_narrow,
    sums_few,
    sums_few_narrow,
    sums_narrow,
)

Floats = NDArray[Any]
Longs = NDArray[Any]
TILE, (MANY, OTHERS) = VECTORS * LANES, DOTS


@compile_loop
def lay_out(x: Floats, first: int, lay: Any, starts: Longs, examples: int, channels: int, out: Floats) -> None:
    """Write channels of examples, of which the first number is x[first], to `out`, with zeros around their maps."""
    size, step, extent, wide = lay.size, lay.step, lay.extent, lay.wide
    numbers, target = x.ctypes.data, out.ctypes.data
    last = (examples - 1) * wide.example + (extent.z - 1) * wide.slice + (extent.y - 1) * wide.row + extent.x
    for channel in range(channels):
        for phase in range(starts.shape[0]):
            z0, y0, x0 = starts[phase, 0], starts[phase, 1], starts[phase, 2]
            low = min(extent.x, max(0, (step.x - 1 - x0) // step.x))
            high = max(low, min(extent.x, (size.x - x0 + step.x - 1) // step.x))
            block = channel * wide.channel + phase * lay.phase
            for example in range(examples):
                begin = first + example * lay.source.example + channel * lay.source.channel + x0
                for z in range(extent.z):
                    for y in range(extent.y):
                        at = block + example * wide.example + z * wide.slice + y * wide.row
                        there = target + 4 * at
                        from_z, from_y = z * step.z + z0, y * step.y + y0
                        if from_z < 0 or from_z >= size.z or from_y < 0 or from_y >= size.y:
                            clear(there, extent.x, 0, 0, 0, 0)
                            continue
                        source = begin + from_z * lay.source.slice + from_y * lay.source.row
                        clear(there, low, 0, 0, 0, 0)
                        clear(there + 4 * high, extent.x - high, 0, 0, 0, 0)
                        if step.x == 1:
                            copy(numbers + 4 * (source + low), there + 4 * low, high - low, 0, 0, 0)
                        else:
                            for n in range(low, high):
                                out[at + n] = x[source + n * step.x]
            clear(target + 4 * (block + last), lay.phase - last, 0, 0, 0, 0)


@compile_loop
def put_back(rows: Floats, pitch: int, put: Any, first: int, examples: int, channels: int, out: Floats) -> None:
    """Write what is laid out in `rows`, channels `pitch` apart, to where it belongs from out[first] on."""
    extent, step, wide = put.extent, put.step, put.wide
    source, target = rows.ctypes.data, out.ctypes.data
    for channel in range(channels):
        for example in range(examples):
            for z in range(extent.z):
                for y in range(extent.y):
                    at = channel * pitch + example * wide.example + z * wide.slice + y * wide.row
                    to = first + example * put.target.example + channel * put.target.channel + z * step.z + y * step.y
                    if step.x == 1:
                        copy(source + 4 * at, target + 4 * to, extent.x, 0, 0, 0)
                    else:
                        for n in range(extent.x):
                            out[to + n * step.x] = rows[at + n]


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
    channels: tuple[int, int],
    put: Any,
    to: int,
    laid: Floats,
    rows: Floats,
    out: Floats,
) -> None:
    """Write to `out`, from `to` on, what the weights w (groups, blocks, channels and places, rows of a block) give.

    `groups` and `blocks` of them from the first to behind the last; `channels` of a group: of the source and of the
    target. `laid` and `rows` are memory: for all channels of a source, and for the rows of a block.
    """
    below, above = channels
    many, pitch, count = w.shape[3], rows.size // w.shape[3], base.size
    places = base.ctypes.data
    for group in range(groups[0], groups[1]):
        lay_out(x, first + group * below * lay.source.channel, lay, starts, examples, below, laid)
        for block in range(blocks[0], blocks[1]):
            weights = w[group, block].ctypes.data
            at = 0
            while at < width:
                here, there = laid.ctypes.data + 4 * at, rows.ctypes.data + 4 * at
                if at + TILE <= width:
                    if many == ROWS:
                        sums(here, places, count, weights, there, pitch)
                    elif many == FEW:
                        sums_few(here, places, count, weights, there, pitch)
                    else:
                        sums_alone(here, places, count, weights, there, pitch)
                    at += TILE
                else:
                    if many == ROWS:
                        sums_narrow(here, places, count, weights, there, pitch)
                    elif many == FEW:
                        sums_few_narrow(here, places, count, weights, there, pitch)
                    else:
                        sums_alone_narrow(here, places, count, weights, there, pitch)
                    at += LANES
            target = to + (group * above + block * many) * put.target.channel
            put_back(rows, pitch, put, target, examples, min(many, above - block * many), out)


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
    channels: tuple[int, int],
    laid: Floats,
    rows: Floats,
    gradient: Floats,
) -> None:
    """Add to `gradient` (groups, tiles of places, tiles of rows, what a tile gives) what some examples contribute.

    Groups are so many numbers `apart`, in x and in delta, and so many `channels` of each are used. `base` is longer
    than there are places, so that a tile of them may end behind the last. `laid` and `rows` are memory.
    """
    pitch, steps = own.wide.channel, (width + LANES - 1) // LANES
    many, others = (1, ALONE) if channels[1] == 1 else (MANY, OTHERS)
    for group in range(gradient.shape[0]):
        lay_out(x, first + group * apart[0], lay, starts, examples, channels[0], laid)
        lay_out(delta, delta_first + group * apart[1], own, own_starts, examples, channels[1], rows)
        for place in range(gradient.shape[1]):
            here = base.ctypes.data + 8 * place * others
            for row in range(gradient.shape[2]):
                there = rows.ctypes.data + 4 * row * many * pitch
                out = gradient[group, place, row].ctypes.data
                if channels[1] == 1:
                    dots_alone(laid.ctypes.data, here, there, pitch, steps, out)
                else:
                    dots(laid.ctypes.data, here, there, pitch, steps, out)
