"""bfloat16: a float32 without its last 16 bits, 8 bits of significand and the same range."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.util.arrays import Floats

Halves = NDArray[np.uint16]  # bfloat16 numbers as their bits, which NumPy has no type for
QUIET_NAN = 0x7FC0


def to_bf16(x: Floats) -> Halves:
    """Return float32 numbers rounded to the nearest bfloat16, of two equally near ones to the even one.

    Beyond the largest bfloat16 that is infinity; NaN stays NaN.
    """
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    found = ((bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)).astype(np.uint16)
    found[np.isnan(x)] = QUIET_NAN
    return found


def from_bf16(halves: Halves) -> NDArray[Any]:
    """Return bfloat16 numbers as float32, exactly."""
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)
