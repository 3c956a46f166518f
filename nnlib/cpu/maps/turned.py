"""The gradient of a convolution's weights by tiles across the target's maps, for which maps are turned to places first.

A source is laid out channel by channel, see `shifts`, and then turned: behind each place stand its channels. Delta is
turned without anything between its places. A tile is some channels at a place of the kernel by ACROSS maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod
from types import ModuleType

import numpy as np

from nnlib.cpu.maps.shifts import LINE, Band, Box, Lay, Pitches, Room, Shifts, forward_shifts, without_gaps
from nnlib.cpu.maps.tasks import NUMBERS, PIECES, Part, Task, all_of, channels_of, memory, padded, ranges, width_of
from nnlib.spec.geometry import Sweep
from nnlib.util.arrays import Floats, Longs

PADDED = 4 / 3  # target channels for one wanted up to which maps are turned, of LEAST source channels at least
LEAST = 24
# Target channels of a piece, and its source channels times the places of the kernel: copies are seldom made again,
# memory stays in a core's cache, and there is work for eight threads.
PIECE, PIECE_OF_ONE_PLACE = (128, 800), (512, 256)
TURNED = 1 << 17  # numbers of a source up to which several shards are turned at a time: 512 KB


def turns(shifts: Shifts, above: int, loops: ModuleType) -> bool:
    """Return whether this is the faster way: maps would be copied anyway, and have enough channels."""
    if shifts.as_it_is or not loops.ACROSS:
        return False
    return len(shifts.base) >= LEAST and padded(above, loops.ACROSS) <= PADDED


def pieces_across(sweep: Sweep, shards: Sequence[slice], loops: ModuleType) -> tuple[list[Part], list[list[Task]]]:
    """Return what of the gradient is computed by itself, and what there is to do for each branch of the shards.

    Those of few places are laid out together, as far as there is memory and work for eight threads: each has its sum in
    turn while a tile of them is in the cache, where it would else be met eight times as often.
    """
    below, above = channels_of(sweep)
    rows, numbers = PIECE if sweep.volume > 1 else PIECE_OF_ONE_PLACE
    sources = ranges(below, max(LEAST, numbers // sweep.volume))
    parts = list(product(ranges(sweep.groups, 1), ranges(above, rows, loops.ACROSS), sources))
    widest, room = max(map(len, sources)), Room(width_of(sweep), NUMBERS, plain=False)
    shifts, examples = forward_shifts(sweep, widest, room), shards[0].stop - shards[0].start
    together = len(shards) if len(shifts.bands) == 1 and examples <= shifts.examples else 1
    while together > 1:
        joined = forward_shifts(sweep, widest, replace(room, examples=together * examples))
        if len(parts) * len(shards) >= PIECES * together and joined.wide.channel * _pitch(widest) <= TURNED:
            return parts, [_join(joined, shards[n : n + together]) for n in range(0, len(shards), together)]
        together //= 2
    return parts, [list(all_of(shifts, some.start, some.stop)) for some in shards]


def _join(shifts: Shifts, shards: Sequence[slice]) -> list[Task]:
    """Return the one task that some shards are, or none where they have no examples."""
    first, examples = shards[0].start, shards[-1].stop - shards[0].start
    ends = tuple(some.stop - first for some in shards)
    return [Task(shifts, shifts.bands[0], first, examples, ends)] if examples else []


def _pitch(channels: int) -> int:
    """Return how many numbers lie from a place to the next: no power of two, and room for the last tile."""
    return (channels // LINE + 2) * LINE


def products_across(x: Floats, delta: Floats, sweep: Sweep, part: Part, tasks: list[Task], loops: ModuleType) -> Floats:
    """Return what tasks contribute to the gradient of the weights of a group, of some target and source channels.

    As `weights_across` takes it.
    """
    (group,), rows, channels = part
    below, above = channels_of(sweep)
    pitch = _pitch(len(channels))
    tiles = np.array(loops.cut(len(channels)), np.int64)
    found = np.zeros((-(-len(rows) // loops.ACROSS), sweep.volume, pitch, loops.ACROSS), np.float32)
    for task in tasks:
        shifts, band = task.shifts, task.band
        source, own = band.lay.source, _compact(band, task.examples)
        loops.correlate_across(
            *(x, task.first * source.example + (group * below + channels[0]) * source.channel, band.lay, band.starts),
            *(delta, task.first * own.source.example + (group * above + rows[0]) * own.source.channel),
            *(own, band.own_starts, task.examples, (len(channels), len(rows))),
            _places(band.put.extent, shifts.wide, task.examples) * pitch,
            np.array((0, *(task.ends or (task.examples,)))) * prod(band.put.extent),
            *(shifts.base[0] * pitch, tiles),
            memory("laid", LINE * shifts.wide.channel),
            memory("turned", shifts.wide.channel * pitch),
            memory("sums", 2 * loops.ACROSS * own.wide.channel),
            memory("branches", loops.BRANCHES * max(tiles) * loops.ACROSS),
            found,
        )
    return found


def weights_across(found: Floats, sweep: Sweep, part: Part, loops: ModuleType) -> Floats:
    """Return the gradient (1, target channels, source channels times places of the kernel) of a part."""
    _, rows, channels = part
    gradient = np.empty((len(rows), len(channels), sweep.volume), np.float32)
    loops.put_weights(found, gradient)
    return gradient.reshape(1, len(rows), -1)


def _compact(band: Band, examples: int) -> Lay:
    """Return how a target is laid out with nothing between its places."""
    wide = without_gaps(band.put.extent, examples)
    return band.own._replace(extent=band.put.extent, wide=wide, phase=wide.channel)


@lru_cache(maxsize=512)
def _places(extent: Box, wide: Pitches, examples: int) -> Longs:
    """Return where places of a target, one behind the other, begin in a source that is laid out."""
    e, z, y, x = np.indices((examples, *extent), np.int64).reshape(1 + len(extent), -1)
    found: Longs = e * wide.example + z * wide.slice + y * wide.row + x
    return found
