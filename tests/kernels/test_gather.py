"""What sparse inputs give to the next layer: the bits of SciPy's product, and of the noise that batches.noisy draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from nnlib.model.batches import generator_for
from tests.kernels.host import poisoned, run
from tests.kernels.library import compiled
from tests.kernels.sparse_batch import (
    LAYER,
    LAYERS,
    noise_key,
    noise_of,
    packed_input,
    random_input,
    same_bits,
    stepped,
    with_noise,
)

UNITS, EXAMPLES, STEP = 40, 7, 11
COLUMNS = [1, 31, 32, 33, 128, 1025]
ONES = pytest.mark.parametrize("ones", [True, False])
KERNELS = Path(__file__).parents[2] / "kernels"
NUMBERS = """
extern "C" __global__ void numbers(unsigned long long key, unsigned long long number, const unsigned long long* at,
                                   float* out, int count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = uniform(key, number, at[i]);
}
"""


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def gathered(
    x: sparse.csr_array,
    ones: bool,
    w: np.ndarray,
    transposed: bool = False,
    p: float = 0.0,
    before: np.ndarray | None = None,
    more: int = 0,
) -> np.ndarray:
    """Return what the kernel makes of z: x times w, added to `before` if that is given; z has `more` columns."""
    batch, at = packed_input(x, ones)
    b, n = x.shape[0], len(w) if transposed else w.shape[1]
    z = poisoned((b, n + more))
    if before is not None:
        z[:, :n] = before
    strides = (1, w.shape[1]) if transposed else (w.shape[1], 1)
    sizes = [np.int32(b), np.int32(n), np.int32(n + more), np.int32(before is not None)]
    noise = [noise_of(p), noise_key(), stepped(STEP), np.int32(LAYERS), np.int32(LAYER)]
    args = [batch, at["starts"], at["items"], at["values"], w, *map(np.int64, strides), z, *sizes, *noise]
    [found] = run("gather", "gather", (max(b, 1), -(-n // 1024)), args)
    same_bits(found[:, n:], z[:, n:])
    return found[:, :n]


def weights(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.normal(0, 1, shape).astype(np.float32)


@ONES
@pytest.mark.parametrize("n", COLUMNS)
@pytest.mark.parametrize("more", [0, 3, 4])
def test_product(random, ones, n, more):
    x, w = random_input(random, EXAMPLES, UNITS, ones), weights(random, UNITS, n)
    same_bits(gathered(x, ones, w, more=more), x @ w)


@ONES
@pytest.mark.parametrize("n", COLUMNS)
def test_transposed_weights(random, ones, n):
    x, w = random_input(random, EXAMPLES, UNITS, ones), weights(random, n, UNITS)
    same_bits(gathered(x, ones, w, transposed=True), x @ w.T)


@pytest.mark.parametrize("n", COLUMNS)
@pytest.mark.parametrize("more", [0, 4])
def test_added_to_what_is_there(random, n, more):
    x, w, before = random_input(random, EXAMPLES, UNITS, False), weights(random, UNITS, n), weights(random, EXAMPLES, n)
    same_bits(gathered(x, False, w, before=before, more=more), before + x @ w)


@ONES
@pytest.mark.parametrize("most", [0, 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 200])
def test_any_number_of_entries(random, ones, most):
    x, w = random_input(random, 20, UNITS, ones, most), weights(random, UNITS, 8)
    same_bits(gathered(x, ones, w), x @ w)
    same_bits(gathered(x, ones, w, p=0.3), with_noise(x, 0.3, STEP) @ w)


@ONES
@pytest.mark.parametrize("p", [0.01, 0.5, 0.95])
@pytest.mark.parametrize("transposed", [False, True])
def test_noise(random, ones, p, transposed):
    x = random_input(random, 30, UNITS, ones, 50)
    w = weights(random, *((9, UNITS) if transposed else (UNITS, 9)))
    found = gathered(x, ones, w, transposed, p)
    same_bits(found, with_noise(x, p, STEP) @ (w.T if transposed else w))
    assert not np.array_equal(found, x @ (w.T if transposed else w))


def test_what_is_dropped_is_not_read(random):
    x, w = sparse.csr_array(np.ones((1, UNITS), np.float32)), weights(random, UNITS, 4)
    kept = with_noise(x, 0.5, STEP).indices
    w[np.setdiff1d(np.arange(UNITS), kept)] = np.nan
    assert np.isfinite(gathered(x, True, w, p=0.5)).all()
    w[kept[0]] = np.nan
    assert np.isnan(gathered(x, True, w, p=0.5)).all()


@pytest.mark.parametrize("width", [12, 13])
@pytest.mark.parametrize("offset", [0, 1])  # aligned to 16 bytes or not
def test_part_of_the_columns(random, width, offset):
    x, w = random_input(random, EXAMPLES, UNITS, False), weights(random, UNITS, width)
    batch, at = packed_input(x, False)
    part = w.reshape(-1)[offset : w.size - width + 4 + offset]
    sizes = [np.int32(EXAMPLES), np.int32(4), np.int32(4), np.int32(0)]
    noise = [None, noise_key(), stepped(STEP), np.int32(LAYERS), np.int32(LAYER)]
    strides = [np.int64(width), np.int64(1)]
    args = [batch, at["starts"], at["items"], at["values"], part, *strides, poisoned((EXAMPLES, 4)), *sizes, *noise]
    same_bits(run("gather", "gather", (EXAMPLES, 1), args)[0], x @ w[:, offset : offset + 4])


@ONES
@pytest.mark.parametrize("examples", [0, 1, 2])
def test_few_examples(random, ones, examples):
    x, w = random_input(random, examples, UNITS, ones), weights(random, UNITS, 5)
    same_bits(gathered(x, ones, w), x @ w)


@ONES
@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("examples", [0, 1, 255, 256, 300])
def test_skip(random, ones, p, examples):
    x = random_input(random, examples, UNITS, ones)
    z = weights(random, examples, UNITS + 2)
    batch, at = packed_input(x, ones)
    sizes = [np.int32(examples), np.int32(UNITS), np.int32(UNITS + 2)]
    noise = [noise_of(p), noise_key(), stepped(STEP), np.int32(LAYERS), np.int32(LAYER)]
    args = [batch, at["starts"], at["items"], at["values"], z, *sizes, *noise]
    [found] = run("gather", "skip_add", (max(1, -(-examples // 256)),), args)
    left, wanted = with_noise(x, p, STEP), z.copy()
    np.add.at(wanted, (np.repeat(np.arange(examples), np.diff(left.indptr)), left.indices), left.data)
    same_bits(found, wanted)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**63 - 1),
    st.lists(st.one_of(st.integers(0, 40), st.integers(0, 2**40)), min_size=1, max_size=20),
)
def test_philox_is_that_of_numpy(key, number, indices):
    text = (KERNELS / "random.cuh").read_text(encoding="utf-8").replace("#pragma once\n", "") + NUMBERS
    size = np.int32(len(indices))
    args = [np.uint64(key), np.uint64(number), np.array(indices, np.uint64), poisoned(len(indices)), size]
    wanted = []
    for index in indices:
        bits = np.random.Philox(key=key, counter=number << 128)
        bits.advance(index // 8)
        wanted.append(np.random.Generator(bits).random(8, np.float32)[index % 8])
    same_bits(run(compiled(text), "numbers", (1,), args)[0], np.array(wanted, np.float32))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 4), st.integers(0, 2**40))
def test_philox_is_the_stream_of_a_step(seed, purpose, number):
    text = (KERNELS / "random.cuh").read_text(encoding="utf-8").replace("#pragma once\n", "") + NUMBERS
    at = np.arange(300, dtype=np.uint64)
    args = [np.uint64(seed << 8 | purpose), np.uint64(number), at, poisoned(300), np.int32(300)]
    same_bits(
        run(compiled(text), "numbers", (2,), args)[0], generator_for(seed, purpose, number).random(300, np.float32)
    )
