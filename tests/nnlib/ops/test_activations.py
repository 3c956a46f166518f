"""Activations, their derivatives and dropout, against their formulas."""

import dataclasses

import numpy as np
import pytest

from nnlib.ops.activations import (
    ROWWISE,
    activate,
    activation_gradient,
    apply_dropout,
    derivative,
    dropout_derivative,
    rowwise_sum,
)
from nnlib.spec.types import Activation, Layer, LayerKind

FORMULAS = {
    Activation.SIGMOID: lambda z: 1 / (1 + np.exp(-z)),
    Activation.TANH: np.tanh,
    Activation.RELU: lambda z: z * (z > 0),
    Activation.LINEAR: lambda z: z,
    Activation.LEAKY_RELU: lambda z: np.where(z > 0, z, 0.2 * z),
    Activation.ELU: lambda z: np.where(z > 0, z, 1.5 * (np.exp(z) - 1)),
    Activation.SELU: lambda z: 1.1 * np.where(z > 0, z, 1.5 * (np.exp(z) - 1)),
    Activation.SOFTMAX: lambda z: np.exp(z) / np.exp(z).sum(axis=1, keepdims=True),
    Activation.SOFTPLUS: lambda z: np.log(1 + np.exp(z)),
    Activation.SOFTSIGN: lambda z: z / (1 + np.abs(z)),
    Activation.RELU_MAX: lambda z: z * (z > 0) / np.maximum((z * (z > 0)).sum(axis=1, keepdims=True), 1e-30),
    Activation.LINEAR_MAX: lambda z: z / np.abs(z).sum(axis=1, keepdims=True),
    Activation.RELU6: lambda z: np.minimum(z * (z > 0), 6),
}
EVERY = pytest.mark.parametrize("kind", Activation)


def layer_of(kind, dropout=0.0):
    return Layer("H", LayerKind.HIDDEN, 6, activation=kind, slope=0.2, alpha=1.5, selu_lambda=1.1, dropout=dropout)


def sums(dtype=np.float64):
    return np.random.default_rng(0).normal(scale=2, size=(4, 6)).astype(dtype)


@EVERY
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-14), (np.float32, 1e-6)])
def test_formulas(kind, dtype, tolerance):
    z = sums(dtype)
    wanted = FORMULAS[kind](z.astype(np.float64))
    found = activate(layer_of(kind), z)
    assert found is z
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@EVERY
def test_derivatives_are_the_numerical_ones(kind):
    layer, z, delta = layer_of(kind), sums(), np.random.default_rng(1).normal(size=(4, 6))
    wanted = np.empty_like(z)
    for place in np.ndindex(z.shape):
        step = np.zeros_like(z)
        step[place] = 1e-6
        wanted[place] = (delta * (FORMULAS[kind](z + step) - FORMULAS[kind](z - step))).sum() / 2e-6
    total = rowwise_sum(layer, z) if kind in ROWWISE else None
    np.testing.assert_allclose(activation_gradient(layer, delta.copy(), FORMULAS[kind](z), total), wanted, atol=1e-8)


@EVERY
@pytest.mark.parametrize("size", [1e4, -1e4])
def test_sums_far_out_stay_finite(kind, size):
    layer, z = layer_of(kind), np.array([[size, 1, -1], [size, size, size], [0, 0, 0]], np.float32)
    total = rowwise_sum(layer, z)
    with np.errstate(all="ignore"):
        a = activate(layer, z)
        delta = activation_gradient(layer, np.ones_like(a), a.copy(), total)
    assert np.isfinite(a).all()
    assert np.isfinite(delta[:2]).all()


@EVERY
def test_nan_stays_nan(kind):
    z = sums(np.float32)
    z[1, 2] = np.nan
    with np.errstate(all="ignore"):
        a = activate(layer_of(kind), z)
    assert np.isnan(a[1, 2])
    assert np.isfinite(a[[0, 2, 3]]).all()
    assert np.isnan(a[1]).all() == (kind in ROWWISE)


def test_relu6_ends_at_six():
    layer, z = layer_of(Activation.RELU6), np.array([[-1.0, 0, 2, 6, 7]])
    a = activate(layer, z)
    assert a.tolist() == [[0, 0, 2, 6, 6]]
    assert activation_gradient(layer, np.ones_like(a), a).tolist() == [[0, 0, 1, 0, 0]]


def test_dropout_scales_what_it_keeps():
    a, keep = np.array([[2.0, -4.0, 1.0]]), np.array([[True, False, True]])
    layer = layer_of(Activation.TANH, 0.2)
    np.testing.assert_allclose(apply_dropout(layer, a, keep), [[2.5, 0, 1.25]])
    np.testing.assert_allclose(dropout_derivative(layer, keep, a.dtype), [[1.25, 0, 1.25]])
    layer = layer_of(Activation.SIGMOID, 0.2)
    np.testing.assert_allclose(apply_dropout(layer, a, keep), [[2, 0.5, 1]])
    np.testing.assert_allclose(dropout_derivative(layer, keep, a.dtype), [[1, 0, 1]])
    layer = dataclasses.replace(layer, kind=LayerKind.INPUT)
    np.testing.assert_allclose(apply_dropout(layer, a, keep), [[2.5, 0, 1.25]])


@pytest.mark.parametrize("kind", [Activation.ELU, Activation.SELU])
def test_alpha_dropout_keeps_mean_and_variance(kind):
    layer, a = layer_of(kind, 0.3), np.random.default_rng(2).normal(size=(2, 5000))
    a = (a - a.mean()) / a.std()
    kept, lost = apply_dropout(layer, a, np.ones(a.shape, bool)), apply_dropout(layer, a, np.zeros(a.shape, bool))
    assert np.unique(lost).size == 1
    low = -1.5 * (1.1 if kind is Activation.SELU else 1)
    scale = dropout_derivative(layer, np.ones((1, 1), bool), a.dtype)[0, 0]
    np.testing.assert_allclose(lost[0, 0] - kept, scale * (low - a))
    mean = 0.7 * kept.mean() + 0.3 * lost.mean()
    assert mean == pytest.approx(0, abs=1e-12)
    assert 0.7 * (kept**2).mean() + 0.3 * (lost**2).mean() == pytest.approx(1)


def test_only_linear_units_have_no_factor():
    for kind in set(Activation) - set(ROWWISE):
        assert (derivative(layer_of(kind), np.ones((1, 1))) is None) == (kind is Activation.LINEAR)


@pytest.mark.parametrize(
    ("kind", "wanted"), [(Activation.LINEAR_MAX, [0.25, -0.75, 0]), (Activation.RELU_MAX, [1, 0, 0])]
)
def test_shares_of_a_small_sum_are_those_of_a_large_one_and_of_zeros_zero(kind, wanted):
    z = np.array([[1e-20, -3e-20, 0], [1e20, -3e20, 0], [0, 0, 0]])
    layer, total = layer_of(kind), rowwise_sum(layer_of(kind), z)
    np.testing.assert_allclose(activate(layer, z.copy()), [wanted, wanted, [0, 0, 0]], rtol=1e-14)
    assert not activation_gradient(layer, np.ones_like(z), np.zeros_like(z), total)[2].any()
