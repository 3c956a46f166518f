"""Pooling and local response normalization as nnlib/ops/pooling.py and response_norm.py have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnlib.gpu.maps.sweeps import sweep_words
from nnlib.ops import pooling, response_norm
from nnlib.spec.geometry import Maps, Sweep, Window
from nnlib.spec.types import LocalResponse, PoolingFunction
from tests.kernels.host import poisoned, run
from tests.nnlib.sweeps import sweep_over

EPSILON = float(np.finfo(np.float32).eps)
MAX, AVERAGE = PoolingFunction.MAX, PoolingFunction.AVERAGE
B = 3
GRIDS = [(1,), (3,)]
SWEEPS = {
    "2x2": sweep_over((Window(6, 2, 2, 0, 0), Window(7, 2, 2, 0, 0)), 3, 3),
    "overlapping": sweep_over((Window(7, 3, 2, 1, 1), Window(8, 3, 2, 0, 1)), 2, 2),
    "same": sweep_over((Window(5, 3, 1, 1, 1), Window(4, 2, 1, 1, 0)), 2, 2),
    "dilation": sweep_over((Window(9, 3, 1, 2, 2, 2), Window(9, 2, 3, 0, 1, 3)), 2, 2),
    "gaps": sweep_over((Window(9, 2, 4, 0, 0), Window(5, 1, 2, 0, 0)), 2, 2),
    "row": sweep_over((Window(33, 4, 3, 2, 1),), 4, 4),
    "volume": sweep_over((Window(4, 2, 2, 0, 0), Window(5, 3, 2, 1, 1), Window(3, 2, 1, 1, 0)), 2, 2),
    "whole": pooling.whole(Maps(5, (6, 7))),
    "one place": pooling.whole(Maps(5, ())),
    "only padding": sweep_over((Window(2, 1, 3, 3, 3),), 1, 1),
}


def values(sweep: Sweep, seed: int) -> np.ndarray:
    """Return numbers some of which are equal, as after a Relu."""
    x = np.random.default_rng(seed).standard_normal((B, sweep.source.units), np.float32)
    return np.maximum(x.round(1), 0) if seed else x


def rows(sweep: Sweep) -> np.int64:
    return np.int64(B * sweep.source.channels)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize("seed", [0, 1])
def test_forward(name, seed, grid):
    sweep, words = SWEEPS[name], sweep_words(SWEEPS[name])
    x, room = values(sweep, seed), poisoned((B, sweep.target.units))
    [found] = run("pooling", "max_pool", grid, [x, room, words, rows(sweep)])
    np.testing.assert_array_equal(found, pooling.forward(MAX, x, sweep))
    [found] = run("pooling", "average_pool", grid, [x, room, words, rows(sweep)])
    wanted = pooling.forward(AVERAGE, x, sweep)
    if name == "whole":  # of which NumPy takes the mean in another order
        np.testing.assert_allclose(found, wanted, rtol=0, atol=16 * EPSILON)
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("add", [0, 1])
def test_backward(name, seed, grid, add):
    sweep, words = SWEEPS[name], sweep_words(SWEEPS[name])
    x, before = values(sweep, seed), values(sweep, 0)
    delta = np.random.default_rng(2).standard_normal((B, sweep.target.units), np.float32)
    into, more = (before, before) if add else (poisoned(x.shape), np.float32(0))
    a = pooling.forward(MAX, x, sweep)
    [found] = run("pooling", "max_pool_backward", grid, [x, a, delta, into, words, rows(sweep), np.int32(add)])
    np.testing.assert_array_equal(found, more + pooling.backward(MAX, x, a, delta, sweep))
    [found] = run("pooling", "average_pool_backward", grid, [delta, into, words, rows(sweep), np.int32(add)])
    np.testing.assert_array_equal(found, more + pooling.backward(AVERAGE, x, a, delta, sweep))


def test_the_way_back_through_a_whole_map_does_not_take_the_square_of_its_places():
    sweep = pooling.whole(Maps(1, (512, 512)))  # each place by each of the kernel would be 7e10 steps
    x, delta = np.zeros((1, sweep.source.units), np.float32), np.full((1, 1), 512 * 512, np.float32)
    x[0, 100_000] = 1
    args = [delta, poisoned(x.shape), sweep_words(sweep), np.int64(1), np.int32(0)]
    [found] = run("pooling", "average_pool_backward", (4,), args)
    np.testing.assert_array_equal(found, np.ones_like(x))
    [found] = run("pooling", "max_pool_backward", (4,), [x, x.max(keepdims=True), *args])
    np.testing.assert_array_equal(found, x * 512 * 512)


def test_what_is_not_a_number_stays_it():
    sweep = SWEEPS["2x2"]
    x = values(sweep, 0)
    x[1, 8] = np.nan
    for name, function in (("max_pool", MAX), ("average_pool", AVERAGE)):
        args = [x, poisoned((B, sweep.target.units)), sweep_words(sweep), rows(sweep)]
        np.testing.assert_array_equal(run("pooling", name, (1,), args)[0], pooling.forward(function, x, sweep))


RULES = [LocalResponse(), LocalResponse(1.5, 4, 0.3, 0.6), LocalResponse(1.0, 1, 0.5, 0.75), LocalResponse(2, 9, 2, 1)]


def response_args(rule: LocalResponse, maps: Maps) -> list[Any]:
    places = maps.units // maps.channels
    sizes = [np.int64(B * maps.units), np.int32(maps.channels), np.int32(places)]
    half = [np.int32((rule.n - 1) // 2), np.int32(rule.n // 2)]
    return [*sizes, *half, *(np.float32(c) for c in (rule.k, rule.alpha / rule.n, rule.beta))]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("maps", [Maps(1, (3, 3)), Maps(7, (5,)), Maps(20, (2, 3))], ids=str)
@pytest.mark.parametrize("grid", GRIDS)
def test_response_norm(rule, maps, grid):
    random = np.random.default_rng(3)
    x, delta, before = (random.standard_normal((B, maps.units), np.float32) * 2 for _ in range(3))
    args, double = response_args(rule, maps), x.astype(np.float64)
    [found] = run("response", "response_norm", grid, [x, poisoned(x.shape), *args])
    wanted = response_norm.forward(rule, double, maps)
    np.testing.assert_allclose(found, wanted, rtol=32 * EPSILON, atol=1e-37)
    wanted = response_norm.backward(rule, double, delta.astype(np.float64), maps)
    for add in (0, 1):
        into = before if add else poisoned(x.shape)
        [found] = run("response", "response_norm_backward", grid, [x, delta, into, *args, np.int32(add)])
        np.testing.assert_allclose(found, wanted + add * before, rtol=0, atol=256 * EPSILON)
