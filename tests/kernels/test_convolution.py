"""Convolution against its reference: straight from the maps, and by what is unfolded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from nnlib.gpu.maps.sweeps import channels_of, sweep_words
from nnlib.ops import convolution
from nnlib.spec.geometry import Sweep, Window
from tests.kernels.host import poisoned, run
from tests.nnlib.sweeps import sweep_over

EPSILON = float(np.finfo(np.float32).eps)
SWEEPS = {
    "one place": sweep_over((), 3, 5),
    "1x1": sweep_over((Window(3, 1, 1, 0, 0), Window(2, 1, 1, 0, 0)), 70, 65),
    "3x3": sweep_over((Window(5, 3, 1, 1, 1), Window(6, 3, 1, 1, 1)), 3, 4),
    "stride": sweep_over((Window(9, 3, 2, 1, 0), Window(8, 2, 3, 0, 1)), 2, 3),
    "dilation": sweep_over((Window(9, 3, 1, 2, 2, 2), Window(11, 3, 2, 0, 3, 3)), 2, 3),
    "lopsided": sweep_over((Window(4, 3, 1, 0, 2), Window(5, 4, 2, 3, 0)), 2, 3),
    "row": sweep_over((Window(40, 5, 2, 2, 2),), 4, 6),
    "volume": sweep_over((Window(4, 2, 1, 1, 0), Window(5, 3, 2, 1, 1), Window(3, 3, 1, 1, 1)), 2, 3),
    "groups": sweep_over((Window(5, 3, 1, 1, 1), Window(5, 3, 1, 1, 1)), 6, 9, groups=3),
    "depthwise": sweep_over((Window(7, 3, 2, 1, 1), Window(6, 3, 2, 1, 1)), 5, 5, groups=5),
    "multiplied": sweep_over((Window(5, 3, 1, 1, 1), Window(5, 3, 1, 1, 1)), 3, 6, groups=3),
    "many": sweep_over((Window(4, 3, 1, 1, 1), Window(4, 3, 1, 1, 1)), 33, 67),
    "only padding": sweep_over((Window(2, 1, 3, 3, 3),), 1, 2),
}
NARROW = [name for name, one in SWEEPS.items() if one.target.channels * one.fan_in <= 500]  # a block for each weight
ADDED = [0, 1]
WIDE = {"": (64, 64), "_narrow": (4, 1024)}


def arrays(sweep: Sweep, b: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return x, w, delta and bias."""
    random = np.random.default_rng(seed)
    shapes = ((b, sweep.source.units), (sweep.target.channels, sweep.fan_in), (b, sweep.target.units))
    x, w, delta = (random.standard_normal(shape, np.float32) for shape in shapes)
    return x, w, delta, random.standard_normal(sweep.target.channels, np.float32)


