"""Batch normalization as nnlib/ops/batch_norm.py has it; sums agree up to the rounding of another order."""

from __future__ import annotations

import numpy as np
import pytest

from nnlib.ops import batch_norm
from nnlib.ops.batch_norm import BatchNorm
from tests.kernels.host import poisoned, run

EPSILON = float(np.finfo(np.float32).eps)
ROWS = [1, 2, 31, 32, 33]
COLUMNS = [1, 31, 32, 33, 257, 1025]


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def norm_of(random: np.random.Generator, n: int) -> BatchNorm:
    scale, bias, mean, variance = random.uniform(0.5, 2, (4, n)).astype(np.float32)
    return BatchNorm(scale, bias - 1, mean - 1, variance)


def in_double(norm: BatchNorm) -> BatchNorm:
    return BatchNorm(*(x.astype(np.float64) for x in (norm.scale, norm.bias, norm.mean, norm.variance)))


def assert_within(found: np.ndarray, wanted: np.ndarray, tolerance: np.ndarray | float) -> None:
    assert np.all(np.abs(found - wanted) <= tolerance)


@pytest.mark.parametrize("b", ROWS)
@pytest.mark.parametrize("n", COLUMNS)
def test_forward(random, b, n):
    z, norm = random.normal(3, 2, (b, n)).astype(np.float32), norm_of(random, n)
    twin = in_double(norm)
    normed, out = batch_norm.forward(twin, z.astype(np.float64))
    arrays = [z, poisoned((b, n)), poisoned(n), norm.scale, norm.bias, norm.mean, norm.variance]
    found = run("batchnorm", "batch_norm", (-(-n // 32),), [*arrays, np.int32(b), np.int32(n)])
    # z - mean is as wrong as the largest sum of its column, however close to the mean it is.
    largest = np.abs(z).max(axis=0)
    relative = 16 * EPSILON * (1 + largest * normed.inverse)
    tolerance = relative * (1 + np.abs(normed.normal))
    assert_within(found[1], normed.normal, tolerance)
    assert_within(found[0], out, 2 * tolerance * norm.scale + EPSILON * np.abs(norm.bias))
    assert_within(found[2], normed.inverse, relative * normed.inverse)
    assert_within(found[3], twin.mean, 8 * EPSILON * (1 + largest))
    assert_within(found[4], twin.variance, 16 * EPSILON * (1 + largest**2))


def test_one_example_is_its_own_mean(random):
    z, norm = random.normal(3, 2, (1, 40)).astype(np.float32), norm_of(random, 40)
    args = [z, poisoned((1, 40)), poisoned(40), norm.scale, norm.bias, norm.mean, norm.variance]
    twin = norm.copy()
    normed, out = batch_norm.forward(twin, z.copy())
    found = run("batchnorm", "batch_norm", (2,), [*args, np.int32(1), np.int32(40)])
    for mine, its in zip(found, (out, normed.normal, normed.inverse, twin.mean, twin.variance), strict=True):
        np.testing.assert_array_equal(mine, its)


def test_no_example_changes_nothing(random):
    norm, nothing = norm_of(random, 3), np.empty((0, 3), np.float32)
    args = [nothing, nothing.copy(), poisoned(3), norm.scale, norm.bias, norm.mean, norm.variance]
    found = run("batchnorm", "batch_norm", (1,), [*args, np.int32(0), np.int32(3)])
    np.testing.assert_array_equal(found[3:], [norm.mean, norm.variance])


@pytest.mark.parametrize("grid", [1, 3, 99])
@pytest.mark.parametrize(("b", "n"), [(0, 5), (1, 1), (2, 31), (33, 32), (65, 33), (200, 257), (31, 1025)])
def test_inference_to_the_bit(random, b, n, grid):
    ld = n + 3
    z, norm = random.normal(3, 2, (b, ld)).astype(np.float32), norm_of(random, n)
    wanted = z.copy()
    wanted[:, :n] = batch_norm.inference(norm, z[:, :n].copy())
    args = [z, norm.scale, norm.bias, norm.mean, norm.variance, np.int32(b), np.int32(n), np.int32(ld)]
    np.testing.assert_array_equal(run("batchnorm", "batch_norm_inference", (grid,), args)[0], wanted)


@pytest.mark.parametrize("b", [0, *ROWS])
@pytest.mark.parametrize("n", COLUMNS)
def test_backward(random, b, n):
    delta, normal = random.normal(0, 1, (2, b, n)).astype(np.float32)
    norm, inverse = norm_of(random, n), random.uniform(0.1, 10, n).astype(np.float32)
    args = [delta, normal, inverse, norm.scale, poisoned(n), poisoned(n), np.int32(b), np.int32(n)]
    below, scale_gradient, bias_gradient = run("batchnorm", "batch_norm_backward", (-(-n // 32),), args)
    assert below.shape == delta.shape
    d, x = delta.astype(np.float64), normal.astype(np.float64)
    size, size_normal = np.abs(d).sum(axis=0), np.abs(d * x).sum(axis=0)
    if b:
        normed = batch_norm.Normed(x, inverse.astype(np.float64))
        wanted = batch_norm.backward(in_double(norm), normed, d)
        tolerance = 16 * EPSILON * (np.abs(d) + size / b + np.abs(x) * size_normal / b) * norm.scale * inverse
        assert_within(below, wanted[0], tolerance)
    else:
        wanted = below, np.zeros(n), np.zeros(n)
    assert_within(scale_gradient, wanted[1], 16 * EPSILON * size_normal)
    assert_within(bias_gradient, wanted[2], 16 * EPSILON * size)


def test_what_is_not_a_number_stays_it(random):
    z, norm = random.normal(3, 2, (4, 3)).astype(np.float32), norm_of(random, 3)
    z[2, 1] = np.nan
    args = [z, poisoned((4, 3)), poisoned(3), norm.scale, norm.bias, norm.mean, norm.variance]
    found = run("batchnorm", "batch_norm", (1,), [*args, np.int32(4), np.int32(3)])
    for array in found:
        np.testing.assert_array_equal(np.isnan(array).reshape(-1, 3).all(axis=0), [False, True, False])
