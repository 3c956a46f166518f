"""SoftMax, RELUMax, LinearMax and the normalizer of a SoftMax, against activations.py and losses.py."""

from __future__ import annotations

import numpy as np
import pytest

from nnlib.ops.activations import SMALLEST_SUM, activate, activation_gradient, rowwise_sum
from nnlib.ops.losses import softmax_normalizer, softmax_part
from nnlib.spec.types import Activation
from tests.kernels.host import poisoned, run
from tests.kernels.test_activation import EPSILON, KINDS, layer_of

SHAPES = [(1, 1), (3, 2), (2, 31), (3, 32), (1, 33), (2, 255), (1, 256), (3, 257), (1, 1025), (1, 27_278)]
SIZES = pytest.mark.parametrize(("b", "n"), SHAPES)
MAXIMA = pytest.mark.parametrize("kind", [Activation.RELU_MAX, Activation.LINEAR_MAX])


def wide_rows(array: np.ndarray, ld: int) -> np.ndarray:
    """Return a copy with NaNs from row to row."""
    rows = poisoned((len(array), ld))
    rows[:, : array.shape[1]] = array
    return rows


def launch(name, arrays, shape, ld, *rest):
    sizes = [np.int32(shape[0]), np.int32(shape[1]), np.int32(ld)]
    return run("rowwise", name, (max(shape[0], 1),), [*arrays, *sizes, *rest])


def softmax(z, gap=0):
    ld = z.shape[1] + gap
    return launch("softmax", [wide_rows(z, ld)], z.shape, ld)[0][:, : z.shape[1]]


def log_sum_exp(z, bias=None, gap=0):
    ld = z.shape[1] + gap
    return launch("log_sum_exp", [wide_rows(z, ld), bias, poisoned(len(z))], z.shape, ld)[0]


def normalizer(z):
    return softmax_normalizer([softmax_part(z)])[:, 0]


@SIZES
def test_softmax(b, n):
    z = np.random.default_rng(n).normal(0, 3, (b, n)).astype(np.float32)
    wanted = activate(layer_of(Activation.SOFTMAX), z.astype(np.float64))
    # The exponent z - max is rounded, which a is wrong by in proportion; the sum is one of positive numbers.
    exponents = z.max(axis=1, keepdims=True) - z
    assert np.all(np.abs(softmax(z, gap=n % 3) - wanted) <= (16 + exponents) * EPSILON * wanted)


@SIZES
def test_log_sum_exp(b, n):
    random = np.random.default_rng(n)
    z, bias = random.normal(0, 3, (b, n)).astype(np.float32), random.normal(0, 1, n).astype(np.float32)
    for given in (None, bias):
        wanted = normalizer((z if given is None else z + given).astype(np.float64))
        found = log_sum_exp(z, given, gap=n % 3)
        assert np.all(np.abs(found - wanted) <= EPSILON * (16 + np.abs(wanted)))


@pytest.mark.parametrize("order", ["up", "down", "even"])
def test_a_sum_that_is_scaled_at_every_step_or_never(order):
    row = np.linspace(-60, 60, 1000, dtype=np.float32)
    z = {"up": row, "down": row[::-1], "even": np.full(1000, 7, np.float32)}[order][None].copy()
    wide = z.astype(np.float64)
    np.testing.assert_allclose(log_sum_exp(z), normalizer(wide), rtol=16 * EPSILON)
    wanted = activate(layer_of(Activation.SOFTMAX), wide)
    np.testing.assert_allclose(softmax(z), wanted, rtol=140 * EPSILON, atol=1e-37)


EXTREMES = [
    [3e38, -3e38, 0],
    [-3.4e38, -3.4e38, -3.4e38],
    [-np.inf, 1, 2],
    [1, -np.inf, -np.inf],
    [1e4, -1e4, 1e4],
    [200, 0, -200],
]


