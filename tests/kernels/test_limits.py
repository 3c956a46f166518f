"""Limits of norms and the sparseness penalty, as ops/limits.py has them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from nnlib.cpu import optimizer
from nnlib.gpu.optimizer import CHUNK
from nnlib.model.network import Layout
from nnlib.ops.limits import limit_norms, sparseness_gradient
from nnlib.spec.types import Sparseness
from tests.kernels.host import poisoned, run

EPSILON = float(np.finfo(np.float32).eps)
COLUMNS = [1, 31, 32, 33, 257, 1025]


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def assert_close(found: np.ndarray, wanted: np.ndarray, relative: float = 16) -> None:
    """A norm is a sum of squares, so that no digits cancel; NaN and infinity are to be where the twin has them."""
    np.testing.assert_allclose(found, wanted, rtol=relative * EPSILON, atol=0)


def delta_limited(delta: np.ndarray, limit: float) -> np.ndarray:
    limit_norms(delta, limit, 1, len(delta))
    return delta


@pytest.mark.parametrize("b", [0, 1, 2, 31, 32, 33])
@pytest.mark.parametrize("n", COLUMNS)
def test_delta(random, b, n):
    ld, limit = n + 3, 0.7 * b * n**0.5  # some rows are above it, some below
    delta = (random.normal(0, 1, (b, ld)) * random.uniform(0, 1.4, (b, 1))).astype(np.float32)
    wanted = delta.astype(np.float64)
    wanted[:, :n] = delta_limited(wanted[:, :n].copy(), limit)
    args = [delta, np.int32(b), np.int32(n), np.int32(ld), np.float32(limit)]
    assert_close(run("limits", "limit_delta", (max(b, 1),), args)[0], wanted)


@pytest.mark.parametrize("row", [[0, 0], [1e-30, -1e-30], [3e38, 3e38], [np.nan, 1], [np.inf, 1], [-0.0, 5]])
def test_delta_of_extreme_rows(row):
    delta = np.array([row, [3, 4]], np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = delta_limited(delta.copy(), 5)
    found = run("limits", "limit_delta", (2,), [delta, np.int32(2), np.int32(2), np.int32(2), np.float32(5)])[0]
    assert_close(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


def weights_limited(monkeypatch: pytest.MonkeyPatch, w: np.ndarray, layout: Layout, limit: float) -> np.ndarray:
    monkeypatch.setattr(optimizer, "layout_of", lambda spec, edge: layout)
    monkeypatch.setattr(optimizer, "count_units", lambda spec, layer: 1)
    wanted = w.astype(np.float64)
    optimizer._limit(None, SimpleNamespace(source=0), wanted, limit)
    return wanted


@pytest.mark.parametrize("grid", [1, 5, 40])
@pytest.mark.parametrize(("rows", "n"), [(0, 4), (1, 1), (2, 31), (31, 32), (32, 33), (33, 257), (7, 1025)])
def test_rows(monkeypatch, random, rows, n, grid):
    w = (random.normal(0, 1, (rows, n)) * random.uniform(0, 1.4, (rows, 1))).astype(np.float32)
    limit = 0.7 * n**0.5
    wanted = weights_limited(monkeypatch, w, Layout.BY_OUTPUT, limit)
    assert_close(run("limits", "limit_rows", (grid,), [w, np.int64(rows), np.int32(n), np.float32(limit)])[0], wanted)


@pytest.mark.parametrize("rows", [0, 1, 2, 31, 32, 33, 200, 2048, 2049, 5000])
@pytest.mark.parametrize("n", COLUMNS)
def test_columns(monkeypatch, random, rows, n):
    w = (random.normal(0, 1, (rows, n)) * random.uniform(0, 1.4, n)).astype(np.float32)
    limit = 0.7 * max(rows, 1) ** 0.5
    wanted = weights_limited(monkeypatch, w, Layout.PLAIN, limit)
    assert_close(columns_limited(w, limit), wanted)


def columns_limited(w: np.ndarray, limit: float) -> np.ndarray:
    """What the two launches make of w."""
    rows, n = w.shape
    grid, shape = (-(-n // 32), max(1, -(-rows // CHUNK))), (np.int64(rows), np.int32(n))
    [parts] = run("limits", "column_squares", grid, [w, poisoned((grid[1], n)), *shape])
    return run("limits", "limit_columns", grid, [w, parts, *shape, np.float32(limit)])[0]


def test_what_is_within_the_limit_keeps_its_bits(random):
    w = random.uniform(-0.1, 0.1, (33, 70)).astype(np.float32)
    args = [w, np.int64(33), np.int32(70), np.float32(1)]
    np.testing.assert_array_equal(run("limits", "limit_rows", (33,), args)[0], w)
    np.testing.assert_array_equal(columns_limited(w, 1), w)


def penalty_of(a: np.ndarray, p: float, beta: float) -> np.ndarray:
    return sparseness_gradient(Sparseness(p, beta), a)


@pytest.mark.parametrize("b", [1, 2, 31, 32, 33])
@pytest.mark.parametrize("n", COLUMNS)
def test_sparseness(random, b, n):
    a, p, beta = random.uniform(0.05, 0.95, (b, n)).astype(np.float32), 0.125, 2.5
    wanted = penalty_of(a.astype(np.float64), p, beta)
    args = [a, poisoned(n), np.int32(b), np.int32(n), np.float32(p), np.float32(beta)]
    found = run("limits", "sparseness", (-(-n // 32),), args)[0]
    # The two parts may cancel; 1 - mean is as wrong as the mean.
    mean = a.mean(axis=0, dtype=np.float64)
    terms = beta / b * ((1 - p) / (1 - mean) ** 2 + p / mean)
    assert np.all(np.abs(found - wanted) <= 16 * EPSILON * terms)


def test_sparseness_of_means_at_the_ends():
    a = np.array([[0, 1, -3, 7, np.nan, 0.5]], np.float32)
    args = [a, poisoned(6), np.int32(1), np.int32(6), np.float32(0.25), np.float32(1)]
    assert_close(run("limits", "sparseness", (1,), args)[0], penalty_of(a, 0.25, 1.0))


def test_sparseness_of_nobody():
    args = [np.empty((0, 2), np.float32), np.ones(2, np.float32), *map(np.int32, (0, 2)), *map(np.float32, (0.5, 1))]
    np.testing.assert_array_equal(run("limits", "sparseness", (1,), args)[0], [1, 1])
