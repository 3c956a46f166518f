"""Memory that each thread uses again, block after block and batch after batch."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

LINE = 64  # bytes of a line of the cache, with which each array begins


class Scratch(threading.local):
    """Arrays by name, each thread's own."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}

    def get(self, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return memory of a shape, with whatever was in it."""
        size = math.prod(shape)
        array = self._arrays.get(name)
        if array is None or array.size < size or array.dtype != dtype:
            array = self._arrays[name] = empty_lines(size, dtype)
        return array[:size].reshape(shape)


def empty_lines(size: int, dtype: Any) -> NDArray[Any]:
    """Return as many numbers as `size`, not initialized, that begin with a line of the cache.

    NumPy's own arrays begin anywhere, and then half of all vectors as long as a line are two loads.
    """
    kind = np.dtype(dtype)
    numbers = np.empty(size * kind.itemsize + LINE, np.uint8)
    begin = -numbers.ctypes.data % LINE
    return numbers[begin : begin + size * kind.itemsize].view(kind)


SCRATCH = Scratch()
