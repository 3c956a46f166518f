"""Products of matrices by cuBLAS, on one stream with memory of its own, so that runs repeat bit for bit.

CuPy's wrapper sets the stream before each call, which takes the handle's workspace away (cuBLAS: cublasSetStream);
within a captured graph cuBLAS would then allocate one for every product.
"""

from __future__ import annotations

import ctypes
from typing import Any

from nnlib.errors import MachineError

WORKSPACE = 32 << 20  # bytes; what cuBLAS recommends for Hopper, more than it asks for elsewhere
FLOAT32, TF32, BF16 = PRECISIONS = ("float32", "tf32", "bf16")  # what the factors of a product are rounded to
DEFAULT_MATH, TF32_MATH = 0, 3  # cublasMath_t
R_32F, R_16BF = 0, 14  # cudaDataType_t
COMPUTE_32F, DEFAULT_ALGORITHM = 68, -1  # cublasComputeType_t: sums are float32; cublasGemmAlgo_t


class Cublas:
    """Multiplies row-major matrices into float32; cuBLAS, which counts columns first, sees all three transposed."""

    def __init__(self, cupy: Any, stream: Any, precision: str) -> None:
        """Work on a stream of CuPy's; with TF32 cuBLAS may round factors to 10 bits, with BF16 they are rounded."""
        self._library = _library(cupy)
        with stream:
            self._workspace = cupy.zeros(WORKSPACE, "uint8")
        self._handle = ctypes.c_void_p()
        pointer, size = ctypes.c_void_p(self._workspace.data.ptr), ctypes.c_size_t(WORKSPACE)
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream.ptr))
        self._call("cublasSetWorkspace_v2", self._handle, pointer, size)
        mode = TF32_MATH if precision == TF32 else DEFAULT_MATH
        self._call("cublasSetMathMode", self._handle, ctypes.c_int(mode))
        self._halves = precision == BF16

    def __call__(self, a: Any, b: Any, out: Any, flip: tuple[bool, bool], add: bool, scale: float) -> None:
        """See `Runtime.multiply`; rows may lie further apart than they are long, numbers of a row may not."""
        rows, columns = out.shape
        depth = a.shape[0] if flip[0] else a.shape[1]
        alpha, beta = ctypes.c_float(scale), ctypes.c_float(1.0 if add else 0.0)
        shape = [ctypes.c_int(value) for value in (flip[1], flip[0], columns, rows, depth)]
        head, scales = (self._handle, *shape), (ctypes.byref(alpha), ctypes.byref(beta))
        if not self._halves:
            self._call("cublasSgemm_v2", *head, scales[0], *_matrix(b), *_matrix(a), scales[1], *_matrix(out))
            return
        matrices = _typed(b, R_16BF), _typed(a, R_16BF), _typed(out, R_32F)
        kinds = ctypes.c_int(COMPUTE_32F), ctypes.c_int(DEFAULT_ALGORITHM)
        self._call("cublasGemmEx", *head, scales[0], *matrices[0], *matrices[1], scales[1], *matrices[2], *kinds)

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


def _typed(array: Any, kind: int) -> tuple[ctypes.c_void_p, ctypes.c_int, ctypes.c_int]:
    place, apart = _matrix(array)
    return place, ctypes.c_int(kind), apart


def _library(cupy: Any) -> ctypes.CDLL:
    """Return the cuBLAS that CuPy has loaded."""
    name = f"libcublas.so.{cupy.cuda.runtime.runtimeGetVersion() // 1000}"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise MachineError(f"{name} cannot be loaded: {error}") from error