@pytest.mark.parametrize("row", EXTREMES)
@pytest.mark.parametrize("times", [1, 300])
def test_extreme_rows(row, times):
    z = np.array([row * times], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(softmax(z), activate(layer_of(Activation.SOFTMAX), z.copy()), rtol=1e-6, atol=1e-37)
        np.testing.assert_allclose(log_sum_exp(z), normalizer(z), rtol=4 * EPSILON)


@pytest.mark.parametrize("n", [1, 3, 300])
def test_what_is_not_finite_stays_so_in_its_row(n):
    for bad in (np.nan, np.inf):
        for place in {0, n // 2, n - 1}:
            z = np.ones((2, n), np.float32)
            z[0, place] = bad
            assert not np.isfinite(log_sum_exp(z)[0])
            assert np.isfinite(log_sum_exp(z)[1])
            assert np.isnan(softmax(z)[0, place])
            np.testing.assert_allclose(softmax(z)[1], 1 / n, rtol=4 * EPSILON)
    assert np.isnan(softmax(np.full((1, n), -np.inf, np.float32))).all()


def rowwise(z, kind, gap=0):
    ld = z.shape[1] + gap
    a, total = launch("rowwise_activation", [wide_rows(z, ld), poisoned(len(z))], z.shape, ld, KINDS[kind])
    return a[:, : z.shape[1]], total


@MAXIMA
@SIZES
def test_maxima(kind, b, n):
    layer, z = layer_of(kind), np.random.default_rng(n).normal(0, 3, (b, n)).astype(np.float32)
    wide = z.astype(np.float64)
    a, total = rowwise(z, kind, gap=n % 3)
    np.testing.assert_allclose(total[:, None], rowwise_sum(layer, wide), rtol=16 * EPSILON)
    np.testing.assert_allclose(a, activate(layer, wide), rtol=16 * EPSILON)


@MAXIMA
def test_maxima_of_extreme_rows(kind):
    layer = layer_of(kind)
    z = np.array([[0, 0], [-0.0, 1e-38], [-1, -2], [3e38, 3e38], [np.nan, 1], [np.inf, 1]], np.float32)
    a, total = rowwise(z, kind)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(total[:, None], rowwise_sum(layer, z), rtol=4 * EPSILON)
        np.testing.assert_allclose(a, activate(layer, z.copy()), rtol=4 * EPSILON)


def backward(kind, delta, a, total, gap=0):
    ld = a.shape[1] + gap
    arrays = [wide_rows(delta, ld), wide_rows(a, ld), total]
    return launch("rowwise_backward", arrays, a.shape, ld, KINDS[kind])[0][:, : a.shape[1]]


@pytest.mark.parametrize("kind", [Activation.SOFTMAX, Activation.RELU_MAX, Activation.LINEAR_MAX])
@SIZES
def test_backward(kind, b, n):
    random, layer = np.random.default_rng(n), layer_of(kind)
    z, delta = random.normal(size=(2, b, n)).astype(np.float32)
    z[1:2] *= kind is Activation.SOFTMAX  # a layer of zeros
    total = None if kind is Activation.SOFTMAX else rowwise_sum(layer, z)
    a = activate(layer, z.copy())
    least = None if total is None else np.where(total > np.float32(SMALLEST_SUM), total, SMALLEST_SUM)
    wanted = activation_gradient(layer, delta.astype(np.float64), a.astype(np.float64), least)
    found = backward(kind, delta, a, None if total is None else total[:, 0].copy(), gap=n % 3)
    # delta and its mean cancel
    mean = (np.abs(delta) * np.abs(a)).sum(axis=1, keepdims=True)
    sizes = (np.abs(delta) + mean) * (np.abs(a) if total is None else (least > SMALLEST_SUM) / total)
    assert np.all(np.abs(found - wanted) <= 16 * EPSILON * sizes)


@pytest.mark.parametrize("kind", [Activation.SOFTMAX, Activation.RELU_MAX, Activation.LINEAR_MAX])
def test_backward_of_nan(kind):
    delta, a = np.array([[np.nan, 1, 2], [1, 2, 3]], np.float32), np.full((2, 3), 0.25, np.float32)
    found = backward(kind, delta, a, np.ones(2, np.float32))
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()


def test_no_rows_and_no_units():
    nothing, z = np.empty((0, 4), np.float32), np.ones((1, 4), np.float32)
    assert softmax(nothing).size == log_sum_exp(nothing).size == 0
    assert rowwise(nothing, Activation.RELU_MAX)[0].size == 0
    assert backward(Activation.SOFTMAX, nothing, nothing, None).size == 0
    np.testing.assert_array_equal(launch("softmax", [z], (1, 0), 4)[0], 1)
