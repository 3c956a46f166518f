"""Joins of several sources: their formulas in words, and their gradients against differences."""

from __future__ import annotations

import numpy as np
import pytest

from nnlib.ops import joining
from nnlib.spec.geometry import Maps
from nnlib.spec.types import PoolingFunction as Function

WIDE, NARROW = Maps(3, (2, 2)), Maps(3, (1, 1))
CASES = [
    (Function.SUM, (WIDE,)),
    (Function.SUM, (WIDE, WIDE, WIDE)),
    (Function.PRODUCT, (WIDE, WIDE)),
    (Function.PRODUCT, (WIDE, NARROW)),
    (Function.PRODUCT, (NARROW, WIDE, Maps(3))),
    (Function.PRODUCT, (Maps(5), Maps(5), Maps(5))),
    (Function.CONCATENATE, (WIDE, Maps(2, (2, 2)), Maps(1, (2, 2)))),
    (Function.CONCATENATE, (Maps(4), Maps(3))),
    (Function.MAXOUT, (WIDE, WIDE, WIDE)),
    (Function.DOT_PRODUCT, (WIDE, WIDE, WIDE)),
    (Function.COSINE, (Maps(6), Maps(6))),
    (Function.COSINE, (WIDE, WIDE, WIDE)),
]


def values(maps, seed=0, dtype=np.float64):
    random = np.random.default_rng(seed)
    return [random.normal(0, 1, (4, one.units)).astype(dtype) for one in maps]


@pytest.mark.parametrize(("function", "maps"), CASES)
def test_gradients_are_those_of_differences(function, maps):
    sources = values(maps)
    a = joining.forward(function, sources, maps)
    delta = np.random.default_rng(1).normal(0, 1, a.shape)
    belows = joining.backward(function, sources, maps, a, delta)
    assert [below.shape for below in belows] == [x.shape for x in sources]
    for x, below in zip(sources, belows, strict=True):
        for place in np.ndindex(x.shape):
            kept = x[place]
            x[place] = kept + 1e-6
            above = joining.forward(function, sources, maps)
            x[place] = kept - 1e-6
            under = joining.forward(function, sources, maps)
            x[place] = kept
            assert below[place] == pytest.approx(((above - under) * delta).sum() / 2e-6, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize(("function", "maps"), CASES)
def test_nothing_is_overwritten_and_types_stay(function, maps):
    sources = values(maps, dtype=np.float32)
    kept = [x.copy() for x in sources]
    a = joining.forward(function, sources, maps)
    delta = np.ones_like(a)
    belows = joining.backward(function, sources, maps, a, delta)
    assert {array.dtype for array in (a, *belows)} == {np.dtype(np.float32)}
    for below in belows:
        below += 1
    assert all(np.array_equal(x, was) for x, was in zip(sources, kept, strict=True))
    assert np.array_equal(delta, np.ones_like(a))


def test_values():
    x, y = np.array([[3.0, 4, 0]]), np.array([[4.0, 3, 12]])
    maps = (Maps(3), Maps(3))
    asked = {function: joining.forward(function, (x, y), maps).tolist() for function in {case[0] for case in CASES}}
    assert asked == {
        Function.SUM: [[7, 7, 12]],
        Function.PRODUCT: [[12, 12, 0]],
        Function.CONCATENATE: [[3, 4, 0, 4, 3, 12]],
        Function.MAXOUT: [[4, 4, 12]],
        Function.DOT_PRODUCT: [[24]],
        Function.COSINE: [[pytest.approx(24 / 65)]],
    }


def test_one_value_a_map_counts_for_the_whole_map():
    x, gates = np.arange(12.0).reshape(1, 12), np.array([[2.0, 10, 100]])
    a = joining.forward(Function.PRODUCT, (x, gates), (WIDE, NARROW))
    assert a.tolist() == [[0, 2, 4, 6, 40, 50, 60, 70, 800, 900, 1000, 1100]]


def test_maxouts_gradient_goes_to_every_largest_source():
    x, y = np.array([[1.0, 5]]), np.array([[1.0, 2]])
    maps = (Maps(2), Maps(2))
    belows = joining.backward(Function.MAXOUT, (x, y), maps, np.maximum(x, y), np.array([[3.0, 4]]))
    assert [below.tolist() for below in belows] == [[[3, 4]], [[3, 0]]]


def test_the_cosine_of_nothing_is_zero_and_has_a_gradient():
    zeros, x = np.zeros((1, 2)), np.ones((1, 2))
    maps = (Maps(2), Maps(2))
    a = joining.forward(Function.COSINE, (zeros, x), maps)
    assert a.tolist() == [[0]]
    assert all(np.isfinite(below).all() for below in joining.backward(Function.COSINE, (zeros, x), maps, a, a + 1))
