"""The elementwise kernels against NumPy, bit for bit where NumPy's function is an IEEE operation."""

from __future__ import annotations

import numpy as np
import pytest

from nnlib.gpu.kernels import source
from nnlib.gpu.selfcheck import elementwise
from nnlib.gpu.selfcheck.elementwise import EXACT, ROUNDED, SPECIAL, WITH_ARRAY
from tests.kernels.host import poisoned, run
from tests.kernels.library import signatures

SIZES = [0, 1, 3, 4, 31, 32, 33, 1025, 100003]
GRIDS = [(1,), (3,)]
WITH_NUMBER = elementwise.WITH_NUMBER | {"threshold_lt": np.maximum}


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def numbers(n: int, seed: int = 0) -> np.ndarray:
    """Return floats of all sizes with special ones among them."""
    random = np.random.default_rng(seed)
    x = (random.standard_normal(n) * 10.0 ** random.integers(-3, 4, n)).astype(np.float32)
    places = random.integers(0, max(n, 1), len(SPECIAL) if n > 100 else min(n, 2))
    x[places] = random.permutation(SPECIAL)[: len(places)]
    return x


def one(name: str, grid: tuple[int], x: np.ndarray, *others: object) -> np.ndarray:
    [found] = run("elementwise", name, grid, [x, *others, np.int64(x.size)])
    return found


def assert_same(found: np.ndarray, wanted: np.ndarray, name: str = "") -> None:
    """Compare, with the signs of zeros."""
    np.testing.assert_array_equal(found, wanted, err_msg=name)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(wanted[numbers]), err_msg=name)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("n", SIZES)
def test_with_a_number(n, grid):
    x = numbers(n)
    for name, twin in WITH_NUMBER.items():
        c = np.float32(-1.7)
        assert_same(one(name, grid, x, c), twin(x, c), name)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("n", SIZES)
def test_with_an_array(n, grid):
    x, y = numbers(n), numbers(n, seed=1)
    for name, twin in WITH_ARRAY.items():
        assert_same(one(name, grid, x, y), twin(x, y), name)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("n", SIZES)
def test_of_one_array(n, grid):
    x = numbers(n)
    for name, twin in EXACT.items():
        assert_same(one(name, grid, x), twin(x), name)
    for name, twin in ROUNDED.items():
        wanted = twin(x.astype(np.float64)).astype(np.float32)
        np.testing.assert_allclose(one(name, grid, x), wanted, rtol=3e-7, atol=1e-44, err_msg=name)


@pytest.mark.parametrize("offset", [(1, 0), (0, 1), (2, 3), (1, 1)])
def test_arrays_that_are_not_aligned(offset):
    x, y = (numbers(38, seed)[start:][:33] for seed, start in enumerate(offset))
    assert_same(one("add", (1,), x, y), x + y)
    assert_same(one("mul_c", (1,), x, np.float32(3)), x * np.float32(3))


def test_an_array_with_itself():
    x = numbers(1001)
    assert_same(one("add", (2,), x, x), x + x)


def test_set_reads_nothing():
    assert (one("set", (1,), poisoned(10), np.float32(0)) == 0).all()


def test_many_arrays_in_one_launch():
    sizes = np.array([5, 0, 100003, 1, 33], np.int64)
    arrays = [numbers(n + 1, seed)[seed % 2 :][:n] for seed, n in enumerate(sizes)]
    args = [arrays, sizes, np.int32(len(sizes)), np.float32(0.3)]
    [found] = run("elementwise", "multi_mul_c", (3, len(sizes)), args)
    for mine, array in zip(found, arrays, strict=True):
        assert_same(mine, array * np.float32(0.3))
    [found] = run("elementwise", "multi_mul_c", (3, len(sizes) + 2), args)  # rows of the grid without an array
    assert_same(found[2], arrays[2] * np.float32(0.3))


def test_every_kernel_is_tested():
    names = {*WITH_NUMBER, *WITH_ARRAY, *EXACT, *ROUNDED, "multi_mul_c"}
    assert set(signatures(source("elementwise"))) == names
