"""How maps are laid out: what fits into a cache, where zeros are shared, and what is taken as it is."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlib.cpu.maps.shifts import Room, backward_axes, backward_shifts, forward_axis, forward_shifts, merged
from nnlib.cpu.maps.tasks import NUMBERS, WIDTH
from nnlib.spec.geometry import Maps, Sweep, Window
from tests.nnlib.sweeps import sweep_over, sweeps

LARGE = {
    "VGG": sweep_over((Window(224, 3, 1, 1, 1),) * 2, 64, 64),
    "many channels": sweep_over((Window(7, 3, 1, 1, 1),) * 2, 2048, 512),
    "a volume": sweep_over((Window(64, 3, 1, 1, 1),) * 3, 32, 32),
    "a long signal": sweep_over((Window(1_000_000, 9, 1, 4, 4),), 64, 64),
    "a wide stride": sweep_over((Window(224, 11, 4, 2, 2),) * 2, 3, 96),
}


@pytest.mark.parametrize("sweep", LARGE.values(), ids=LARGE)
def test_what_is_laid_out_fits_into_some_megabytes(sweep):
    for room in (Room(WIDTH, NUMBERS), Room(WIDTH, NUMBERS, 16)):
        found = forward_shifts(sweep, sweep.source.channels, room)
        assert 4 * found.wide.channel * sweep.source.channels <= 8 << 20
        assert 4 * found.own.channel * 64 <= 4 << 20


@settings(deadline=None)
@given(sweeps(), st.sampled_from([1, 16]))
def test_every_place_is_in_one_band(sweep, lanes):
    room = Room(20, 200, lanes)
    shifts = forward_shifts(sweep, sweep.source.channels, room)
    assert sum(prod(band.put.extent) for band in shifts.bands) == sweep.target.area
    parts = backward_shifts(sweep, sweep.target.channels, room)
    assert sum(prod(band.put.extent) for part in parts for band in part.bands) <= sweep.source.area
    places = [place for part in parts for place in part.kernel]
    assert len(places) == len(set(places)) and set(places) <= set(range(sweep.volume))


def test_a_stride_beyond_the_axis_takes_no_time():
    found = backward_axes(Window(28, 3, 2**31 - 1, 1, 1))
    assert [(axis.begin, axis.kernel) for axis in found] == [(0, (1,)), (1, (2,))]


def test_zeros_behind_a_row_are_those_before_the_next():
    axis = forward_axis(Window(7, 3, 1, 1, 1))
    assert (axis.count, axis.reach, axis.pitch(7)) == (7, 2, 8)
    assert forward_axis(Window(7, 3, 1, 1, 0)).pitch(5) == 7  # no zeros behind, so nothing is shared
    assert axis.pitch(3) == 5  # a part of the axis


def test_axes_of_a_kernel_of_one_are_one():
    sweep = sweep_over((Window(3, 2), Window(5, 1), Window(6, 1)), 2, 2)
    assert merged(sweep) == Sweep(Maps(2, (3, 30)), Maps(2, (2, 30)), (Window(3, 2), Window(30, 1)))
    strided = sweep_over((Window(6, 1), Window(6, 1, 2)), 2, 2)
    assert merged(strided) == strided


def test_maps_are_taken_as_they_are_where_lines_of_the_cache_are_whole():
    assert forward_shifts(merged(sweep_over((Window(28, 1),) * 2, 4, 8)), 4, Room(512, 1000)).as_it_is
    assert not forward_shifts(merged(sweep_over((Window(14, 1),) * 2, 4, 8)), 4, Room(512, 1000)).as_it_is
    assert not forward_shifts(sweep_over((Window(16, 1, 2),), 4, 8), 4, Room(512, 1000)).as_it_is
