"""Compiled rounding to bfloat16. Twin: `bf16.to_bf16`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.compiled.compiler import compile_loop

Bits = NDArray[Any]


@compile_loop
def to_bf16(numbers: Bits, stride: int, out: Bits) -> None:
    """Write to `out` (n, m) the bfloat16 nearest to float32 `numbers`, row i of which starts at i * stride.

    Both are bits, uint32 and uint16; `numbers` has one dimension.
    """
    for row in range(out.shape[0]):
        source, target = numbers[row * stride : row * stride + out.shape[1]], out[row]
        for column in range(target.size):
            bits = source[column]
            rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
            is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
            target[column] = np.uint16(np.uint32(0x7FC0) if is_nan else rounded)
