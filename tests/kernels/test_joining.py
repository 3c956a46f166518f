"""Layers of several sources, and dropout of whole maps, as nnlib/ops/joining.py and activations.py have them."""

from __future__ import annotations

import numpy as np
import pytest

from nnlib.gpu.buffers import unit_constants
from nnlib.gpu.selfcheck.layers import KEY, LAYER, LAYERS, SEED, STEP
from nnlib.model.batches import DROPOUT, generator_for
from nnlib.ops import joining
from nnlib.ops.activations import apply_dropout, dropout_derivative
from nnlib.spec.geometry import Maps
from nnlib.spec.types import Activation, Layer, LayerKind, PoolingFunction
from tests.kernels.host import poisoned, run

EPSILON = float(np.finfo(np.float32).eps)
GRIDS = [(1,), (3,)]
ROWS = [(0, 3), (1, 1), (5, 31), (20, 33), (9, 100)]
DRAWN = [np.uint64(KEY), np.array([STEP]), np.int32(LAYERS), np.int32(LAYER)]


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("activation", [Activation.RELU, Activation.SIGMOID, Activation.ELU])
@pytest.mark.parametrize(("b", "channels", "n"), [(1, 1, 1), (3, 5, 7), (7, 9, 40)])
@pytest.mark.parametrize("before", [0, 2])  # examples that are not here
def test_dropout_of_whole_maps_is_what_numpy_draws(before, b, channels, n, activation, grid):
    layer = Layer("H", LayerKind.HIDDEN, channels * n, activation=activation, dropout=0.4)
    draw = generator_for(SEED, DROPOUT, STEP * LAYERS + LAYER).random((before + b, channels), np.float32)
    noise = [*DRAWN, np.int64(before * channels)]
    keep = np.repeat(draw[before:] >= layer.dropout, n, axis=1).reshape(b * channels, n)
    a, unit, sizes = numbers(1, b * channels, n), unit_constants(layer), [np.int64(b * channels), np.int32(n)]
    [found] = run("joining", "drop_maps", grid, [a, poisoned(a.shape), *sizes, unit, *noise])
    np.testing.assert_array_equal(found, apply_dropout(layer, a, keep))
    [found] = run("joining", "drop_maps_backward", grid, [a, *sizes, unit, *noise])
    np.testing.assert_array_equal(found, a * dropout_derivative(layer, keep, a.dtype))


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(("rows", "n"), ROWS)
def test_rows(rows, n, grid):
    x, y, before = numbers(2, rows, n), numbers(3, rows), numbers(4, rows)
    sizes = [np.int64(rows), np.int32(n)]
    [found] = run("joining", "mul_maps", grid, [x, y, *sizes])
    np.testing.assert_array_equal(found, x * y[:, None])
    near = n * EPSILON * (np.abs(x).sum(axis=1) + 1)
    for add in (0, 1):
        [found] = run("joining", "sum_maps", grid, [x, before if add else poisoned(rows), *sizes, np.int32(add)])
        assert np.all(np.abs(found - x.sum(axis=1, dtype=np.float64) - add * before) <= near)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(("rows", "n"), ROWS)
def test_rows_are_put_beside_each_other_and_taken_apart(rows, n, grid):
    x, wide = numbers(5, rows, n), numbers(6, rows, n + 7)
    for add in (0, 1):
        wanted = wide.copy()
        wanted[:, :n] = x + (wide[:, :n] if add else 0)
        sizes = [np.int64(rows), *(np.int32(size) for size in (n, n, n + 7, add))]
        np.testing.assert_array_equal(run("joining", "copy_rows", grid, [x, wide, *sizes])[0], wanted)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("n", [0, 1, 33, 1000])
def test_maxout(n, grid):
    x, y, delta, before = (numbers(seed, n).round(1) for seed in range(4))
    x[:1], y[-1:] = np.nan, np.nan
    [a] = run("joining", "maximum", grid, [x, y, np.int64(n)])
    np.testing.assert_array_equal(a, np.maximum(x, y))
    for add in (0, 1):
        args = [y, a, delta, before if add else poisoned(n), np.int64(n), np.int32(add)]
        [found] = run("joining", "maxout_backward", grid, args)
        np.testing.assert_array_equal(found, (y == a) * delta + add * before)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("function", [PoolingFunction.DOT_PRODUCT, PoolingFunction.COSINE])
@pytest.mark.parametrize(("rows", "n"), ROWS[1:])
def test_comparisons(rows, n, function, grid):
    x, y, delta, before = numbers(7, rows, n), numbers(8, rows, n), numbers(9, rows, 3), numbers(10, rows, n)
    x[0] = 0
    cosine = int(function is PoolingFunction.COSINE)
    double, maps = [x.astype(np.float64), y.astype(np.float64)], [Maps(n, ())] * 2
    wanted = joining.forward(function, double, maps)
    size = 1 if cosine else (np.abs(x * y).sum(axis=1) + 1)
    sizes = [np.int64(rows), *(np.int32(size) for size in (n, 3, 1, cosine))]
    [found] = run("joining", "compare_rows", grid, [x, y, numbers(11, rows, 3), *sizes])
    assert np.all(np.abs(found[:, 1] - wanted[:, 0]) <= n * EPSILON * size)
    np.testing.assert_array_equal(found[:, [0, 2]], numbers(11, rows, 3)[:, [0, 2]])
    belows = joining.backward(function, double, maps, wanted, delta[:, 1:2].astype(np.float64))
    for (first, second), below in zip([(x, y), (y, x)], belows, strict=True):
        for add in (0, 1):
            args = [first, second, delta, before if add else poisoned(x.shape), *sizes, np.int32(add)]
            [found] = run("joining", "compare_rows_backward", grid, args)
            scale = np.abs(below).max(axis=1, keepdims=True) + np.abs(before)
            assert np.all(np.abs(found - below - add * before) <= 8 * n * EPSILON * scale + 1e-30)
