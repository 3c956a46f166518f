"""cuBLAS as CuPy loads it: a library with NVIDIA's prototypes, whose products NumPy computes. See played_cuda.py."""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from nnlib.ops.bf16 import from_bf16
from tests.kernels.standin import Stream

LIBRARY, BELOW = "libcublas.so.13", "libcublasLt.so.13"  # CuPy looks for both
NOT_SUPPORTED = 15  # a status
FP32, TF32 = 0, 3  # cublasMath_t that are played
R_32F, R_16BF, COMPUTE_32F = 0, 14, 68  # cudaDataType_t and cublasComputeType_t
# As cublas_api.h declares them. Whatever else CuPy's module needs of the library is there and refuses.
PROTOTYPES = {
    "cublasCreate_v2": "void** handle",
    "cublasDestroy_v2": "void* handle",
    "cublasSetStream_v2": "void* handle, void* stream",
    "cublasSetWorkspace_v2": "void* handle, void* workspace, size_t size",
    "cublasSetMathMode": "void* handle, int mode",
    "cublasSgemm_v2": "void* handle, int transa, int transb, int m, int n, int k, const float* alpha, const float* A, "
    "int lda, const float* B, int ldb, const float* beta, float* C, int ldc",
    "cublasGemmEx": "void* handle, int transa, int transb, int m, int n, int k, const void* alpha, const void* A, "
    "int Atype, int lda, const void* B, int Btype, int ldb, const void* beta, void* C, int Ctype, int ldc, "
    "int computeType, int algo",
}
C_TYPES = {"size_t": ctypes.c_size_t, "int": ctypes.c_int}


class Handle:
    """What a handle of cuBLAS remembers."""

    stream: int | None = None
    workspace: int | None = None
    mode = FP32


