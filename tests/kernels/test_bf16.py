"""Rounding to bfloat16 by the kernel and by NumPy, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from nnlib.ops.bf16 import to_bf16
from tests.kernels.host import run

# Each number of a float's upper half, before the middle between it and the next one, on it, and behind it.
HALVES = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
LOWER = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)


def rounded(x: np.ndarray, n: int, grid: int = 3, more: int = 0) -> np.ndarray:
    """Return what the kernel makes of the first n columns, in rows with so many `more` words than it needs."""
    rows, words = len(x), 4 * -(-n // 8) + more
    sizes = [np.int32(size) for size in (rows, n, x.shape[1], words)]
    [found] = run("bf16", "to_bf16", (grid,), [x, np.full((rows, words), 0xDEADBEEF, np.uint32), *sizes])
    halves = found.view(np.uint16)
    assert not halves[:, n:].any(), "what is beyond the row is zero"
    return halves[:, :n]


@pytest.mark.parametrize("lower", LOWER)
def test_every_bfloat16_and_what_is_beside_it(lower):
    x = (HALVES | lower).view(np.float32).reshape(256, 256)
    np.testing.assert_array_equal(rounded(x, 256, 16), to_bf16(x))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 65])
@pytest.mark.parametrize("gap", [0, 1, 4])
def test_rows_of_all_lengths(n, gap):
    x = np.random.default_rng(n).standard_normal((5, n + gap), np.float32)
    np.testing.assert_array_equal(rounded(x, n), to_bf16(x[:, :n]))


def test_rows_with_more_room():
    x = np.random.default_rng(1).standard_normal((3, 9), np.float32)
    np.testing.assert_array_equal(rounded(x, 9, more=4), to_bf16(x))


def test_no_rows():
    assert rounded(np.zeros((0, 5), np.float32), 5).shape == (0, 5)
