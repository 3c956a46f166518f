"""Products of bfloat16 numbers by oneMKL, where it is installed: the only module that loads it.

Each product is computed by the thread that asks for it, so that any number of threads gives the same bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from nnlib.compiled.select import LOOPS
from nnlib.cpu.scratch import SCRATCH
from nnlib.ops.bf16 import Halves, to_bf16
from nnlib.util.arrays import Floats

NAME = "mkl"
LP64, SEQUENTIAL = 0, 1  # MKL_INTERFACE_LP64, MKL_THREADING_SEQUENTIAL
ROW_MAJOR, AS_IT_IS, TRANSPOSED = 101, 111, 112  # of cblas.h


@dataclass(frozen=True, slots=True)
class Library:
    """oneMKL, loaded."""

    version: str
    gemm: Any  # cblas_gemm_bf16bf16f32


@lru_cache(maxsize=1)
def find() -> Library | None:
    """Load oneMKL's own package; None where it is missing, cannot be loaded, or has threads in use already."""
    try:
        package = metadata.distribution(NAME)
        [path] = [file for file in package.files or () if file.name.startswith("libmkl_rt.so")]
        library = ctypes.CDLL(str(path.locate()))
        library.MKL_Set_Interface_Layer(LP64)
        if library.MKL_Set_Threading_Layer(SEQUENTIAL) != SEQUENTIAL:
            return None
        gemm = library.cblas_gemm_bf16bf16f32
    except (metadata.PackageNotFoundError, ValueError, OSError, AttributeError):
        return None
    number, pointer, single = ctypes.c_int, ctypes.c_void_p, ctypes.c_float
    gemm.argtypes = [*[number] * 6, single, pointer, number, pointer, number, single, pointer, number]
    gemm.restype = None
    return Library(package.version, gemm)


class Mkl:
    """See `products.Products`; factors are bfloat16 numbers as uint16."""

    by_row = False  # oneMKL promises nothing

    def __init__(self) -> None:
        library = find()
        assert library is not None, "who asks for it has looked"
        self._gemm = library.gemm
        self.versions: Mapping[str, str] = {NAME: library.version}

    def factor(self, x: Floats, memory: str = "") -> Halves:
        """See `products.Products`."""
        return round_factor(x, memory)

    def multiply(self, a: Halves, b: Halves, out: Floats | None = None) -> Floats:
        """See `products.Products`."""
        (n, k), m = a.shape, b.shape[1]
        if out is None:
            out = np.empty((n, m), np.float32)
        if not k:
            out[...] = 0
        elif n and m:
            left, right = _form(a), _form(b)
            stride = out.strides[0] // out.itemsize
            self._gemm(
                *(ROW_MAJOR, left[0], right[0], n, m, k, 1.0, *left[1:], *right[1:]), 0.0, out.ctypes.data, stride
            )
        return out


def round_factor(x: Floats, memory: str = "") -> Halves:
    """Return a factor as bfloat16 numbers, by rows or by columns as it is; see `products.Products`."""
    if not x.flags.c_contiguous and x.T.flags.c_contiguous:
        return round_factor(x.T, memory).T
    if LOOPS is None:
        return to_bf16(x)
    out = SCRATCH.get(f"bf16 {memory}", x.shape, np.uint16) if memory else np.empty(x.shape, np.uint16)
    numbers, stride = _flatten(x if x.strides[1] == x.itemsize else np.ascontiguousarray(x))
    LOOPS.to_bf16(numbers.view(np.uint32), stride, out)
    return out


def _flatten(x: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Return a matrix with contiguous rows in one dimension, without a copy, and how far apart its rows begin."""
    if x.flags.c_contiguous or not x.size:
        return x.reshape(-1), x.shape[1]
    stride = x.strides[0] // x.itemsize
    return as_strided(x, ((len(x) - 1) * stride + x.shape[1],), (x.itemsize,)), stride


def _form(matrix: NDArray[Any]) -> tuple[int, int, int]:
    """Return how BLAS is told of a matrix whose rows or columns are contiguous: order, address and stride."""
    rows, columns = (stride // matrix.itemsize for stride in matrix.strides)
    if columns == 1:
        return AS_IT_IS, matrix.ctypes.data, max(rows, matrix.shape[1])
    return TRANSPOSED, matrix.ctypes.data, max(columns, matrix.shape[0])
