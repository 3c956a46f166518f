"""Pooling in pieces, and its compiled loops, against the reference, and the same bits on any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlib.compiled.select import LOOPS
from nnlib.cpu.maps import pieces, pooling
from nnlib.ops import joining, response_norm
from nnlib.ops import pooling as reference
from nnlib.spec.geometry import Maps, Window
from nnlib.spec.types import LocalResponse, PoolingFunction
from nnlib.util.threads import map_in_turn, workers
from tests.nnlib.sweeps import sweep_over

FUNCTIONS = pytest.mark.parametrize("function", [PoolingFunction.MAX, PoolingFunction.AVERAGE])


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """Windows of which none sees padding alone, as a network may have them."""
    size, kernel = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    low, high = draw(st.integers(0, kernel - 1)), draw(st.integers(0, kernel - 1))
    return Window(max(size, kernel - low - high), kernel, draw(st.integers(1, 3)), low, high)


@FUNCTIONS
@settings(deadline=None, max_examples=60)
@given(st.lists(windows(), min_size=1, max_size=3), st.sampled_from([np.float32, np.float64]), st.booleans())
def test_it_is_the_reference(function, found, dtype, ties):
    sweep = sweep_over(tuple(found), 3, 3)
    random = np.random.default_rng(1)
    x, delta = (random.standard_normal((2, maps.units)).astype(dtype) for maps in (sweep.source, sweep.target))
    x = np.round(x) if ties else x
    for code in {None, LOOPS}:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pooling, "LOOPS", code)
            a = pooling.pool(function, x, sweep, map_in_turn)
            below = pooling.pool_gradient(function, x, a, delta, sweep, map_in_turn)
        np.testing.assert_array_equal(a, reference.forward(function, x, sweep))
        assert below.dtype == a.dtype == dtype
        np.testing.assert_allclose(below, reference.backward(function, x, a, delta, sweep), rtol=1e-5, atol=1e-5)


def test_the_largest_is_nan_where_there_is_one(backend):
    sweep = sweep_over((Window(5, 3, 2),), 1, 1)
    x = np.array([[1, np.nan, 2, 3, 4], [-np.inf] * 5], np.float32)
    a = pooling.pool(PoolingFunction.MAX, x, sweep, map_in_turn)
    np.testing.assert_array_equal(a, [[np.nan, 4], [-np.inf, -np.inf]])


@pytest.mark.parametrize("function", [*reference.WHOLE, PoolingFunction.MAX, PoolingFunction.AVERAGE])
def test_threads_do_not_change_the_bits(monkeypatch, backend, function):
    monkeypatch.setattr(pieces, "NUMBERS", 150)
    maps, random = Maps(6, (9, 8)), np.random.default_rng(2)
    whole = function in reference.WHOLE
    sweep = reference.whole(maps) if whole else sweep_over((Window(9, 3, 2, 1, 1), Window(8, 3, 2, 1, 1)), 6, 6)
    x, delta = (random.standard_normal((5, one.units)).astype(np.float32) for one in (maps, sweep.target))
    found = []
    for threads in (1, 2, 8):
        with workers(threads) as each:
            a = pooling.pool(function, x, sweep, each)
            found.append((a.tobytes(), pooling.pool_gradient(function, x, a, delta, sweep, each).tobytes()))
    assert len(set(found)) == 1


def test_responses_and_joins_in_pieces_are_the_whole(monkeypatch):
    monkeypatch.setattr(pieces, "NUMBERS", 100)
    rule, maps, random = LocalResponse(1, 3, 0.5, 0.75), Maps(6, (3, 2)), np.random.default_rng(3)
    x, y, delta = (random.standard_normal((7, maps.units)).astype(np.float32) for _ in range(3))
    with workers(2) as each:
        assert np.array_equal(pooling.respond(rule, x, maps, each), response_norm.forward(rule, x, maps))
        found = pooling.respond_gradient(rule, x, delta, maps, each)
        assert np.array_equal(found, response_norm.backward(rule, x, delta, maps))
        for function in (PoolingFunction.PRODUCT, PoolingFunction.MAXOUT, PoolingFunction.SUM):
            given = function, (x, y), (maps, maps)
            a = pooling.join(*given, maps.units, each)
            assert np.array_equal(a, joining.forward(*given))
            belows = pooling.join_gradients(*given, a, delta, each)
            wanted = joining.backward(*given, a, delta)
            assert all(np.array_equal(one, other) for one, other in zip(belows, wanted, strict=True))
