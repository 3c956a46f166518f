"""Faults planted in real kernels are found by checks that pass with the text as it is."""

from __future__ import annotations

import numpy as np
import pytest

from nnlib.gpu.kernels import source
from tests.kernels.host import poisoned, run
from tests.kernels.library import Library, compiled, family


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def check_column_sums(library: Library) -> None:
    x = random(100, 40)
    numbers = [np.int32(100), np.int32(40), np.int32(40), np.float32(1), np.int32(0)]
    [sums] = run(library, "column_sums", (2,), [x, poisoned(40), *numbers])
    np.testing.assert_allclose(sums, x.sum(axis=0), rtol=0, atol=1e-4)


def check_batch_norm(library: Library) -> None:
    z, ones = random(100, 40), np.ones(40, np.float32)
    arrays = [z, poisoned((100, 40)), poisoned(40), ones, ones, ones.copy(), ones.copy()]
    normal = run(library, "batch_norm", (2,), [*arrays, np.int32(100), np.int32(40)])[1]
    np.testing.assert_allclose(normal, (z - z.mean(axis=0)) / z.std(axis=0), rtol=0, atol=1e-4)


def check_sum_squares(library: Library) -> None:
    x = np.exp(10 * random(1000))  # sums of squares of a like size would be exact
    [parts] = run(library, "sum_squares", (2,), [x, poisoned(2, np.float64), np.int64(x.size)])
    assert parts.sum() == pytest.approx(np.square(x, dtype=np.float64).sum(), rel=1e-12)


def check_mul_c(library: Library) -> None:
    for n in (31, 33, 1500):
        x = random(n)
        [found] = run(library, "mul_c", (1,), [x, np.float32(2), np.int64(n)])
        np.testing.assert_array_equal(found, x * 2)


BEFORE_USE = "    sums[threadIdx.x / 32][column] = own;\n    __syncthreads();\n"
BEFORE_REUSE = "    __syncthreads();  // nobody still reads the sums before these\n"
IN_THE_TREE = "        __syncthreads();\n        if (thread < half)"
FAULTS = {
    "no barrier before shared memory is read": (
        "reduce",
        check_column_sums,
        BEFORE_USE,
        BEFORE_USE.replace("    __syncthreads();\n", ""),
    ),
    "no barrier before shared memory is used again": ("batchnorm", check_batch_norm, BEFORE_REUSE, ""),
    "no barrier between the levels of a tree": ("reduce", check_sum_squares, IN_THE_TREE, "        if (thread < half)"),
    "a barrier for some": (
        "reduce",
        check_sum_squares,
        IN_THE_TREE,
        "        if (thread < half) { __syncthreads(); } else { \n__syncthreads(); }\n        if (thread < half)",
    ),
    "a sum in the order in which threads come": (
        "reduce",
        check_sum_squares,
        "    sums[thread] = own;\n",
        "    __shared__ int next;\n    if (thread == 0) next = 0;\n    __syncthreads();\n"
        "    sums[atomicAdd(&next, 1)] = own;\n",
    ),
    "one element too many is read": ("reduce", check_sum_squares, "i < count;", "i <= count;"),
    "one element too many is written": ("elementwise", check_mul_c, "n - at < WIDE ?", "n - at < WIDE - 1 ?"),
    "the last element is forgotten": ("elementwise", check_mul_c, "at < n;", "at < n - 1;"),
    "a grid that does too little": ("elementwise", check_mul_c, "; at += threads * WIDE)", "; at += n)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    name, check, old, new = FAULTS[fault]
    assert old in source(name)
    check(family(name))
    with pytest.raises(AssertionError):
        check(compiled(source(name).replace(old, new)))
