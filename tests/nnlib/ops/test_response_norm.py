"""Local response normalization against the formula, map by map, and its gradient against differences."""

from __future__ import annotations

import numpy as np
import pytest

from nnlib.ops import response_norm
from nnlib.spec.geometry import Maps
from nnlib.spec.types import LocalResponse

RULES = [
    LocalResponse(),
    LocalResponse(1.0, 3, 0.5, 0.75),
    LocalResponse(2.0, 4, 0.8, 0.6),
    LocalResponse(1, 1, 0.3, 1),
]


def by_loops(rule, x):
    y = np.empty_like(x)
    for c in range(x.shape[1]):
        low, high = max(0, c - (rule.n - 1) // 2), min(x.shape[1], c + rule.n // 2 + 1)
        y[:, c] = x[:, c] / (rule.k + rule.alpha / rule.n * (x[:, low:high] ** 2).sum(axis=1)) ** rule.beta
    return y


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("channels", [1, 2, 7])
def test_is_the_formula(rule, channels):
    maps = Maps(channels, (3, 2))
    x = np.random.default_rng(0).normal(0, 2, (4, maps.units))
    expected = by_loops(rule, x.reshape(4, channels, 6)).reshape(x.shape)
    np.testing.assert_allclose(response_norm.forward(rule, x, maps), expected, rtol=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("channels", [1, 2, 7])
def test_gradient_is_that_of_differences(rule, channels):
    maps, random = Maps(channels, (2,)), np.random.default_rng(1)
    x, delta = random.normal(0, 2, (2, maps.units)), random.normal(0, 1, (2, maps.units))
    found = response_norm.backward(rule, x, delta, maps)
    for place in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[place] = 1e-6
        above, below = (response_norm.forward(rule, x + s, maps) for s in (step, -step))
        assert found[place] == pytest.approx(((above - below) * delta).sum() / 2e-6, rel=1e-7, abs=1e-9)


def test_single_precision_stays():
    maps, x = Maps(6, (5,)), np.random.default_rng(2).normal(0, 3, (3, 30)).astype(np.float32)
    y, wide = response_norm.forward(RULES[1], x, maps), response_norm.forward(RULES[1], x.astype(np.float64), maps)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, wide, rtol=1e-6)
    below = response_norm.backward(RULES[1], x, y, maps)
    assert below.dtype == np.float32
    np.testing.assert_allclose(below, response_norm.backward(RULES[1], wide * 0 + x, wide, maps), rtol=1e-4, atol=1e-6)
