"""Compiled copies of maps and weights to where tiles meet them, and back. Twin: `ops.convolution`.

`lay`, `put` and pitches are those of `cpu.maps.shifts`, which says what they mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.compiled.compiler import compile_loop, compile_within
from nnlib.compiled.rows import (
    AHEAD,
    clear,
    copy,
    copy_half,
    lay_rows,
    lay_rows_by_four,
    lay_rows_by_two,
    lay_rows_in_four,
    lay_rows_in_two,
)
from nnlib.compiled.tiles import ACROSS, fetch, turn
from nnlib.compiled.vectors import LANES, MASKED

Floats = NDArray[Any]
Longs = NDArray[Any]
SOON = 16  # rows of weights from those that are packed to those on their way to the cache


@compile_loop
def lay_out(
    x: Floats, first: int, lay: Any, starts: Longs, examples: int, lanes: int, channels: int, out: Floats
) -> None:
    """Write channels of examples, of which the first number is x[first], to `out`, with zeros around their maps.

    With more than one of `lanes` there are as many examples, and each place has all of them.
    """
    size, step, extent, wide = lay.size, lay.step, lay.extent, lay.wide
    if MASKED and lanes == 1 and (step.x <= 2 or step.x == 4):
        _lay_out_by_lanes(x, first, lay, starts, examples, channels, out)
        return
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


@compile_loop
def _lay_out_by_lanes(
    x: Floats, first: int, lay: Any, starts: Longs, examples: int, channels: int, out: Floats
) -> None:
    """As `lay_out`. A row's last vector ends behind it, where the next one begins, which is written afterwards.

    Rows and slices that end before the next one begins are the last ones.
    """
    size, step, extent, wide = lay.size, lay.step, lay.extent, lay.wide
    last = (examples - 1) * wide.example + (extent.z - 1) * wide.slice + (extent.y - 1) * wide.row + extent.x
    bits = np.empty((starts.shape[0], (extent.x + LANES - 1) // LANES * step.x), np.uint16)
    for phase in range(starts.shape[0]):
        for vector in range(bits.shape[1]):
            bits[phase, vector] = _lanes(starts[phase, 2] + vector * LANES, size.x, step.x * extent.x - vector * LANES)
    pitch = max(1, lay.source.channel)
    ahead = (AHEAD + pitch - 1) // pitch * pitch  # to the same rows of a channel that is still to come
    distances = 4 * step.y * lay.source.row, 4 * wide.row, 4 * ahead, 4 * lay.phase
    numbers = np.array([bits.shape[1] // step.x, extent.y, *distances])
    together = 1 if step.x == 1 else _neighbours(starts, step.x)  # phases, of which one load has a number each
    for channel in range(channels):
        for phase in range(0, starts.shape[0], together):
            z0, y0, x0 = starts[phase, 0], starts[phase, 1], starts[phase, 2]
            z1, z2, y1 = _first(z0, step.z), _last(z0, step.z, size.z), _first(y0, step.y)
            y2 = max(y1, _last(y0, step.y, size.y))
            block = out.ctypes.data + 4 * (channel * wide.channel + phase * lay.phase)
            lanes, walk = bits[phase].ctypes.data, numbers.ctypes.data
            for example in range(examples):
                begin = first + example * lay.source.example + channel * lay.source.channel + x0
                for z in range(extent.z):
                    from_row = begin + (z * step.z + z0) * lay.source.slice + y0 * lay.source.row
                    source = x.ctypes.data + 4 * from_row
                    target = block + 4 * (example * wide.example + z * wide.slice)
                    end = y2 if z1 <= z < z2 else y1
                    if step.x == 1:
                        lay_rows(source, target, lanes, walk, y1, end)
                    elif step.x == 2 and together == 2:
                        lay_rows_in_two(source, target, lanes, walk, y1, end)
                    elif step.x == 2:
                        lay_rows_by_two(source, target, lanes, walk, y1, end)
                    elif together == 4:
                        lay_rows_in_four(source, target, lanes, walk, y1, end)
                    else:
                        lay_rows_by_four(source, target, lanes, walk, y1, end)
            for number in range(together):
                clear(block + 4 * (number * lay.phase + last), lay.phase - last, 0, 0, 0, 0)


@compile_within
def _neighbours(starts: Longs, step: int) -> int:
    """Return how many phases, one behind the other, are those of a row: all of `step`, or one by itself."""
    for phase in range(starts.shape[0]):
        first = phase // step * step
        same = starts[phase, 0] == starts[first, 0] and starts[phase, 1] == starts[first, 1]
        if starts.shape[0] % step or not same or starts[phase, 2] != starts[first, 2] + phase - first:
            return 1
    return step


@compile_within
def _lanes(begin: int, size: int, wanted: int) -> int:
    """Return a bit for each lane of a vector from `begin` on that is in a row of a size, and among the wanted ones."""
    low, high = max(0, -begin), min(LANES, size - begin, wanted)
    return (1 << high) - (1 << low) if low < high else 0


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
    joined = lanes == 1 and step.x == 1 and step.y == wide.row == extent.x  # rows lie behind each other in both
    count, more = (extent.y * extent.x, 1) if joined else (extent.x, extent.y)
    for channel in range(channels):
        for example in range(examples):
            for z in range(extent.z):
                for y in range(more):
                    at = channel * pitch + example * wide.example + z * wide.slice + y * wide.row
                    to = first + example * put.target.example + channel * put.target.channel + z * step.z + y * step.y
                    if lanes > 1:
                        for n in range(extent.x):
                            out[to + n * step.x] = rows[at + n * lanes]
                    elif step.x == 1:
                        copy(source + 4 * at, target + 4 * to, count, 0, 0, 0)
                    else:
                        for n in range(extent.x):
                            out[to + n * step.x] = rows[at + n]


@compile_loop
def pack(w: Floats, rows: int, pitch: int, apart: int, places: Longs, block: int, out: Floats) -> None:
    """Write a block of rows of weights, place by place, to out[:, block] (groups, places, rows of a block).

    Weights of a group lie `apart`, and of it `rows` by `pitch`; behind the last are zeros.
    """
    many, count = out.shape[3], places.size
    whole = many == ACROSS and (block + 1) * many <= rows  # then vectors are turned, and as many places at a time
    near = np.empty((LANES, many), np.float32)
    for group in range(out.shape[0]):
        first, n = group * apart + block * many * pitch, 0
        while whole and pitch == 1 and n < count:
            fetch(w.ctypes.data + 4 * (first + places[min(n + SOON, count - 1)]), 0, 0, 0, 0, 0)
            copy(w.ctypes.data + 4 * (first + places[n]), out[group, block, n].ctypes.data, many, 0, 0, 0)
            n += 1
        while whole and n < count:
            low, end, straight = _find_near(places, n)
            if first + (many - 1) * pitch + low + LANES > w.size:
                break
            target = out[group, block, n].ctypes.data if straight else near.ctypes.data
            for row in range(0, many, LANES):
                turn(w.ctypes.data + 4 * (first + row * pitch + low), pitch, target + 4 * row, many, 0, 0)
            for k in range(n, n if straight else end):
                place = near.ctypes.data + 4 * many * (places[k] - low)
                copy(place, out[group, block, k].ctypes.data, many, 0, 0, 0)
            n = end
        for k in range(n, count):
            for m in range(many):
                row = block * many + m
                out[group, block, k, m] = w[group * apart + row * pitch + places[k]] if row < rows else 0


@compile_within
def _find_near(places: Longs, n: int) -> tuple[int, int, bool]:
    """Return the lowest of places that lie within a vector, where those from n on end, and if they fill it in order."""
    low, high, end = places[n], places[n], n + 1
    straight = True
    while end < places.size and end < n + LANES:
        low_with, high_with = min(low, places[end]), max(high, places[end])
        if high_with - low_with >= LANES:
            break
        straight = straight and places[end] == places[end - 1] + 1
        low, high, end = low_with, high_with, end + 1
    return low, end, straight and end == n + LANES


@compile_loop
def put_weights(gradient: Floats, out: Floats) -> None:
    """Write a gradient, see `correlate_across`, to out (rows, channels, places of the kernel)."""
    for row in range(out.shape[0]):
        for channel in range(out.shape[1]):
            for place in range(out.shape[2]):
                out[row, channel, place] = gradient[row // ACROSS, place, channel, row % ACROSS]
