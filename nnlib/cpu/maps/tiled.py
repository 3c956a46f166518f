"""Convolutions of float32 numbers by compiled tiles of sums, each piece on one thread.

What a sum adds up, and in which order, depends neither on pieces nor on threads in the forward pass and in the gradient
of a source. The gradient of weights is summed over examples piece by piece, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import islice, product
from math import prod
from operator import iadd
from types import ModuleType

import numpy as np

from nnlib.cpu.maps.shifts import Room, Shifts, backward_shifts, forward_axis, forward_shifts, merged, without_gaps
from nnlib.cpu.maps.tasks import NUMBERS, PIECES, Part, Task, all_of, channels_of, memory, padded, ranges, width_of
from nnlib.cpu.maps.turned import pieces_across, products_across, turns, weights_across
from nnlib.cpu.scratch import empty_lines
from nnlib.shards.tree import Tree
from nnlib.spec.geometry import Sweep
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import Each, consume

GROUPS, TARGETS, SOURCES = 16, 64, 96  # groups and channels of a piece of a weights' gradient
ROWS = 8  # a number of channels is a multiple of it, where nothing is laid out
WASTE = 1.25  # places for one wanted from which on lanes of examples cost less
MANY = 64  # products of a sum from which on
TURNING = 30  # products that cost as much as turning their sum


class Tiled:
    """See `Convolutions`."""

    def __init__(self, loops: ModuleType) -> None:
        self._loops = loops

    def forward(self, x: Floats, w: Floats, sweep: Sweep, each: Each) -> Floats:
        """See `Convolutions`."""
        sweep = merged(sweep)
        below, above = channels_of(sweep)
        z = np.empty((len(x), sweep.target.units), np.float32)
        plain = above % ROWS == 0
        tasks, rows = self._tasks(
            len(x), above, lambda lanes: forward_shifts(sweep, below, Room(width_of(sweep), NUMBERS, lanes, plain))
        )
        places = np.arange(sweep.fan_in)
        self._sum(x, self._pack(w, sweep.groups, above, sweep.fan_in, places, rows, each), above, tasks, z, each)
        return z

    def input_gradient(self, delta: Floats, w: Floats, sweep: Sweep, each: Each) -> Floats:
        """See `Convolutions`."""
        sweep = merged(sweep)
        below, above = channels_of(sweep)
        plain = below % ROWS == 0
        parts = backward_shifts(sweep, above, Room(width_of(sweep), NUMBERS, plain=plain))
        places = sum(prod(band.put.extent) for part in parts for band in part.bands)
        new = np.empty if places == sweep.source.area else np.zeros
        gradient = new((len(delta), sweep.source.units), np.float32)
        rows = np.arange(above)[:, None] * sweep.fan_in
        for number, part in enumerate(parts):

            def find(lanes: int, number: int = number) -> Shifts:
                return backward_shifts(sweep, above, Room(width_of(sweep), NUMBERS, lanes, plain))[number]

            tasks, size = self._tasks(len(delta), below, find)
            places = (rows + np.array(part.kernel)).reshape(-1)
            weights = self._pack(w, sweep.groups, below, sweep.volume, places, size, each)
            self._sum(delta, weights, below, tasks, gradient, each)
        return gradient

    def _tasks(self, batch: int, above: int, find: Callable[[int], Shifts]) -> tuple[list[Task], int]:
        """Return what there is to do for a batch, and how many of `above` rows of sums are done together."""
        loops = self._loops
        if _goes_across(find(1), above, loops):
            return list(all_of(find(1), 0, batch)), loops.ACROSS
        rows = 1 if above == 1 else loops.FEW if above <= loops.FEW else loops.ROWS
        return self._in_lanes(slice(0, batch), find), rows

    def _in_lanes(self, some: slice, find: Callable[[int], Shifts]) -> list[Task]:
        """Return what there is to do for some examples: in lanes as far as that pays, then example behind example."""
        shifts, begin = find(1), some.start
        found: list[Task] = []
        lanes = self._loops.LANES
        if len(shifts.kernel) > 1 and shifts.base.size >= MANY and shifts.waste > WASTE:
            begin += (some.stop - begin) // lanes * lanes
            found += all_of(find(lanes), some.start, begin) if begin > some.start else []
        return found + list(all_of(shifts, begin, some.stop))

    def _pack(self, w: Floats, groups: int, rows: int, pitch: int, places: Longs, size: int, each: Each) -> Floats:
        """Return weights (groups, blocks of rows, places, rows of a block); `places` say where those of a row are."""
        shape = groups, -(-rows // size), len(places), size
        found = empty_lines(prod(shape), np.float32).reshape(shape)
        flat = np.ascontiguousarray(w).reshape(-1)

        def block(number: int) -> None:
            self._loops.pack(flat, rows, pitch, len(flat) // groups, places, number, found)

        consume(each(block, range(found.shape[1])))
        return found

    def _sum(self, x: Floats, w: Floats, above: int, tasks: list[Task], out: Floats, each: Each) -> None:
        """Write to `out` the sums of x shifted, by packed weights w."""
        groups, blocks, _, rows = w.shape
        count = groups if groups > 1 else blocks
        cuts = min(count, -(-PIECES // len(tasks)))
        x, flat = np.ascontiguousarray(x).reshape(-1), out.reshape(-1)

        def piece(number: int) -> None:
            task, cut = tasks[number // cuts], number % cuts
            shifts, band = task.shifts, task.band
            base, channels = shifts.base.reshape(-1), (len(shifts.base), above)
            some = cut * count // cuts, (cut + 1) * count // cuts
            part = (some, (0, blocks)) if groups > 1 else ((0, 1), some)
            source, target = band.lay.source, band.put.target
            begin, to = task.first * source.example, task.first * target.example + band.put.first
            if shifts.as_it_is:
                self._loops.convolve_as_it_is(
                    *(x, begin + band.starts[0, 2], base, task.width, w, *part),
                    *(channels, (source.channel, target.channel), to, flat),
                )
                return
            put, pitch = band.put, shifts.own.channel
            if rows == self._loops.ACROSS:
                dense = without_gaps(put.extent, task.examples)
                put, pitch = put._replace(wide=dense), dense.channel
            laid, sums = memory("laid", channels[0] * shifts.wide.channel), memory("sums", rows * pitch)
            tiles = np.array(self._loops.cut(put.extent.x), np.int64)
            self._loops.convolve(
                *(x, begin, band.lay, band.starts, base, task.width, w, *part),
                *(task.examples, shifts.lanes, tiles, channels, put, to, laid, sums, flat),
            )

        consume(each(piece, range(len(tasks) * cuts)))

    def weight_gradient(
        self, x: Floats, delta: Floats, sweep: Sweep, each: Each, shards: Sequence[slice] = ()
    ) -> Floats:
        """See `Convolutions`; what shards give is added as it comes, before it is put where weights are."""
        sweep = merged(sweep)
        (below, above), loops = channels_of(sweep), self._loops
        shifts = forward_shifts(sweep, below, Room(width_of(sweep), NUMBERS, plain=above % ROWS == 0))
        pieces, products, weights = (
            (pieces_across, products_across, weights_across)
            if turns(shifts, above, loops)
            else (self._pieces, _products, _weights)
        )
        parts, branches = pieces(sweep, shards or (slice(0, len(x)),), loops)
        cuts = [ranges(len(tasks), -(-len(tasks) // -(-PIECES // len(parts)))) if tasks else [] for tasks in branches]
        each_one = [(part, branch, cut) for part in parts for branch, sums in enumerate(cuts) for cut in sums]
        x, delta = (np.ascontiguousarray(array).reshape(-1) for array in (x, delta))

        def piece(number: int) -> Floats:
            part, branch, cut = each_one[number]
            sums: Floats = products(x, delta, sweep, part, [branches[branch][n] for n in cut], loops)
            return sums

        given = iter(each(piece, range(len(each_one))))
        gradient = np.empty((sweep.groups, above, below * sweep.volume), np.float32)
        for part in parts:
            tree = Tree[Floats]()
            with np.errstate(all="ignore"):  # behind the last channel tiles hold what was in memory
                for sums in cuts:
                    tree.add(reduce(iadd, islice(given, len(sums))) if sums else np.zeros_like(tree.first))
                total = tree.total()
            groups, rows, channels = part
            columns = slice(channels.start * sweep.volume, channels.stop * sweep.volume)
            gradient[_slice(groups), _slice(rows), columns] = weights(total, sweep, part, loops)
        return gradient.reshape(sweep.target.channels, sweep.fan_in)

    def _pieces(self, sweep: Sweep, shards: Sequence[slice], _: ModuleType) -> tuple[list[Part], list[list[Task]]]:
        """Return what of the gradient of weights is computed by itself, and what there is to do for each shard."""
        (below, above), volume = channels_of(sweep), sweep.volume
        plain = above % ROWS == 0
        phases = prod(len(forward_axis(window).phases) for window in sweep.windows)
        rows = ranges(above, TARGETS if volume > 1 else 4 * TARGETS, ROWS if plain else 1)
        fewer = max(1, 4 * TARGETS // len(rows[0])) if volume == 1 else 1  # rows: then more channels meet each
        sources = ranges(below, max(1, SOURCES * fewer // phases))
        widest = max(map(len, sources))

        def find(lanes: int) -> Shifts:
            return forward_shifts(sweep, widest, Room(width_of(sweep), NUMBERS, lanes, plain))

        parts = list(product(ranges(sweep.groups, GROUPS), rows, sources))
        return parts, [self._in_lanes(some, find) for some in shards]


def _products(x: Floats, delta: Floats, sweep: Sweep, part: Part, tasks: list[Task], loops: ModuleType) -> Floats:
    """Return what tasks contribute to the gradient of the weights of some groups, target and source channels.

    As `_weights` takes it.
    """
    (below, above), (groups, rows, channels) = channels_of(sweep), part
    many, others = (1, loops.ALONE) if above == 1 else loops.DOTS
    tiles = -(-len(channels) * sweep.volume // others), -(-len(rows) // many)
    size = -(-many * others // loops.LANES) * loops.LANES
    found = np.zeros((len(groups), *tiles, size), np.float32)
    before, longer = None, np.empty(0, np.int64)
    begins = [_begin(task, groups, rows, channels, sweep) for task in tasks]
    for task, begin, soon in zip(tasks, begins, [*begins[1:], begins[-1]], strict=True):
        shifts, band = task.shifts, task.band
        if shifts is not before:
            before, longer = shifts, _longer(shifts, others)
        laid_numbers = own_numbers = 1
        if not shifts.as_it_is:  # a tile may end in channels that another part has
            laid_numbers, own_numbers = len(shifts.base) * shifts.wide.channel, tiles[1] * many * shifts.own.channel
        apart = below * band.lay.source.channel, above * band.own.source.channel
        loops.correlate(
            *(x, begin[0], band.lay, band.starts, longer, task.width, delta, begin[1], band.own, band.own_starts),
            *(apart, task.examples, shifts.lanes, (len(channels), len(rows)), shifts.as_it_is),
            (soon[0] - begin[0], soon[1] - begin[1]),
            *(memory("laid", laid_numbers), memory("sums", own_numbers), found),
        )
    return found


def _weights(found: Floats, sweep: Sweep, part: Part, loops: ModuleType) -> Floats:
    """Return the gradient (groups, target channels, source channels times places of the kernel) of a part."""
    (_, above), (groups, rows, channels) = channels_of(sweep), part
    many, others, order = (1, loops.ALONE, loops.ORDER_ALONE) if above == 1 else (*loops.DOTS, loops.ORDER)
    tiles = found.shape[1:3]
    found = found[..., list(order)].reshape(len(groups), *tiles, many, others).transpose(0, 2, 3, 1, 4)
    return found.reshape(len(groups), tiles[1] * many, -1)[:, : len(rows), : len(channels) * sweep.volume]


def _begin(task: Task, groups: range, rows: range, channels: range, sweep: Sweep) -> tuple[int, int]:
    """Return with which numbers of x and of delta a task begins."""
    (below, above), band = channels_of(sweep), task.band
    source, target = band.lay.source, band.own.source
    first = task.first * source.example + (groups[0] * below + channels[0]) * source.channel
    own = task.first * target.example + (groups[0] * above + rows[0]) * target.channel
    if task.shifts.as_it_is:
        return first + int(band.starts[0, 2]), own + int(band.own_starts[0, 2])
    return first, own


def _goes_across(shifts: Shifts, above: int, loops: ModuleType) -> bool:
    """Return whether tiles across the rows of sums take less than tiles along the places."""
    if shifts.as_it_is or not loops.ACROSS:
        return False
    extent = shifts.bands[0].put.extent.x
    across = sum(loops.cut(extent)) / extent * padded(above, loops.ACROSS) * (1 + TURNING / shifts.base.size)
    return bool(across < shifts.waste * padded(above, loops.ROWS))


def _longer(shifts: Shifts, more: int) -> Floats:
    """Return the shifts, and some more: the last tile may end behind them."""
    return np.append(shifts.base, np.zeros(more, np.int64))


def _slice(numbers: range) -> slice:
    return slice(numbers.start, numbers.stop)
