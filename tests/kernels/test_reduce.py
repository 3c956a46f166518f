"""The sums against NumPy's in double precision, and what is done with them once a step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.kernels.host import poisoned, run

EPSILON = float(np.finfo(np.float32).eps)


def column_sums(x: np.ndarray, n: int, sums: np.ndarray, scale: float = 1, add: bool = False) -> np.ndarray:
    b, ld = x.shape
    numbers = [np.int32(b), np.int32(n), np.int32(ld), np.float32(scale), np.int32(add)]
    [found] = run("reduce", "column_sums", (-(-n // 32),), [x, sums, *numbers])
    return found


def in_order(x: np.ndarray) -> np.ndarray:
    """Return the sums of columns: rows r, r + 8, ... for each r, then these eight, all in float32."""
    lanes = np.zeros((8, x.shape[1]), np.float32)
    for i, row in enumerate(x):
        lanes[i % 8] += row
    total = lanes[0].copy()
    for lane in lanes[1:]:
        total += lane
    return total


@pytest.mark.parametrize("b", [0, 1, 7, 8, 9, 31, 64, 65, 300])
@pytest.mark.parametrize("n", [1, 31, 32, 33, 257])
def test_column_sums(b, n):
    x = np.random.default_rng(b).standard_normal((b, n + 3), dtype=np.float32)
    found = column_sums(x, n, poisoned(n))
    np.testing.assert_array_equal(found, in_order(x[:, :n]))
    assert np.all(np.abs(found - x[:, :n].sum(axis=0, dtype=float)) <= b * EPSILON * np.abs(x[:, :n]).sum(axis=0))


def test_column_sums_are_scaled_and_added():
    x = np.random.default_rng(0).standard_normal((50, 40), dtype=np.float32)
    before = np.arange(40, dtype=np.float32)
    found = column_sums(x, 40, before, scale=0.25, add=True)
    np.testing.assert_array_equal(found, before + np.float32(0.25) * in_order(x))
    np.testing.assert_array_equal(column_sums(x[:0], 40, before, add=True), before)


def test_column_sums_do_not_hide_nan_or_infinity():
    x = np.ones((20, 3), np.float32)
    x[13, 0], x[5, 1] = np.nan, -np.inf
    np.testing.assert_array_equal(column_sums(x, 3, poisoned(3)), [np.nan, -np.inf, 20])


@pytest.mark.parametrize("blocks", [1, 5])
@pytest.mark.parametrize("count", [0, 1, 31, 255, 256, 257, 100003])
def test_sum_squares(count, blocks):
    x = (np.random.default_rng(count).standard_normal(count) * 1e25).astype(np.float32)  # squares too large for a float
    for array in (x, x[1:]):
        [parts] = run("reduce", "sum_squares", (blocks,), [array, poisoned(blocks, np.float64), np.int64(array.size)])
        assert parts.sum() == pytest.approx(np.square(array, dtype=np.float64).sum(), rel=1e-13)


def test_sum_squares_of_nan_is_nan():
    [parts] = run("reduce", "sum_squares", (1,), [np.float32([1, np.nan]), poisoned(1, np.float64), np.int64(2)])
    assert math.isnan(parts[0])


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 5000])
def test_finish_loss_adds_up(count):
    parts = np.random.default_rng(count).random(count)
    [status] = run("reduce", "finish_loss", (1,), [parts, np.int32(count), np.float64([7, 10, 0, 0]), np.int64([3])])
    assert status[0] == pytest.approx(parts.sum(), rel=1e-13)
    assert status[1] == 10 + status[0]
    assert status[2] == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_finish_loss_keeps_the_first_step_that_is_not_finite(bad):
    def after(status: list[float], step: int) -> np.ndarray:
        parts = np.array([1, bad])
        return run("reduce", "finish_loss", (1,), [parts, np.int32(2), np.float64(status), np.int64([step])])[0]

    first = after([0, 0, 0, 0], 4)
    np.testing.assert_array_equal(first, [bad, bad, 4, bad])
    np.testing.assert_array_equal(after([*first[:3], 1.5], 5)[2:], [4, 1.5])


@pytest.mark.parametrize("count", [1, 300])
def test_clip_scale(count):
    parts = np.random.default_rng(0).random(count)
    length = math.sqrt(parts.sum())
    for limit in (0.5 * length, 0.999 * length, 1.001 * length, 5 * length):
        [scale] = run("reduce", "clip_scale", (1,), [parts, np.int32(count), np.float64(limit), poisoned(1)])
        assert scale[0] == pytest.approx(min(1, limit / length), rel=EPSILON)


@pytest.mark.parametrize(("squares", "wanted"), [(0.0, 1), (math.nan, 1), (math.inf, 0)])
def test_clip_scale_of_a_gradient_without_a_direction(squares, wanted):
    [scale] = run("reduce", "clip_scale", (1,), [np.array([squares]), np.int32(1), np.float64(2), poisoned(1)])
    assert scale[0] == wanted


def test_a_step_begins():
    [step] = run("reduce", "begin_step", (1,), [np.int64([1 << 40])], block=(1,))
    assert step[0] == (1 << 40) + 1
    [step] = run("reduce", "begin_step", (2,), [np.int64([0])])
    assert step[0] == 1
