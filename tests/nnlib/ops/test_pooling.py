"""Pooling against loops over every window."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nnlib.ops import pooling
from nnlib.spec.geometry import Maps, Window
from nnlib.spec.types import PoolingFunction
from tests.nnlib.sweeps import sweep_over

MAX, AVERAGE = PoolingFunction.MAX, PoolingFunction.AVERAGE
GLOBAL = (PoolingFunction.GLOBAL_MAX, PoolingFunction.GLOBAL_AVERAGE)


@st.composite
def sweeps(draw):
    """Sweeps over maps with one to three axes, paddings and dilations that may be larger than the kernel."""
    windows = []
    for _ in range(draw(st.integers(1, 3))):
        size, kernel, stride, dilation = (draw(st.integers(1, most)) for most in (7, 3, 3, 2))
        windows.append(Window(size, kernel, stride, draw(st.integers(0, 3)), draw(st.integers(0, 3)), dilation))
    assume(all(window.out >= 1 for window in windows))
    channels = draw(st.integers(1, 3))
    return sweep_over(tuple(windows), channels, channels)


def seen_by(sweep, place):
    """The places under one window, in scan order."""
    axes = []
    for window, at in zip(sweep.windows, place, strict=True):
        places = [at * window.stride - window.low + k * window.dilation for k in range(window.kernel)]
        axes.append([p for p in places if 0 <= p < window.size])
    return list(itertools.product(*axes))


def by_loops(function, x, delta, sweep):
    """Values and gradient, one window at a time."""
    source = x.reshape(-1, *sweep.source.sizes)
    a = np.zeros((len(source), *sweep.target.sizes))
    below, delta = np.zeros(source.shape), delta.reshape(a.shape)
    for n, place in itertools.product(range(len(a)), np.ndindex(sweep.target.sizes)):
        seen = seen_by(sweep, place)
        values = [source[(n, *p)] for p in seen]
        if not seen:
            continue
        if function is MAX:
            best = int(np.argmax(values))  # the first of equals
            a[(n, *place)] = values[best]
            below[(n, *seen[best])] += delta[(n, *place)]
        else:
            a[(n, *place)] = np.mean(values)
            for p in seen:
                below[(n, *p)] += delta[(n, *place)] / len(seen)
    return a.reshape(len(x), -1), below.reshape(x.shape)


@pytest.mark.parametrize("function", [MAX, AVERAGE])
@settings(max_examples=60)
@given(sweep=sweeps(), seed=st.integers(0, 99), ties=st.booleans())
def test_is_as_loops_have_it(function, sweep, seed, ties):
    random = np.random.default_rng(seed)
    x = random.normal(size=(2, sweep.source.units))
    x = np.round(x) if ties else x
    delta = random.normal(size=(2, sweep.target.units))
    a, below = by_loops(function, x, delta, sweep)
    found = pooling.forward(function, x, sweep)
    np.testing.assert_allclose(found, a, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(pooling.backward(function, x, found, delta, sweep), below, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("function", GLOBAL)
@pytest.mark.parametrize("sizes", [(3, 4), (5,), (2, 3, 2), ()])
def test_global_ones_take_whole_maps(function, sizes):
    maps = Maps(3, sizes)
    x = np.random.default_rng(1).normal(size=(4, maps.units))
    delta = np.random.default_rng(2).normal(size=(4, 3))
    values = x.reshape(4, 3, -1)
    a = values.max(axis=2) if function is PoolingFunction.GLOBAL_MAX else values.mean(axis=2)
    found = pooling.forward(function, x, pooling.whole(maps))
    np.testing.assert_allclose(found, a, rtol=1e-14)
    below = pooling.backward(function, x, found, delta, pooling.whole(maps)).reshape(values.shape)
    np.testing.assert_allclose(below.sum(axis=2), delta, rtol=1e-13)
    if function is PoolingFunction.GLOBAL_MAX:
        assert np.array_equal(below != 0, values == a[..., None])


def test_a_tie_goes_to_the_first():
    sweep = sweep_over((Window(2, 2, 2, 0, 0), Window(4, 2, 2, 0, 0)), 1, 1)
    x = np.array([[1.0, 3, 2, 2, 3, 3, 2, 2]])
    a = pooling.forward(MAX, x, sweep)
    assert a.tolist() == [[3, 2]]
    assert pooling.backward(MAX, x, a, np.array([[5.0, 7]]), sweep).tolist() == [[0, 5, 7, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize("function", [MAX, AVERAGE])
def test_types_stay_and_nan_is_seen(function):
    sweep = sweep_over((Window(4, 2, 2, 0, 0),), 1, 1)
    a = pooling.forward(function, np.array([[1, np.nan, 2, 3]], np.float32), sweep)
    assert a.dtype == np.float32
    assert np.isnan(a).tolist() == [[True, False]]


def test_padding_alone_gives_nothing():
    sweep = sweep_over((Window(1, 1, 1, 2, 0),), 1, 1)
    for function in (MAX, AVERAGE):
        a = pooling.forward(function, np.array([[-4.0]]), sweep)
        assert a.tolist() == [[0, 0, -4]]
        assert pooling.backward(function, np.array([[-4.0]]), a, np.ones((1, 3)), sweep).tolist() == [[1]]
