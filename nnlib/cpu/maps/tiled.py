"""Convolutions of float32 numbers by compiled tiles of sums, each piece on one thread.

What a sum adds up, and in which order, depends neither on pieces nor on threads in the forward pass and in the gradient
of a source. The gradient of weights is summed over examples piece by piece, in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod
from types import ModuleType

import numpy as np

from nnlib.cpu.maps.shifts import Shifts, backward_shifts, forward_axis, forward_shifts, merged
from nnlib.cpu.scratch import SCRATCH
from nnlib.spec.geometry import Sweep
from nnlib.util.arrays import Floats
from nnlib.util.threads import Each, consume

WIDTH, LONGER = 512, 1024  # places of a band: in sums, and in the products that weights' gradients are
NUMBERS = 1 << 17  # of a source that are laid out at a time: 512 KB
GROUPS, TARGETS, SOURCES = 16, 64, 96  # groups and channels of a piece of a weights' gradient
PIECES = 8  # at least, where there is as much work


class Tiled:
    """See `Convolutions`."""

    versions: Mapping[str, str] = {}

    def __init__(self, loops: ModuleType) -> None:
        self._loops = loops
        self._dots = (*loops.DOTS, loops.ORDER)

    def forward(self, x: Floats, w: Floats, sweep: Sweep, each: Each) -> Floats:
        """See `Convolutions`."""
        sweep = merged(sweep)
        below, above = sweep.source.channels // sweep.groups, sweep.target.channels // sweep.groups
        z = np.empty((len(x), sweep.target.units), np.float32)
        shifts = forward_shifts(sweep, below, WIDTH, NUMBERS)
        self._sum(x, w.reshape(sweep.groups, above, sweep.fan_in), shifts, z, each)
        return z

    def input_gradient(self, delta: Floats, w: Floats, sweep: Sweep, each: Each) -> Floats:
        """See `Convolutions`."""
        sweep = merged(sweep)
        below, above = sweep.source.channels // sweep.groups, sweep.target.channels // sweep.groups
        parts = backward_shifts(sweep, above, WIDTH, NUMBERS)
        places = sum(prod(band.put.extent) for part in parts for band in part.bands)
        new = np.empty if places == sweep.source.area else np.zeros
        gradient = new((len(delta), sweep.source.units), np.float32)
        kernels = w.reshape(sweep.groups, above, below, sweep.volume).swapaxes(1, 2)
        for part in parts:
            weights = kernels[..., list(part.kernel)].reshape(sweep.groups, below, -1)
            self._sum(delta, weights, part, gradient, each)
        return gradient

    def _sum(self, x: Floats, w: Floats, shifts: Shifts, out: Floats, each: Each) -> None:
        """Write to `out` the sums of x shifted, by weights w (groups, target channels, source channels and places)."""
        groups, above, _ = w.shape
        weights = _blocks(w, self._loops)
        blocks, rows = weights.shape[1], weights.shape[3]
        bands = [(first, band) for first in range(0, len(x), shifts.examples) for band in shifts.bands]
        cuts = min(blocks, -(-PIECES // len(bands)))
        x, flat = np.ascontiguousarray(x).reshape(-1), out.reshape(-1)
        below = len(shifts.base)
        base = shifts.base.reshape(-1)

        def piece(number: int) -> None:
            (first, band), cut = bands[number // cuts], number % cuts
            some = cut * blocks // cuts, (cut + 1) * blocks // cuts
            examples = min(shifts.examples, len(out) - first)
            width = (examples - 1) * shifts.wide.example + band.width
            laid = SCRATCH.get("laid", (below * shifts.wide.channel,), np.float32)
            sums = SCRATCH.get("sums", (rows * shifts.own.channel,), np.float32)
            begin, to = first * band.lay.source.example, first * band.put.target.example + band.put.first
            self._loops.convolve(
                *(x, begin, band.lay, band.starts, base, width, weights, (0, groups), some),
                *(examples, (below, above), band.put, to, laid, sums, flat),
            )

        consume(each(piece, range(len(bands) * cuts)))

    def weight_gradient(self, x: Floats, delta: Floats, sweep: Sweep, each: Each) -> Floats:
        """See `Convolutions`."""
        sweep = merged(sweep)
        below, above = sweep.source.channels // sweep.groups, sweep.target.channels // sweep.groups
        batch, volume = len(x), sweep.volume
        phases = prod(len(forward_axis(window).phases) for window in sweep.windows)
        sources = _ranges(below, max(1, SOURCES // phases))
        shifts = forward_shifts(sweep, max(map(len, sources)), LONGER, NUMBERS)
        parts = list(product(_ranges(sweep.groups, GROUPS), _ranges(above, TARGETS), sources))
        steps = range(0, batch, shifts.examples)
        sums = _ranges(len(steps), -(-len(steps) // -(-PIECES // len(parts))))
        many, others, order = (1, self._loops.ALONE, self._loops.ORDER_ALONE) if above == 1 else self._dots
        base = np.append(shifts.base, np.zeros(others, np.int64))
        x, delta = np.ascontiguousarray(x).reshape(-1), np.ascontiguousarray(delta).reshape(-1)
        gradient = np.zeros((sweep.groups, above, below * volume), np.float32)

        def piece(number: int) -> Floats:
            (groups, rows, channels), some = parts[number // len(sums)], sums[number % len(sums)]
            tiles = -(-len(channels) * volume // others), -(-len(rows) // many)
            part = np.zeros(
                (len(groups), *tiles, -(-many * others // self._loops.LANES) * self._loops.LANES), np.float32
            )
            laid = SCRATCH.get("laid", (len(channels) * shifts.wide.channel,), np.float32)
            wide = SCRATCH.get("sums", (tiles[1] * many * shifts.own.channel,), np.float32)
            for step, band in product(some, shifts.bands):
                examples = min(shifts.examples, batch - steps[step])
                source, target = band.lay.source, band.own.source
                begin = steps[step] * source.example + (groups[0] * below + channels[0]) * source.channel
                above_begin = steps[step] * target.example + (groups[0] * above + rows[0]) * target.channel
                width = (examples - 1) * shifts.wide.example + band.width
                self._loops.correlate(
                    *(x, begin, band.lay, band.starts, base, width, delta, above_begin, band.own, band.own_starts),
                    *((below * source.channel, above * target.channel), examples, (len(channels), len(rows))),
                    *(laid, wide, part),
                )
            found = part[..., list(order)].reshape(len(groups), *tiles, many, others).transpose(0, 2, 3, 1, 4)
            return found.reshape(len(groups), tiles[1] * many, -1)[:, : len(rows), : len(channels) * volume]

        for number, part in enumerate(each(piece, range(len(parts) * len(sums)))):
            groups, rows, channels = parts[number // len(sums)]
            columns = slice(channels.start * volume, channels.stop * volume)
            gradient[_slice(groups), _slice(rows), columns] += part
        return gradient.reshape(sweep.target.channels, sweep.fan_in)


def _ranges(count: int, most: int) -> list[range]:
    """Cut into ranges of at most so many that differ little."""
    parts = -(-count // most)
    return [range(n * count // parts, (n + 1) * count // parts) for n in range(parts)]


def _slice(numbers: range) -> slice:
    return slice(numbers.start, numbers.stop)


def _blocks(w: Floats, loops: ModuleType) -> Floats:
    """Return weights (groups, blocks of rows, columns, rows of a block), with zeros for the rows that are missing."""
    groups, rows, columns = w.shape
    size = 1 if rows == 1 else min(loops.FEW, loops.ROWS) if rows <= loops.FEW else loops.ROWS
    blocks = -(-rows // size)
    if rows % size:
        whole = np.zeros((groups, blocks * size, columns), w.dtype)
        whole[:, :rows] = w
        w = whole
    return np.ascontiguousarray(w.reshape(groups, blocks, size, columns).swapaxes(2, 3))
