"""Compiled convolutions: tiles of what maps that are laid out give. Twins: `ops.convolution`, `cpu.maps.convolution`.

`lay`, `put` and pitches are those of `cpu.maps.shifts`, which says what they mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.compiled.compiler import compile_loop, compile_within
from nnlib.compiled.laying import lay_out, put_back
from nnlib.compiled.tiles import (
    ACROSS,
    ALONE,
    ALONE_VECTORS,
    DOTS,
    FEW,
    PAIRED,
    ROWS,
    VECTORS,
    add_across,
    dots,
    dots_alone,
    merge_place,
    sum_across,
    sum_two_across,
    sums,
    sums_alone,
    sums_alone_narrow,
    sums_few,
    sums_few_narrow,
    sums_narrow,
    turn_all,
)
from nnlib.compiled.vectors import LANES

Floats = NDArray[Any]
Longs = NDArray[Any]
MANY, OTHERS = DOTS
BRANCHES = 2  # tiles of sums that are kept besides what becomes the sum of eight shards


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
    tiles: Longs,
    channels: tuple[int, int],
    put: Any,
    to: int,
    laid: Floats,
    rows: Floats,
    out: Floats,
) -> None:
    """Write to `out`, from `to` on, what the weights w (groups, blocks, channels and places, rows of a block) give.

    `groups` and `blocks` are taken from the first to behind the last; `channels` are those of a group, of the source
    and of the target. `tiles` are the places of a row, where blocks have ACROSS rows: then nothing lies between rows of
    `put`. `laid` and `rows` are memory: for all channels of a source, and for the rows of a block.
    """
    below, above = channels
    many, pitch, count = w.shape[3], rows.size // w.shape[3], base.size
    places, begins = base.ctypes.data, _begin_rows(lay, put.extent, examples if many == ACROSS else 0)
    for group in range(groups[0], groups[1]):
        lay_out(x, first + group * below * lay.source.channel, lay, starts, examples, lanes, below, laid)
        for block in range(blocks[0], blocks[1]):
            weights = w[group, block].ctypes.data
            if many == ACROSS:
                _sum_rows(
                    laid.ctypes.data, begins, places, count, weights, rows.ctypes.data, pitch, tiles, put.extent.x
                )
            else:
                for z in range(put.extent.z if lanes > 1 else 1):
                    for y in range(put.extent.y if lanes > 1 else 1):
                        at = 4 * (z * lay.wide.slice + y * lay.wide.row)
                        here, there = laid.ctypes.data + at, rows.ctypes.data + at
                        _sum_tiles(here, places, count, weights, there, pitch, width, many)
            target = to + (group * above + block * many) * put.target.channel
            put_back(rows, pitch, put, target, examples, lanes, min(many, above - block * many), out)


@compile_within
def _begin_rows(lay: Any, extent: Any, examples: int) -> Longs:
    """Return how many bytes from the first each row of the target begins, in a source that is laid out."""
    found = np.empty(examples * extent.z * extent.y, np.int64)
    n = 0
    for example in range(examples):
        for z in range(extent.z):
            for y in range(extent.y):
                found[n] = 4 * (example * lay.wide.example + z * lay.wide.slice + y * lay.wide.row)
                n += 1
    return found


@compile_within
def _sum_rows(
    x: int, begins: Longs, base: int, count: int, w: int, z: int, pitch: int, tiles: Longs, extent: int
) -> None:
    """Compute z (ACROSS, places) at an address, a row of the target behind the other, two at a time if they fit."""
    n, numbers = 0, np.array([pitch, 0])
    if tiles.size == 1 and tiles[0] == extent and extent in PAIRED:
        for _ in range(begins.size // 2):
            numbers[1] = begins[n + 1] - begins[n]
            sum_two_across(x + begins[n], base, count, w, z + 4 * n * extent, numbers.ctypes.data, extent)
            n += 2
    for row in range(n, begins.size):
        here, there = x + begins[row], z + 4 * row * extent
        for tile in tiles:
            sum_across(here, base, count, w, there, pitch, tile)
            here, there = here + 4 * tile, there + 4 * tile


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
    soon: tuple[int, int],
    laid: Floats,
    rows: Floats,
    gradient: Floats,
) -> None:
    """Add to `gradient` (groups, tiles of places, tiles of rows, what a tile gives) what some examples contribute.

    Groups are so many numbers `apart`, in x and in delta, and so many `channels` of each are used. `base` is longer
    than there are places, so that a tile of them may end behind the last. What comes after this is so many numbers
    further, `soon`, in x and in delta. `laid` and `rows` are memory.
    """
    pitch = own.wide.channel
    shape = np.array([(width + LANES - 1) // LANES, own.extent.y if lanes > 1 else 1, own.wide.row, 0])
    many, others = (1, ALONE) if channels[1] == 1 else (MANY, OTHERS)
    for group in range(gradient.shape[0]):
        begin, above = first + group * apart[0], delta_first + group * apart[1]
        left, right = laid.ctypes.data, rows.ctypes.data
        if as_it_is:
            left, right = x.ctypes.data + 4 * begin, delta.ctypes.data + 4 * above
        else:
            lay_out(x, begin, lay, starts, examples, lanes, channels[0], laid)
            lay_out(delta, above, own, own_starts, examples, lanes, channels[1], rows)
        fetched = 0  # channels of what comes afterwards, those of delta before the first of x
        for place in range(gradient.shape[1]):
            here = base.ctypes.data + 8 * place * others
            for row in range(gradient.shape[2]):
                there = right + 4 * row * many * pitch
                shape[3] = there
                if as_it_is and row < others and place + 1 < gradient.shape[1]:
                    shape[3] = left + 4 * base[(place + 1) * others + row]
                elif as_it_is and fetched < channels[1]:
                    shape[3] = right + 4 * (fetched * pitch + soon[1])
                    fetched += 1
                elif as_it_is and fetched < channels[1] + others:
                    shape[3] = left + 4 * (base[fetched - channels[1]] + soon[0])
                    fetched += 1
                out = gradient[group, place, row].ctypes.data
                for z in range(own.extent.z if lanes > 1 else 1):
                    at = 4 * z * own.wide.slice
                    if channels[1] == 1:
                        dots_alone(left + at, here, there + at, pitch, out, shape.ctypes.data)
                    else:
                        dots(left + at, here, there + at, pitch, out, shape.ctypes.data)


@compile_loop
def correlate_across(
    x: Floats,
    first: int,
    lay: Any,
    starts: Longs,
    delta: Floats,
    delta_first: int,
    own: Any,
    own_starts: Longs,
    examples: int,
    channels: tuple[int, int],
    base: Longs,
    borders: Longs,
    shifts: Longs,
    tiles: Longs,
    laid: Floats,
    turned: Floats,
    rows: Floats,
    room: Floats,
    gradient: Floats,
) -> None:
    """Add to `gradient` (blocks of rows, places of the kernel, channels, ACROSS rows) what some examples contribute.

    `base` says where in a source that is laid out the places of delta begin, example behind example, and `shifts` how
    far from there each place of the kernel is, both times the channels of `gradient`. `tiles` are of channels. With
    several shards, of which each has the places from one of `borders` to the next, `gradient` becomes the tree's sum of
    theirs, a power of two. `laid`, `turned`, `rows` and `room` are memory: of LANES channels, of the source by places,
    of delta in either form, of BRANCHES of the largest tile.
    """
    below, above = channels
    pitch, count, places = gradient.shape[2], starts.shape[0] * lay.phase, base.size
    source, by_place, target = laid.ctypes.data, turned.ctypes.data, rows.ctypes.data
    for channel in range(0, below, LANES):
        some = min(LANES, below - channel)
        lay_out(x, first + channel * lay.source.channel, lay, starts, examples, 1, some, laid)
        turn_all(source, lay.wide.channel, count, by_place + 4 * channel, pitch)
    weights = target + 4 * ACROSS * own.wide.channel
    for block in range(gradient.shape[0]):
        some = min(ACROSS, above - block * ACROSS)
        lay_out(delta, delta_first + block * ACROSS * own.source.channel, own, own_starts, examples, 1, some, rows)
        for row in range(0, ACROSS, LANES):
            turn_all(target + 4 * row * own.wide.channel, own.wide.channel, places, weights + 4 * row, ACROSS)
        for place in range(shifts.size):
            here, there = by_place + 4 * shifts[place], gradient[block, place].ctypes.data
            for tile in tiles:
                if borders.size == 2:
                    add_across(here, base.ctypes.data, places, weights, there, tile, -1)
                else:
                    _add_shards(here, base.ctypes.data, borders, weights, there, tile, room.ctypes.data)
                here, there = here + 4 * tile, there + 4 * ACROSS * tile


@compile_within
def _add_shards(x: int, base: int, borders: Longs, w: int, z: int, places: int, room: int) -> None:
    """Let z[p, row] be the sum of shards of k, see `add_across`, of which every other one is added to the one before.

    The sums of pairs are added in the order of `shards.tree`, while they are in the cache.
    """
    tile, branches = 4 * ACROSS * places, 0
    for shard in range(borders.size - 1):
        first, height = borders[shard], shard + 1
        branches += height % 2
        there = z if branches == 1 else room + (branches - 2) * tile
        kept = -(shard % 2)
        add_across(x, base + 8 * first, borders[height] - first, w + 4 * ACROSS * first, there, places, kept)
        while height % 4 == 0:
            below = z if branches == 2 else room + (branches - 3) * tile
            for place in range(0, tile, 4 * ACROSS):
                merge_place(below + place, there + place, 0, 0, 0, 0)
            branches, there, height = branches - 1, below, height // 2