def in_double(function: Any, *given: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return what the reference gives, and how far float32 may be from it: by the sizes of what is summed."""
    *values, sweep = given
    double = [one.astype(np.float64) for one in values]
    sizes = function(*map(np.abs, double), sweep)
    return function(*double, sweep), 16 * EPSILON * (sizes + 1)


def assert_near(found: np.ndarray, wanted: np.ndarray, near: np.ndarray) -> None:
    assert found.shape == wanted.shape
    assert np.all(np.abs(found - wanted) <= near)


def numbers(*values: int) -> list[np.int32]:
    return [np.int32(value) for value in values]


@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize("kind", WIDE)
def test_forward(name, kind):
    sweep, b = SWEEPS[name], 3
    x, w, before, bias = arrays(sweep, b)
    wanted, near = in_double(convolution.forward, x, w, sweep)
    rows, columns = WIDE[kind]
    above = channels_of(sweep)[1]
    grid = math.ceil(b * sweep.target.area / columns), math.ceil(above / rows), sweep.groups
    spread = np.repeat(bias, sweep.target.area)
    for add in ADDED:
        for own in (None, bias):
            args = [x, w, own, before if add else poisoned(before.shape), sweep_words(sweep), *numbers(b, add)]
            [found] = run("convolution", f"convolution{kind}", grid, args)
            assert_near(found, wanted + add * before + (0 if own is None else spread), near + 4 * EPSILON * 4)


@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize("kind", WIDE)
def test_input_gradient(name, kind):
    sweep, b = SWEEPS[name], 3
    before, w, delta, _ = arrays(sweep, b, 1)
    wanted, near = in_double(convolution.input_gradient, delta, w, sweep)
    rows, columns = WIDE[kind]
    grid = math.ceil(b * sweep.source.area / columns), math.ceil(channels_of(sweep)[0] / rows), sweep.groups
    for add in ADDED:
        args = [delta, w, before if add else poisoned(before.shape), sweep_words(sweep), *numbers(b, add)]
        [found] = run("convolution", f"convolution_input_gradient{kind}", grid, args)
        assert_near(found, wanted + add * before, near)


@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize("each", [1, 2, 5])
def test_weight_gradient(name, each):
    sweep, b = SWEEPS[name], 5
    x, w, delta, _ = arrays(sweep, b, 2)
    above = channels_of(sweep)[1]
    parts = math.ceil(b / each)
    grid = math.ceil(sweep.fan_in / 64), math.ceil(above / 64) * parts, sweep.groups
    args = [x, delta, poisoned((parts, *w.shape)), sweep_words(sweep), *numbers(b, each)]
    [found] = run("filters", "convolution_weight_gradient", grid, args)
    for part, own in enumerate(found):
        some = slice(part * each, part * each + each)
        wanted, near = in_double(convolution.weight_gradient, x[some], delta[some], sweep)
        assert_near(own, wanted, near)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("b", [1, 7])
def test_weight_gradient_of_narrow_groups(name, b):
    sweep = SWEEPS[name]
    x, before, delta, _ = arrays(sweep, b, 3)
    wanted, near = in_double(convolution.weight_gradient, x, delta, sweep)
    for add in ADDED:
        args = [x, delta, before if add else poisoned(before.shape), sweep_words(sweep), *numbers(b, add)]
        [found] = run("filters", "convolution_weight_gradient_narrow", before.shape, args)
        assert_near(found, wanted + add * before, near)


@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize("grid_y", [1, 2, 9])
def test_unfold_and_fold_to_the_bit(name, grid_y):
    sweep, b, first, some = SWEEPS[name], 5, 1, 3
    x, _, _, _ = arrays(sweep, b, 4)
    shape = sweep.source.channels * sweep.volume, some * sweep.target.area
    u = convolution.unfold(x[first : first + some], sweep).reshape(some, shape[0], -1)
    rows = np.ascontiguousarray(u.swapaxes(0, 1)).reshape(shape)
    where = numbers(first, some)
    grid = math.ceil(shape[1] / 256), grid_y
    [found] = run("unfold", "unfold", grid, [x, poisoned(shape), sweep_words(sweep), *where])
    np.testing.assert_array_equal(found, rows)
    given = np.random.default_rng(5).standard_normal(shape, np.float32)
    back = np.ascontiguousarray(given.reshape(shape[0], some, -1).swapaxes(0, 1))
    wanted = convolution.fold(back.reshape(some, sweep.groups, sweep.fan_in, -1), sweep)
    grid = math.ceil(some * sweep.source.area / 256), grid_y
    for add in ADDED:
        [found] = run("unfold", "fold", grid, [given, x, sweep_words(sweep), *where, np.int32(add)])
        np.testing.assert_array_equal(found[first : first + some], wanted + (x[first : first + some] if add else 0))
        np.testing.assert_array_equal(found[:first], x[:first])
        np.testing.assert_array_equal(found[first + some :], x[first + some :])


@pytest.mark.parametrize(("channels", "n"), [(1, 1), (3, 49), (7, 100)])
def test_maps_and_rows(channels, n):
    random, b, first, some = np.random.default_rng(6), 6, 2, 3
    maps, bias = random.standard_normal((b, channels, n), np.float32), random.standard_normal(channels, np.float32)
    inside = slice(first, first + some)
    grid, where = (math.ceil(some * n / 256), 2), numbers(channels, n, first, some)
    [rows] = run("unfold", "maps_to_rows", grid, [maps, poisoned((channels, some, n)), *where])
    np.testing.assert_array_equal(rows, maps[inside].swapaxes(0, 1))
    for add in ADDED:
        for own in (None, bias):
            [back] = run("unfold", "rows_to_maps", grid, [rows, own, maps, *where, np.int32(add)])
            given = maps[inside] if own is None else maps[inside] + own[:, None]
            np.testing.assert_array_equal(back[inside], maps[inside] + given if add else given)
            np.testing.assert_array_equal(back[first + some :], maps[first + some :])
