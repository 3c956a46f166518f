"""The gradient of the rows that a batch touches, with the bits of gather.Touched.gradient."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tests.kernels.host import poisoned, run
from tests.kernels.sparse_batch import (
    LAYER,
    LAYERS,
    gradient_of,
    noise_key,
    noise_of,
    packed_input,
    random_input,
    same_bits,
    stepped,
    with_noise,
)

UNITS = 24
ONES = pytest.mark.parametrize("ones", [True, False])
GRIDS = pytest.mark.parametrize("grid", [1, 3, 64])


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def floats(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.normal(0, 1, shape).astype(np.float32)


def arguments(x: sparse.csr_array, ones: bool, delta: np.ndarray) -> list:
    batch, at = packed_input(x, ones)
    places = [at[name] for name in ("count", "rows", "row_starts", "examples", "places", "values")]
    return [batch, *places, delta, np.int32(delta.shape[1])]


def noise_arguments(p: float, step: int = 3) -> list:
    return [noise_of(p), noise_key(), stepped(step), np.int32(LAYERS), np.int32(LAYER)]


@ONES
@GRIDS
@pytest.mark.parametrize("p", [0.0, 0.5])
@pytest.mark.parametrize("n", [1, 33, 132, 1025])
def test_squares(random, ones, grid, p, n):
    x, delta = random_input(random, 30, UNITS, ones), floats(random, 30, n + 4)
    args = [*arguments(x, ones, delta), poisoned(grid, np.float64), np.int32(n), *noise_arguments(p)]
    [parts] = run("touched", "touched_squares", (grid,), args)
    gradient = gradient_of(with_noise(x, p, 3), delta[:, :n]).astype(np.float64)
    assert np.sum(parts) == pytest.approx(np.sum(gradient**2), rel=1e-13)


@ONES
@pytest.mark.parametrize("p", [0.0, 0.5])
@pytest.mark.parametrize("n", [1, 33, 132, 1025])
@pytest.mark.parametrize(("transposed", "grid"), [(False, 1), (False, 3), (True, 3)])
def test_gradient_added(random, ones, p, n, transposed, grid):
    x, delta = random_input(random, 30, UNITS, ones), floats(random, 30, n + 4)
    before = floats(random, *((n, UNITS) if transposed else (UNITS, n)))
    strides = (1, UNITS) if transposed else (n, 1)
    args = [*arguments(x, ones, delta), before, *map(np.int64, strides), np.int32(n), *noise_arguments(p)]
    [found] = run("touched", "touched_add", (grid,), args)
    gradient = gradient_of(with_noise(x, p, 3), delta[:, :n])
    same_bits(found, before + (gradient.T if transposed else gradient))


@pytest.mark.parametrize("most", [32, 33, 64, 65, 300])
def test_units_of_many_examples(random, most):
    x, delta = random_input(random, 300, 3, False, most), floats(random, 300, 4)
    args = [*arguments(x, False, delta), np.zeros((3, 4), np.float32), np.int64(4), np.int64(1), np.int32(4)]
    [found] = run("touched", "touched_add", (2,), [*args, *noise_arguments(0.2)])
    same_bits(found, gradient_of(with_noise(x, 0.2, 3), delta))


def test_no_rows(random):
    x, delta = random_input(random, 0, UNITS, True), floats(random, 0, 4)
    [parts] = run(
        "touched",
        "touched_squares",
        (2,),
        [*arguments(x, True, delta), poisoned(2, np.float64), np.int32(4), *noise_arguments(0)],
    )
    assert (parts == 0).all()
