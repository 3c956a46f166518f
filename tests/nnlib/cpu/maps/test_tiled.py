"""What tiles read and write: nothing behind the end of an array, on any kind of processor."""

from __future__ import annotations

import warnings
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nnlib.compiled import loops
from nnlib.compiled.tiles import ALONE, DOTS_OF, FEW, PLACES, cut
from nnlib.cpu.maps.convolution import Unfolded
from nnlib.cpu.maps.tiled import ROWS, Tiled
from nnlib.cpu.scratch import LINE, SCRATCH, Scratch
from nnlib.shards.cut import Rows
from nnlib.shards.tree import RANKS, shards_of, tree_sum
from nnlib.spec.geometry import Sweep, Window
from nnlib.util.threads import map_in_turn
from tests.nnlib.sweeps import arrays_of, sweep_over

PROCESSORS = {"sse": (4, 8, DOTS_OF[False]), "avx2": (8, 4, DOTS_OF[True]), "avx512": (16, 8, DOTS_OF[False])}


class Ends(SimpleNamespace):
    """Loops that compute nothing but look where they would read and write the furthest."""

    def __init__(self, lanes: int, rows: int, dots: tuple[int, int]) -> None:
        orders = (tuple(range(n)) for n in (dots[0] * dots[1], ALONE))
        super().__init__(LANES=lanes, ROWS=rows, FEW=FEW, DOTS=dots, ALONE=ALONE, seen=set())
        self.ORDER, self.ORDER_ALONE = orders
        self.ACROSS, self.cut, self.BRANCHES = (2 * lanes if lanes == 16 else 0), cut, 2

    def pack(self, *_: Any) -> None:
        """Nothing."""

    def _places(self, width: int, extent: Any, wide: Any, lanes: int) -> int:
        """Return how many numbers behind its begin a sum goes, up to the end of a vector."""
        along = (extent.z - 1) * wide.slice + (extent.y - 1) * wide.row if lanes > 1 else 0
        return along + -(-width // self.LANES) * self.LANES

    def _lay_out(self, lay: Any, starts: Any, examples: int, lanes: int, channels: int, out: Any) -> None:
        extent, wide = lay.extent, lay.wide
        last = (examples - 1) * wide.example if lanes == 1 else 0
        last += (extent.z - 1) * wide.slice + (extent.y - 1) * wide.row
        row = lanes * extent.x if lanes > 1 else -(-extent.x // self.LANES) * self.LANES
        assert last + row <= lay.phase
        assert lanes > 1 or extent.x >= wide.row or extent.y * extent.z * examples == 1
        assert lanes > 1 or extent.y * wide.row >= wide.slice or extent.z * examples == 1
        assert lanes > 1 or extent.z * wide.slice >= wide.example or examples == 1
        assert (channels - 1) * wide.channel + len(starts) * lay.phase <= out.size

    def convolve(self, x, first, lay, starts, base, width, w, groups, blocks, examples, lanes, tiles, channels, *rest):
        put, _, laid, rows, _ = rest
        self._lay_out(lay, starts, examples, lanes, channels[0], laid)
        if w.shape[3] == self.ACROSS:
            last = (examples - 1) * lay.wide.example
            last += (put.extent.z - 1) * lay.wide.slice + (put.extent.y - 1) * lay.wide.row
            assert base.max() + last + sum(tiles) <= laid.size
            places = prod((examples, *put.extent)) - put.extent.x + sum(tiles[:-1]) + self.LANES
        else:
            places = self._places(width, put.extent, lay.wide, lanes)
            assert base.max() + places <= laid.size
        assert places <= rows.size // w.shape[3]
        self.seen.add("across" if w.shape[3] == self.ACROSS else "laid out")

    def convolve_as_it_is(self, x, first, base, width, w, groups, blocks, channels, pitches, to, out):
        places, rows = -(-width // self.LANES) * self.LANES, w.shape[3]
        assert first + (groups[1] - 1) * channels[0] * pitches[0] + base.max() + places <= x.size
        last = (groups[1] - 1) * channels[1] + blocks[1] * rows - 1
        assert to + last * pitches[1] + places <= out.size
        self.seen.add("as it is")

    def correlate(self, x, first, lay, starts, base, width, delta, delta_first, own, own_starts, apart, *rest):
        examples, lanes, channels, as_it_is, _, laid, rows, gradient = rest
        many, others = (1, ALONE) if channels[1] == 1 else self.DOTS
        places = self._places(width, own.extent, own.wide, lanes)
        used = base[: gradient.shape[1] * others]
        assert used.size == gradient.shape[1] * others
        above = (gradient.shape[2] * many - 1) * own.wide.channel + places
        if as_it_is:
            further = [(len(gradient) - 1) * pitch for pitch in apart]
            assert first + further[0] + used.max() + places <= x.size
            assert delta_first + further[1] + above <= delta.size
        else:
            self._lay_out(lay, starts, examples, lanes, channels[0], laid)
            self._lay_out(own, own_starts, examples, lanes, channels[1], rows)
            assert used.max() + places <= laid.size
            assert above <= rows.size
        self.seen.add("dots as it is" if as_it_is else "dots laid out")

    def correlate_across(self, x, first, lay, starts, delta, delta_first, own, own_starts, examples, channels, *rest):
        base, borders, shifts, tiles, laid, turned, rows, room, gradient = rest
        blocks, _, pitch, _ = gradient.shape
        assert borders[0] == 0 and borders[-1] == base.size and (np.diff(borders) >= 0).all()
        assert borders.size - 1 in RANKS
        assert room.size >= self.BRANCHES * max(tiles) * self.ACROSS
        self._lay_out(lay, starts, examples, 1, min(self.LANES, channels[0]), laid)
        self._lay_out(own, own_starts, examples, 1, min(self.ACROSS, channels[1]), rows)
        assert self.LANES * lay.wide.channel <= laid.size
        numbers = -(-len(starts) * lay.phase // self.LANES) * self.LANES
        assert numbers <= lay.wide.channel and numbers * pitch <= turned.size
        assert base.size == examples * prod(own.extent)
        places = -(-base.size // self.LANES) * self.LANES
        assert places <= own.wide.channel
        assert self.ACROSS * (own.wide.channel + places) <= rows.size
        assert sum(tiles) <= pitch and -(-channels[0] // self.LANES) * self.LANES <= pitch
        assert base.max() + shifts.max() + sum(tiles) <= turned.size
        assert blocks * self.ACROSS >= channels[1]
        self.seen.add("dots across" if borders.size == 2 else "shards across")

    def put_weights(self, gradient: Any, out: Any) -> None:
        assert gradient.size >= out.size
        out.fill(0)


def random_sweep(random: np.random.Generator) -> Sweep:
    """Return one of few places and of many channels, often taken as they are."""
    alone, stride = random.random() < 0.4, int(random.integers(1, 4))
    windows = []
    for _ in range(random.integers(1, 4)):
        size = int(random.choice([4, 5, 7, 8, 12]))
        kernel = Window(size, int(random.integers(1, 4)), stride, *map(int, random.integers(0, 3, 2)))
        windows.append(Window(size, 1) if alone else kernel)
    groups = int(random.choice([1, 1, 2, 5]))
    below, above = (groups * int(random.choice([1, 3, 8, 24, 64, 70, 130, 200])) for _ in range(2))
    return sweep_over(tuple(windows), below, above, groups)


def shards_of_first(examples: int, ranks: int) -> list[slice]:
    """Return the shards of the first of some ranks, of which the last may have fewer examples, or none."""
    mine = Rows(examples, shards_of(0, ranks))
    return [mine.shard(place) for place in range(len(mine.own))]


BANDED = [  # bands of different sizes along each axis
    sweep_over((Window(2999, 5, 1, 2, 2, 3),), 5, 8),
    sweep_over((Window(71, 3, 1, 1, 1), Window(67, 3, 2, 1, 1)), 9, 8),
    sweep_over((Window(23, 3, 1, 1, 1), Window(13, 3), Window(19, 3, 1, 0, 2)), 3, 8),
    sweep_over((Window(11, 2), Window(3, 3, 1, 1, 1), Window(700, 3, 1, 1, 1)), 4, 4, 4),
]


@pytest.mark.parametrize("processor", PROCESSORS.values(), ids=PROCESSORS)
def test_nothing_behind_the_end_of_an_array_is_met(processor):
    random, ends = np.random.default_rng(1), Ends(*processor)
    tiled = Tiled(ends)  # type: ignore[arg-type]
    for sweep in (*BANDED, *(random_sweep(random) for _ in range(300))):
        examples = int(random.choice([1, 3, 19]))
        x, delta = (np.empty((examples, maps.units), np.float32) for maps in (sweep.source, sweep.target))
        w = np.empty((sweep.target.channels, sweep.fan_in), np.float32)
        tiled.forward(x, w, sweep, map_in_turn)
        tiled.input_gradient(delta, w, sweep, map_in_turn)
        tiled.weight_gradient(x, delta, sweep, map_in_turn)
        shards = shards_of_first(examples, int(random.choice(RANKS)))
        tiled.weight_gradient(x[: shards[-1].stop], delta[: shards[-1].stop], sweep, map_in_turn, shards)
    across = {"across", "dots across", "shards across"} if ends.ACROSS else set()
    assert ends.seen == {"laid out", "as it is", "dots laid out", "dots as it is"} | across


def test_what_memory_held_before_is_of_no_consequence():
    random, tiled = np.random.default_rng(2), Tiled(loops)
    for sweep in (*BANDED, *(random_sweep(random) for _ in range(10))):
        examples = int(random.choice([1, 3, 19]))
        x, w, delta = arrays_of(sweep, examples, dtype=np.float32)
        found = []
        for before in (0, np.nan):
            for array in SCRATCH._arrays.values():
                array.fill(before if array.dtype == np.float32 else 0)
            parts = tiled.forward(x, w, sweep, map_in_turn), tiled.input_gradient(delta, w, sweep, map_in_turn)
            found.append([part.tobytes() for part in (*parts, tiled.weight_gradient(x, delta, sweep, map_in_turn))])
        assert found[0] == found[1]


@pytest.mark.parametrize("examples", [5, 19])
def test_sums_that_nobody_takes_may_overflow_without_a_warning(examples):
    sweep, tiled = sweep_over((Window(70, 7, 2, 3, 3), Window(70, 7, 2, 3, 3)), 3, 42), Tiled(loops)
    x, _, delta = arrays_of(sweep, examples, dtype=np.float32)
    wanted = tiled.weight_gradient(x, delta, sweep, map_in_turn)
    for array in SCRATCH._arrays.values():
        array.fill(np.finfo(np.float32).max if array.dtype == np.float32 else 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = tiled.weight_gradient(x, delta, sweep, map_in_turn)
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("narrow", DOTS_OF)
def test_tiles_of_dots_end_where_maps_that_are_not_laid_out_do(narrow):
    assert ROWS % DOTS_OF[narrow][0] == 0


def test_rows_are_cut_into_tiles_without_a_rest():
    for places in range(1, 200):
        tiles = cut(places)
        assert set(tiles) <= set(PLACES) and sum(tiles) >= places > sum(tiles[:-1])
        assert sum(tiles) == places or places < 30
    assert all(sum(cut(places)) == places for places in (7, 12, 13, 14, 19, 27, 28, 49))


WAYS = {
    "one behind the other": slice(None),
    "every other one": slice(None, None, 2),
    "backwards": slice(None, None, -1),
    "far apart": slice(None, None, 20),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("groups", "rows", "count"), [(1, 64, 50), (2, 70, 37), (3, 32, 15), (1, 33, 16)])
@pytest.mark.parametrize("beside", [False, True], ids=["a row's lie beside each other", "a place's do"])
def test_weights_are_packed_place_by_place(groups, rows, count, way, beside):
    w = np.random.default_rng(1).standard_normal((groups, count, rows) if beside else (groups, rows, count), np.float32)
    places = np.arange(0, rows * count, rows)[way] if beside else np.arange(count)[way]
    for size in {loops.ROWS, loops.ACROSS} - {0}:
        blocks = -(-rows // size)
        found = np.empty((groups, blocks, len(places), size), np.float32)
        for block in range(blocks):
            loops.pack(w.reshape(-1), rows, 1 if beside else count, rows * count, places, block, found)
        wanted = np.zeros((groups, blocks * size, len(places)), np.float32)
        wanted[:, :rows] = (w.swapaxes(1, 2) if beside else w)[:, :, way]
        np.testing.assert_array_equal(found, wanted.reshape(groups, blocks, size, -1).swapaxes(2, 3))


def test_weights_for_the_gradient_of_a_source_are_packed_kernel_by_kernel():
    w = np.random.default_rng(1).standard_normal((40, 64, 9), np.float32)  # targets, sources, places of the kernel
    places = (np.arange(40)[:, None] * 64 * 9 + np.array([8, 6, 4, 2, 0])).reshape(-1)
    for size in {loops.ROWS, loops.ACROSS} - {0}:
        found = np.empty((1, 64 // size, len(places), size), np.float32)
        for block in range(64 // size):
            loops.pack(w.reshape(-1), 64, 9, w.size, places, block, found)
        wanted = w[:, :, ::-2].swapaxes(1, 2).reshape(-1, 64 // size, size).swapaxes(0, 1)
        np.testing.assert_array_equal(found[0], wanted)


@pytest.mark.parametrize("examples", [1, 2, 9])
@pytest.mark.parametrize("window", [Window(7, 3, 1, 1, 1), Window(6, 3, 1, 1, 1), Window(13, 3, 2, 1, 1)])
def test_rows_that_share_a_tile_give_what_they_give_alone(window, examples):
    sweep = sweep_over((window, window), 5, 64)
    x, w, _ = arrays_of(sweep, examples, dtype=np.float32)
    wanted = Unfolded().forward(x.astype(np.float64), w.astype(np.float64), sweep, map_in_turn)
    found = Tiled(loops).forward(x, w, sweep, map_in_turn)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)


DEEP = [  # few places, so that shards are laid out together: eight, four beside four, and none
    sweep_over((Window(2, 3, 1, 1, 1), Window(2, 3, 1, 1, 1)), 360, 512),
    sweep_over((Window(4, 3, 2, 1, 1), Window(4, 3, 2, 1, 1)), 200, 160),
    sweep_over((Window(5, 1, 2), Window(5, 1, 2)), 300, 520),
    sweep_over((Window(13, 3, 1, 1, 1), Window(13, 3, 1, 1, 1)), 48, 64),
]


@pytest.mark.parametrize("examples", [3, 8, 13, 32, 75])
@pytest.mark.parametrize("sweep", DEEP)
def test_shards_have_the_sums_that_they_have_alone_and_the_tree_adds_them(sweep, examples):
    """Whichever a rank has, of several sizes or without examples, and where products vanish but for their sign."""
    tiled = Tiled(loops)
    x, w, delta = arrays_of(sweep, examples, dtype=np.float32)
    x[::3] *= np.float32(1e-30)
    delta[::3] *= np.float32(1e-30)
    found = []
    for ranks in RANKS:
        parts = []
        for mine in (Rows(examples, shards_of(rank, ranks)) for rank in range(ranks)):
            shards = [mine.shard(place) for place in range(len(mine.own))]
            some = mine.take(x), mine.take(delta)
            parts.append(tiled.weight_gradient(*some, sweep, map_in_turn, shards) if mine.count else np.zeros_like(w))
        found.append(tree_sum(parts))
    assert len({gradient.tobytes() for gradient in found}) == 1
    wanted = Unfolded().weight_gradient(x.astype(np.float64), delta.astype(np.float64), sweep, map_in_turn)
    np.testing.assert_allclose(found[0], wanted, rtol=0, atol=3e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("across", [Window(61, 11, 4, 2, 2), Window(30, 4, 4), Window(41, 7, 2, 3, 3), Window(9, 2, 2)])
@pytest.mark.parametrize("down", [Window(9, 3, 2, 1, 1), Window(9, 5, 4, 2, 2), Window(6, 3, 1, 1, 1)])
def test_phases_of_a_row_that_are_laid_out_together_are_what_the_kernel_meets(across, down):
    sweep = sweep_over((down, across), 3, 64)
    x, w, _ = arrays_of(sweep, 3, dtype=np.float32)
    wanted = Unfolded().forward(x.astype(np.float64), w.astype(np.float64), sweep, map_in_turn)
    found = Tiled(loops).forward(x, w, sweep, map_in_turn)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-5)


def test_memory_of_a_thread_begins_with_a_line_of_the_cache():
    for dtype in (np.float32, np.uint16, np.uint8):
        assert Scratch().get("some", (3, 5), dtype).ctypes.data % LINE == 0
