"""A convolution as sums of shifted rows: how maps are laid out so that a place of the kernel is one shift of them all.

Maps are copied with the zeros around them, row behind row, into one long row, in which p, a place of the target, is a
number, and what a place of the kernel meets there stands at p + shift, whatever p is. Some p lie between two rows of
the target, and what is computed for them is thrown away. Where a kernel takes every s-th place, each of the s phases of
the source is laid out by itself. Zeros behind a row are also those before the next.

The gradient of a source is the same with delta as the source: each of its s phases by itself, of the places of the
kernel that reach it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from nnlib.spec.geometry import Maps, Sweep, Window
from nnlib.util.arrays import Longs

AXES = 3
LINE = 16  # numbers of a line of the cache
PAGE = 1024
BESIDE = 512  # places up to which examples are laid side by side
LEAST = 208  # places of a band, if there are as many


class Box(NamedTuple):
    """A number for each axis, slowest first."""

    z: int
    y: int
    x: int


class Pitches(NamedTuple):
    """How many numbers lie between the first of two."""

    example: int
    channel: int
    slice: int
    row: int


class Lay(NamedTuple):
    """How maps are laid out: every `step`-th place, `extent` of them; zeros before 0 and from `size` on."""

    size: Box
    step: Box
    extent: Box
    source: Pitches
    wide: Pitches
    phase: int  # as `wide`


class Put(NamedTuple):
    """Where the places of a band go: `first` and every `step` numbers from there."""

    first: int
    extent: Box
    step: Box
    target: Pitches
    wide: Pitches


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a source, and the places p of a target that are made of it: of step p + first + tap, for each tap."""

    size: int
    count: int  # of places p
    step: int
    first: int
    taps: tuple[int, ...]  # none below 0
    kernel: tuple[int, ...]  # the kernel's place of each
    target: int  # how long the target is
    begin: int = 0  # place p is begin + p stride there
    stride: int = 1

    @property
    def phases(self) -> tuple[int, ...]:
        """Return which phases the taps take."""
        return tuple(sorted({tap % self.step for tap in self.taps}))

    @property
    def reach(self) -> int:
        """Return how many places of a phase are met beyond p itself."""
        return max(self.taps) // self.step

    def pitch(self, most: int) -> int:
        """Return how many numbers lie from one run of at most so many places to the next."""
        if most < self.count:
            return most + self.reach
        length = self.count + self.reach
        shared = [self.reach]  # zeros that follow one run and come before the next
        for phase in self.phases:
            shared.append(-((self.first + phase) // self.step))
            shared.append(length + (self.first + phase - self.size) // self.step)
        return length - max(0, min(shared))


@dataclass(frozen=True, slots=True)
class Room:
    """How much is laid out at a time: places of the target, and numbers of the source, of so many lanes of examples.

    With more than one lane, as many examples are laid out place by place, all lanes of one beside each other: then
    nothing lies between the rows of a target. `plain` allows to take maps as they are.
    """

    width: int
    numbers: int
    lanes: int = 1
    plain: bool = True
    examples: int = 0  # side by side, whose maps are not cut; 0: as many as fit


@dataclass(frozen=True)
class Band:
    """Some places of the target."""

    starts: Longs  # (phases, axes): the first place of each phase of the source
    lay: Lay
    put: Put
    own: Lay  # how the target is laid out as the band is, with zeros between its rows
    own_starts: Longs
    width: int  # places, those between rows among them, of one example


@dataclass(frozen=True)
class Shifts:
    """How the places of a target are made of those of a source, channel by channel."""

    kernel: tuple[int, ...]  # the kernel's places
    base: Longs  # (channels, len(kernel)): the shift of each
    bands: tuple[Band, ...]
    examples: int  # as many are laid out side by side
    wide: Pitches  # of a source that is laid out
    own: Pitches  # of a target
    lanes: int
    as_it_is: bool  # nothing is laid out: places are where they are in the source, and in the target

    @property
    def waste(self) -> float:
        """How many places are computed for each that is wanted."""
        band = self.bands[0]
        width = (self.examples - 1) * self.wide.example + band.width
        return -(-width // LINE) * LINE / (self.examples * prod(band.put.extent))


@lru_cache(maxsize=512)
def merged(sweep: Sweep) -> Sweep:
    """Return the same with neighbouring axes as one, where the kernel takes every place by itself."""
    windows: list[Window] = []
    for window in sweep.windows:
        alone = window == Window(window.size, 1)
        if windows and alone and windows[-1] == Window(windows[-1].size, 1):
            windows[-1] = Window(windows[-1].size * window.size, 1)
        else:
            windows.append(window)
    source, target = (tuple(getattr(window, name) for window in windows) for name in ("size", "out"))
    return Sweep(Maps(sweep.source.channels, source), Maps(sweep.target.channels, target), tuple(windows), sweep.groups)


def forward_axis(window: Window) -> Axis:
    """Return how a target is made of its source."""
    taps = tuple(n * window.dilation for n in range(window.kernel))
    return Axis(window.size, window.out, window.stride, -window.low, taps, tuple(range(window.kernel)), window.out)


def backward_axes(window: Window) -> list[Axis]:
    """Return how a source's gradient is made of delta: for each phase of the source that the kernel meets."""
    found = []
    of_phase: defaultdict[int, list[int]] = defaultdict(list)
    for n in range(window.kernel):
        of_phase[n * window.dilation % window.stride].append(n)
    for phase, kernel in sorted(of_phase.items()):
        begin = -(-max(0, window.low - phase) // window.stride)
        count = (window.size - 1 + window.low - phase) // window.stride - begin + 1
        if count > 0:
            kernel.reverse()  # so that memory is met in its order
            back = [n * window.dilation // window.stride for n in kernel]
            taps = tuple(back[0] - n for n in back)
            place = begin * window.stride + phase - window.low
            axis = Axis(window.out, count, 1, begin - back[0], taps, tuple(kernel), window.size, place, window.stride)
            found.append(axis)
    return found


@lru_cache(maxsize=512)
def forward_shifts(sweep: Sweep, channels: int, room: Room) -> Shifts:
    """Return how a target is made of so many channels, in bands of at most `width` places and `numbers` of a source."""
    axes = [forward_axis(window) for window in sweep.windows]
    return _shifts(_Way(sweep, axes, sweep.source, sweep.target), channels, room)


@lru_cache(maxsize=512)
def backward_shifts(sweep: Sweep, channels: int, room: Room) -> tuple[Shifts, ...]:
    """Return how the parts of a source's gradient are made of so many channels of delta."""
    ways = product(*(backward_axes(window) for window in sweep.windows))
    return tuple(_shifts(_Way(sweep, list(axes), sweep.target, sweep.source), channels, room) for axes in ways)


class _Way:
    """From maps to maps."""

    def __init__(self, sweep: Sweep, axes: list[Axis], source: Maps, target: Maps) -> None:
        self.kernel = [window.kernel for window in sweep.windows]
        self.axes = (*[Axis(1, 1, 1, 0, (0,), (0,), 1)] * (AXES - len(axes)), *axes)
        self.phases = list(product(*(axis.phases for axis in self.axes)))
        self.size, self.target = (self._box(name) for name in ("size", "target"))
        self.pitches = _pitches(source, self.size), _pitches(target, self.target)

    def _box(self, name: str) -> Box:
        return Box(*(getattr(axis, name) for axis in self.axes))

    @property
    def as_it_is(self) -> bool:
        """Whether each place is made of itself, and lines of the cache need not be cut."""
        alone = (Axis(axis.size, axis.size, 1, 0, (0,), (0,), axis.size) for axis in self.axes)
        return self.axes == tuple(alone) and self.target[:2] == (1, 1) and self.target.x % LINE == 0


def _pitches(maps: Maps, size: Box) -> Pitches:
    return Pitches(maps.units, maps.area, size.y * size.x, size.x)


def _shifts(way: _Way, channels: int, room: Room) -> Shifts:
    if room.plain and way.as_it_is:
        return _as_it_is(way, channels, room.width)
    lanes = room.lanes
    width = max(LEAST, min(room.width, room.numbers // (channels * len(way.phases))))
    examples, steps = _steps(way.axes, width // lanes)
    examples = room.examples or (examples if lanes == 1 else 1)
    z, y, x = (axis.pitch(step) for axis, step in zip(way.axes, steps, strict=True))
    reach = [axis.reach for axis in way.axes]
    phase = _up(lanes * (examples * z * y * x + reach[0] * y * x + reach[1] * x + reach[2]))
    example = z * y * x if lanes == 1 else 1
    wide = Pitches(example, _off_page(phase * len(way.phases)), lanes * y * x, lanes * x)
    own = wide._replace(channel=_off_page(_up(lanes * examples * z * y * x)))
    bands = tuple(_bands(way, steps, (wide, own), phase, lanes))
    kernel, base = _kernel(way, wide, phase, lanes)
    shifts = np.arange(channels)[:, None] * wide.channel + np.array(base)
    return Shifts(kernel, np.ascontiguousarray(shifts, np.int64), bands, max(examples, lanes), wide, own, lanes, False)


def _as_it_is(way: _Way, channels: int, most: int) -> Shifts:
    """Return shifts from channel to channel; the longest axis is cut at lines of the cache."""
    source, target = way.pitches
    step = _even(way.target.x // LINE, most // LINE) * LINE
    wide, own = source._replace(example=0), target._replace(example=0)
    bands = tuple(_bands(way, Box(1, 1, step), (wide, own), 0, 1))
    base = np.arange(channels, dtype=np.int64)[:, None] * source.channel
    return Shifts((0,), base, bands, 1, wide, own, 1, True)


def _steps(axes: tuple[Axis, ...], width: int) -> tuple[int, Box]:
    """Return how many examples, and how much of each axis, fit into a band."""
    z, y, x = (axis.count for axis in axes)
    inner = 1
    for axis in axes[::-1]:
        inner *= axis.pitch(axis.count)
    row = axes[2].pitch(x)
    a_slice = row * axes[1].pitch(y)
    if inner <= width:
        return max(1, min(width, BESIDE) // inner), Box(z, y, x)
    if a_slice <= width:
        return 1, Box(_even(z, width // a_slice), y, x)
    if row <= width:
        return 1, Box(1, _even(y, width // row), x)
    return 1, Box(1, 1, _even(x, width))


def _even(count: int, most: int) -> int:
    """Return the size of parts that differ little."""
    return -(-count // -(-count // most))


def _bands(way: _Way, steps: Box, wide: tuple[Pitches, Pitches], phase: int, lanes: int) -> Iterator[Band]:
    axes, ones = way.axes, Box(1, 1, 1)
    source, target = way.pitches
    step = Box(*(axis.step for axis in axes))
    along = (target.slice, target.row, 1)
    put_step = Box(*(axis.stride * n for axis, n in zip(axes, along, strict=True)))
    for low in product(*(range(0, axis.count, n) for axis, n in zip(axes, steps, strict=True))):
        count = Box(*(min(n, axis.count - at) for axis, n, at in zip(axes, steps, low, strict=True)))
        firsts = [axis.first + at * axis.step for axis, at in zip(axes, low, strict=True)]
        starts = np.array(firsts) + np.array(way.phases)
        laid = Box(*(n + axis.reach for axis, n in zip(axes, count, strict=True)))
        first = sum((axis.begin + at * axis.stride) * n for axis, at, n in zip(axes, low, along, strict=True))
        gaps = [axis.pitch(n) if n == axis.count and lanes == 1 else n for axis, n in zip(axes, count, strict=True)]
        end = Box(*(at + n for at, n in zip(low, count, strict=True)))
        yield Band(
            np.ascontiguousarray(starts, np.int64),
            Lay(way.size, step, laid, source, wide[0], phase),
            Put(first, count, put_step, target, wide[1]),
            Lay(end, ones, Box(*gaps), target, wide[1], wide[1].channel),
            np.array([low], np.int64),
            (count.z - 1) * wide[0].slice + (count.y - 1) * wide[0].row + lanes * count.x,
        )


def _kernel(way: _Way, wide: Pitches, phase: int, lanes: int) -> tuple[tuple[int, ...], list[int]]:
    """Return the places of the kernel, in their order, and how far from p what they meet is laid out."""
    kernel, shifts = [], []
    strides = [0] * (AXES - len(way.kernel)) + [prod(way.kernel[n + 1 :]) for n in range(len(way.kernel))]
    for taps in product(*(zip(axis.taps, axis.kernel, strict=True) for axis in way.axes)):
        number = way.phases.index(tuple(tap % axis.step for axis, (tap, _) in zip(way.axes, taps, strict=True)))
        z, y, x = (tap // axis.step for axis, (tap, _) in zip(way.axes, taps, strict=True))
        shifts.append(number * phase + z * wide.slice + y * wide.row + x * lanes)
        kernel.append(sum(place * stride for (_, place), stride in zip(taps, strides, strict=True)))
    return tuple(kernel), shifts


def without_gaps(extent: Box, examples: int) -> Pitches:
    """Return the pitches of places with nothing between them, and room for a vector behind the last of a channel."""
    z, y, x = extent
    return Pitches(z * y * x, _off_page(_up(examples * z * y * x)), y * x, x)


def _up(numbers: int) -> int:
    return -(-numbers // LINE) * LINE + LINE


def _off_page(numbers: int) -> int:
    """Return a pitch that is no whole number of pages: rows that lie so share few lines of the cache."""
    return numbers + LINE * (numbers % PAGE == 0)