class Cublas:
    """The functions that are played; each returns a status."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def create(self, place: int) -> None:
        ctypes.c_void_p.from_address(place).value = self._device.keep(Handle())

    def destroy(self, handle: int) -> None:
        self._device.drop(handle)

    def set_stream(self, handle: int, stream: int) -> None:
        assert stream in Stream.by_pointer
        held = self._device.made[handle]
        held.stream, held.workspace = stream, None  # as documented: back to the default workspace

    def set_workspace(self, handle: int, workspace: int, size: int) -> None:
        assert workspace % 256 == 0, "cuBLAS wants it aligned"
        assert size
        self._device.made[handle].workspace = workspace

    def set_math_mode(self, handle: int, mode: int) -> None:
        assert mode in (FP32, TF32)
        self._device.made[handle].mode = mode

    def sgemm(self, handle: int, *arguments: int) -> None:
        """C = alpha op(A) op(B) + beta C, by columns."""
        over_a, over_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = arguments
        held = self._device.made[handle]
        assert held.workspace is not None, "else cuBLAS takes memory, also while a graph is captured"
        left, right = _columns(a, lda, m, k, over_a, np.float32), _columns(b, ldb, k, n, over_b, np.float32)
        scale, keep = (ctypes.c_float.from_address(place).value for place in (alpha, beta))
        self.multiply(held, left, right, _columns(c, ldc, m, n, 0, np.float32), scale, keep)

    def gemm(self, handle: int, *arguments: int) -> None:
        """As sgemm, of bfloat16 factors into float32."""
        over_a, over_b, m, n, k, alpha, a, a_kind, lda, b, b_kind, ldb, beta, c, c_kind, ldc, compute, _ = arguments
        assert (a_kind, b_kind, c_kind, compute) == (R_16BF, R_16BF, R_32F, COMPUTE_32F)
        held = self._device.made[handle]
        assert held.workspace is not None
        assert held.mode == FP32
        assert {place % 16 for place in (a, b, c)} | {apart * 2 % 16 for apart in (lda, ldb)} == {0}, "for tensor cores"
        left, right = _columns(a, lda, m, k, over_a, np.uint16), _columns(b, ldb, k, n, over_b, np.uint16)
        scale, keep = (ctypes.c_float.from_address(place).value for place in (alpha, beta))
        self.multiply(held, left, right, _columns(c, ldc, m, n, 0, np.float32), scale, keep)

    def multiply(self, held: Handle, left: Any, right: Any, out: Any, scale: float, keep: float) -> None:
        def work() -> None:
            factors = (from_bf16(x) if x.dtype == np.uint16 else x for x in (left, right))
            product = np.float32(scale) * np.matmul(*factors)
            out[...] = product + np.float32(keep) * out if keep else product

        assert held.stream is not None
        Stream.by_pointer[held.stream].ask(work)


def _columns(place: int, apart: int, rows: int, columns: int, turned: int, kind: Any) -> Any:
    """Return a matrix (rows, columns) in memory; its columns, or with `turned` its rows, lie `apart` numbers apart."""
    assert turned in (0, 1), "CUBLAS_OP_N or CUBLAS_OP_T"
    long, count = (columns, rows) if turned else (rows, columns)
    assert apart >= max(1, long), "the leading dimension"
    assert min(rows, columns) >= 0
    size = np.dtype(kind).itemsize
    words = apart * (count - 1) + long
    flat = np.frombuffer((ctypes.c_char * (words * size)).from_address(place), kind)
    found = np.lib.stride_tricks.as_strided(flat, (count, long), (apart * size, size))
    return found if turned else found.T


def install(device: Any) -> None:
    """Make and load the library; who asks for cuBLAS by its name gets this one."""
    played = Cublas(device)
    works = {
        "cublasCreate_v2": played.create,
        "cublasDestroy_v2": played.destroy,
        "cublasSetStream_v2": played.set_stream,
        "cublasSetWorkspace_v2": played.set_workspace,
        "cublasSetMathMode": played.set_math_mode,
        "cublasSgemm_v2": played.sgemm,
        "cublasGemmEx": played.gemm,
    }
    with tempfile.TemporaryDirectory() as folder:
        real = _beside_cudnn()
        _ = ctypes.CDLL(str(real), ctypes.RTLD_GLOBAL) if real else _load(Path(folder) / BELOW, [])
        library = _load(Path(folder) / LIBRARY, _lines())
    for name, prototype in PROTOTYPES.items():
        types = [C_TYPES.get(part.split()[0], ctypes.c_void_p) for part in prototype.split(", ")]
        function = ctypes.CFUNCTYPE(ctypes.c_int, *types)(_status(device, name, works[name]))
        ctypes.c_void_p.in_dll(library, f"played_{name}").value = ctypes.cast(function, ctypes.c_void_p).value
        _kept.append(function)


_kept: list[Any] = []


def _status(device: Any, name: str, work: Any) -> Any:
    def called(*arguments: int) -> int:
        try:
            work(*arguments)
        except Exception as error:
            device.failures.append(f"{name}{arguments}: {type(error).__name__}: {error}")
            return NOT_SUPPORTED
        return 0

    return called


def _load(path: Path, lines: list[str]) -> ctypes.CDLL:
    text, versions = path.with_suffix(".c"), path.with_suffix(".map")
    text.write_text("\n".join(lines), encoding="utf-8")
    versions.write_text(f"{path.name} {{ global: *; }};", encoding="utf-8")  # CuPy wants the symbols of this version
    options = [f"-Wl,-soname,{path.name}", f"-Wl,--version-script={versions}"]
    subprocess.run(["gcc", "-shared", "-fPIC", *options, text, "-o", path], check=True)
    return ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


def _lines() -> list[str]:
    """Return the library's text: what is played calls a pointer, everything else that CuPy links to refuses."""
    lines = ["#include <stddef.h>"]
    for name, prototype in PROTOTYPES.items():
        names = ", ".join(re.findall(r"(\w+)(?:,|$)", prototype))
        lines.append(f"int (*played_{name})({prototype});")
        lines.append(f"int {name}({prototype}) {{ return played_{name}({names}); }}")
    return lines + [f"int {name}(void) {{ return {NOT_SUPPORTED}; }}" for name in _wanted() if name not in PROTOTYPES]


def _beside_cudnn() -> Path | None:
    """Return the real library below cuBLAS, which cuDNN wants of its own: CuPy asks it for nothing here."""
    found = find_spec("nvidia")
    places = (Path(place) / "cu13/lib" / BELOW for place in (found.submodule_search_locations if found else None) or ())
    return next((place for place in places if place.exists()), None)


def _wanted() -> list[str]:
    """Return what CuPy's module takes from cuBLAS."""
    found = find_spec("cupy_backends")
    assert found and found.submodule_search_locations
    [module] = Path(found.submodule_search_locations[0]).glob("cuda/libs/cublas.*.so")
    done = subprocess.run(["nm", "-D", "--undefined-only", module], capture_output=True, text=True, check=True)
    return re.findall(r"\b(cublas\w+)", done.stdout)
