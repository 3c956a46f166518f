"""Products of matrices by cuBLAS, on one stream with memory of its own, so that runs repeat bit for bit.

CuPy's wrapper sets the stream before each call, which takes the handle's workspace away (cuBLAS: cublasSetStream);
within a captured graph cuBLAS would then allocate one for every product.
"""

from __future__ import annotations

import ctypes
from typing import Any

from nnlib.errors import MachineError

WORKSPACE = 32 << 20  # bytes; what cuBLAS recommends for Hopper, more than it asks for elsewhere
FP32, TF32 = 0, 3  # cublasMath_t: CUBLAS_DEFAULT_MATH, CUBLAS_TF32_TENSOR_OP_MATH


class Cublas:
    """Multiplies row-major float32 matrices; cuBLAS, which counts columns first, sees all three transposed."""

    def __init__(self, cupy: Any, stream: Any, tf32: bool) -> None:
        """Work on a stream of CuPy's; with `tf32` factors may be rounded to 10 bits."""
        self._library = _library(cupy)
        with stream:
            self._workspace = cupy.zeros(WORKSPACE, "uint8")
        self._handle = ctypes.c_void_p()
        pointer, size = ctypes.c_void_p(self._workspace.data.ptr), ctypes.c_size_t(WORKSPACE)
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream.ptr))
        self._call("cublasSetWorkspace_v2", self._handle, pointer, size)
        self._call("cublasSetMathMode", self._handle, ctypes.c_int(TF32 if tf32 else FP32))

    def __call__(self, a: Any, b: Any, out: Any, flip: tuple[bool, bool], add: bool, scale: float) -> None:
        """See `Runtime.multiply`; rows may lie further apart than they are long, numbers of a row may not."""
        rows, columns = out.shape
        depth = a.shape[0] if flip[0] else a.shape[1]
        alpha, beta = ctypes.c_float(scale), ctypes.c_float(1.0 if add else 0.0)
        self._call(
            "cublasSgemm_v2",
            self._handle,
            *(ctypes.c_int(value) for value in (flip[1], flip[0], columns, rows, depth)),
            ctypes.byref(alpha),
            *_matrix(b),
            *_matrix(a),
            ctypes.byref(beta),
            *_matrix(out),
        )

    def close(self) -> None:
        """Destroy the handle, when nothing is under way any more."""
        self._call("cublasDestroy_v2", self._handle)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise MachineError(f"{name} failed with status {status} of cuBLAS")


def _matrix(array: Any) -> tuple[ctypes.c_void_p, ctypes.c_int]:
    assert array.strides[1] == array.itemsize, "numbers of a row lie side by side"
    return ctypes.c_void_p(array.data.ptr), ctypes.c_int(max(array.strides[0] // array.itemsize, array.shape[1]))


def _library(cupy: Any) -> ctypes.CDLL:
    """Return the cuBLAS that CuPy has loaded."""
    name = f"libcublas.so.{cupy.cuda.runtime.runtimeGetVersion() // 1000}"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise MachineError(f"{name} cannot be loaded: {error}") from error
