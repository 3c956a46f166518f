"""bfloat16 numbers: rounding to the nearest, ties to even, and what is no number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nnlib.ops.bf16 import from_bf16, to_bf16

CASES = [
    (1.0, 1.0),
    (1 + 2**-8, 1.0),  # half way between 1 and 1 + 2^-7: the even one
    (1 + 3 * 2**-8, 1 + 2**-6),
    (1 + 2**-8 + 2**-20, 1 + 2**-7),
    (-3.14159265, -3.140625),
    (3.3895314e38, 3.3895314e38),  # the largest bfloat16
    (3.4028235e38, np.inf),
    (-np.inf, -np.inf),
    (1e-40, 9.18355e-41),
    (-0.0, -0.0),
]


@pytest.mark.parametrize(("number", "nearest"), CASES)
def test_the_nearest_number(number, nearest):
    [found] = from_bf16(to_bf16(np.array([number], np.float32)))
    assert found == np.float32(nearest) and np.signbit(found) == np.signbit(nearest)


def test_what_is_no_number_stays_none():
    """The largest and the smallest NaN: a carry would make them -0, and cutting them off infinity."""
    nans = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF800001], np.uint32).view(np.float32)
    assert np.isnan(from_bf16(to_bf16(nans))).all()


@given(arrays(np.float32, (5, 3), elements=st.floats(-(2.0**99), 2.0**99, width=32)))
def test_no_bfloat16_is_nearer(x):
    found = to_bf16(x.T)
    assert found.shape == (3, 5) and found.dtype == np.uint16
    mine = np.abs(from_bf16(found).astype(np.float64) - x.T)
    for step in (-1, 1):
        other = from_bf16((found.astype(np.int32) + step).astype(np.uint16)).astype(np.float64)
        assert (np.isnan(other) | (mine <= np.abs(other - x.T)) | ((found == 0) & (step < 0))).all()
