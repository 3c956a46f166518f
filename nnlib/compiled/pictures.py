"""Compiled changes of pictures, of which NumPy makes several passes. Twin: `change` of `model.augmentation`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.compiled.compiler import compile_loop
from nnlib.util.arrays import Floats, Longs

RED, GREEN, BLUE = 299, 587, 114  # thousandths of grey


@compile_loop
def change_pictures(
    stored: NDArray[np.uint8],
    crop: int,
    moves: Longs,
    flips: NDArray[np.bool_],
    factors: Floats,
    coloured: bool,
    found: Floats,
) -> None:
    """Write pictures of bytes (n, channels, height, width), moved, mirrored and perhaps coloured, to `found` as inputs.

    Of `moves` (n, 2) those of rows come first; `factors` (n, 3) are what values, grey and the mean grey are multiplied
    by. The arrays of floats are float32.
    """
    count, channels, height, width = stored.shape
    moved = np.empty((channels, height, width), np.uint8)
    more = np.empty(width, np.float32)
    for n in range(count):
        total = 0
        for channel in range(channels):
            for y in range(height):
                row = stored[n, channel, _mirror(y + moves[n, 0] - crop, height)]
                _move(row, moves[n, 1] - crop, flips[n], moved[channel, y])
            if coloured:
                total += _sum(moved[channel]) * (1000 if channels == 1 else (RED, GREEN, BLUE)[channel])
        if coloured:
            mean = np.float32(total / (256_000 * height * width))
            _colour(moved, factors[n, 0], factors[n, 1], factors[n, 2] * mean, more, found[n])
        else:
            _convert(moved, found[n])


@compile_loop
def _mirror(place: int, size: int) -> int:
    if place < 0:
        return -place
    return 2 * size - 2 - place if place >= size else place


@compile_loop
def _move(row: NDArray[np.uint8], by: int, flip: bool, found: NDArray[np.uint8]) -> None:
    """Copy a row from `by` on; what is within it at once, and the mirror beyond its ends."""
    size = row.size
    low, high = max(0, -by), min(size, size - by)
    inside, source = found[low:high], row[low + by : high + by]
    for x in range(high - low):
        inside[x] = source[x]
    for x in range(low):
        found[x] = row[_mirror(x + by, size)]
    for x in range(high, size):
        found[x] = row[_mirror(x + by, size)]
    if flip:
        for x in range(size // 2):
            found[x], found[size - 1 - x] = found[size - 1 - x], found[x]


@compile_loop
def _sum(values: NDArray[np.uint8]) -> int:
    total = 0
    for y in range(values.shape[0]):
        row = values[y]
        added = np.uint32(0)
        for x in range(row.size):
            added += np.uint32(row[x])
        total += int(added)
    return int(total)


@compile_loop
def _convert(moved: NDArray[np.uint8], found: Floats) -> None:
    byte, middle = np.float32(1 / 256), np.float32(0.5)
    for channel in range(moved.shape[0]):
        for y in range(moved.shape[1]):
            row, into = moved[channel, y], found[channel, y]
            for x in range(row.size):
                into[x] = np.float32(row[x]) * byte - middle


@compile_loop
def _colour(moved: NDArray[np.uint8], gain: Any, of_grey: Any, added: Any, more: Floats, found: Floats) -> None:
    channels, height, width = moved.shape
    byte, most, middle, none = np.float32(1 / 256), np.float32(255 / 256), np.float32(0.5), np.float32(0)
    red, green, blue = np.float32(RED / 1000), np.float32(GREEN / 1000), np.float32(BLUE / 1000)
    for y in range(height):
        if channels == 1:
            one = moved[0, y]
            for x in range(width):
                more[x] = of_grey * (np.float32(one[x]) * byte) + added
        else:
            one, two, three = moved[0, y], moved[1, y], moved[2, y]
            for x in range(width):
                grey = red * (np.float32(one[x]) * byte) + green * (np.float32(two[x]) * byte)
                more[x] = of_grey * (grey + blue * (np.float32(three[x]) * byte)) + added
        for channel in range(channels):
            row, into = moved[channel, y], found[channel, y]
            for x in range(width):
                value = gain * (np.float32(row[x]) * byte) + more[x]
                value = none if value < none else value
                into[x] = (most if value > most else value) - middle
