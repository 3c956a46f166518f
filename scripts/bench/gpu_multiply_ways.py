"""The ways of `data[i] *= c` on a GPU that gpu_multiply.py measures; GPU libraries are imported where they are used.

A way is a function that has every array of a set multiplied once, in order on the set's stream, and returns at once.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from harness import REPOSITORY, NotMeasuredError

Way = Callable[[], None]

C = np.nextafter(np.float32(1), np.float32(2))  # by which the longest measurement leaves finite numbers
THREADS = 256  # of a block
WIDE = 4  # floats that a thread of ours takes at a time
MOST_BLOCKS = 1 << 16
DEVICE_TO_DEVICE = 3  # cudaMemcpyKind
NON_BLOCKING = 1  # the flag of the sets' streams

OWN, GRAPH, MULTI = "mul_c", "mul_c, one graph", "multi_mul_c"
NPP, UFUNC, ELEMENTWISE = "NPP", "cupy.multiply", "ElementwiseKernel"
TORCH, FOREACH, COPY = "torch mul_", "torch _foreach_mul_", "copy"


@dataclass(frozen=True)
class Set:
    """Arrays of n floats each on the GPU, and the stream of everything that is done to them."""

    arrays: Sequence[Any]
    n: int
    stream: Any


def no_gpu() -> str:
    """Return why nothing can be measured here, or nothing."""
    try:
        import cupy
    except ImportError as error:
        return f"CuPy is missing ({error}): install regiondag[gpu-cuda13] or regiondag[gpu-cuda12]"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no GPU can be used: {error}"
    return "" if count else "CUDA finds no GPU"


def blocks(n: int) -> int:
    """Return the grid of our kernels."""
    return max(1, min(MOST_BLOCKS, -(-n // (THREADS * WIDE))))


def _kernel(name: str) -> Any:
    import cupy

    if str(REPOSITORY) not in sys.path:
        sys.path.append(str(REPOSITORY))
    from nnlib.gpu.kernels import OPTIONS, source

    return cupy.RawModule(code=source("elementwise"), options=OPTIONS).get_function(name)


def own(data: Set) -> Way:
    """Launch our kernel for each array."""
    kernel, grid, block = _kernel("mul_c"), (blocks(data.n),), (THREADS,)
    arguments = [(array, C, np.int64(data.n)) for array in data.arrays]

    def every() -> None:
        for each in arguments:
            kernel(grid, block, each)

    return every


def graph(data: Set) -> Way:
    """Launch the same launches as one graph."""
    every = own(data)
    every()  # a module must not be loaded while a graph is recorded
    data.stream.synchronize()
    data.stream.begin_capture()
    try:
        every()
    finally:
        recorded = data.stream.end_capture()
    return lambda: recorded.launch(data.stream)


def multi(data: Set) -> Way:
    """Launch one kernel for all arrays."""
    import cupy

    kernel, grid, block = _kernel("multi_mul_c"), (blocks(data.n), len(data.arrays)), (THREADS,)
    pointers = cupy.asarray(np.array([array.data.ptr for array in data.arrays], np.uint64))
    sizes = cupy.full(len(data.arrays), data.n, np.int64)
    arguments = (pointers, sizes, np.int32(len(data.arrays)), C)
    return lambda: kernel(grid, block, arguments)


class StreamContext(ctypes.Structure):
    """NppStreamContext, which is passed by value."""

    _fields_ = [
        ("stream", ctypes.c_void_p),
        ("device", ctypes.c_int),
        ("multiprocessors", ctypes.c_int),
        ("threads_of_multiprocessor", ctypes.c_int),
        ("threads_of_block", ctypes.c_int),
        ("shared_of_block", ctypes.c_size_t),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("stream_flags", ctypes.c_uint),
        ("reserved", ctypes.c_int),
    ]


def npp_library(cuda: int) -> Path:
    """Return where NPP's signal library of a CUDA version was installed; NotMeasuredError if it was not."""
    package = "nvidia-npp-cu12" if cuda == 12 else "nvidia-npp"
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        raise NotMeasuredError(f"{package} is not installed") from None
    for file in files:
        if file.name == f"libnpps.so.{cuda}":
            return Path(str(file.locate()))
    raise NotMeasuredError(f"{package} has no libnpps.so.{cuda}")


def _npp_context(data: Set) -> StreamContext:
    import cupy

    device = cupy.cuda.Device().id
    has = cupy.cuda.runtime.getDeviceProperties(device)
    threads = has["maxThreadsPerMultiProcessor"], has["maxThreadsPerBlock"]
    version = has["major"], has["minor"]
    shared = has["sharedMemPerBlock"]
    return StreamContext(
        data.stream.ptr, device, has["multiProcessorCount"], *threads, shared, *version, NON_BLOCKING, 0
    )


def npp(data: Set) -> Way:
    """Call NPP for each array, as in 2014."""
    import cupy

    path = npp_library(cupy.cuda.runtime.runtimeGetVersion() // 1000)
    try:
        multiply = ctypes.CDLL(str(path)).nppsMulC_32f_I_Ctx
    except OSError as error:
        raise NotMeasuredError(str(error)) from None
    multiply.argtypes = [ctypes.c_float, ctypes.c_void_p, ctypes.c_size_t, StreamContext]
    multiply.restype = ctypes.c_int
    pointers = [ctypes.c_void_p(array.data.ptr) for array in data.arrays]
    c, n, context = ctypes.c_float(C), ctypes.c_size_t(data.n), _npp_context(data)

    def every() -> None:
        for pointer in pointers:
            status = multiply(c, pointer, n, context)
            if status:
                raise NotMeasuredError(f"nppsMulC_32f_I_Ctx gave {status}")

    return every


def ufunc(data: Set) -> Way:
    """Call CuPy's function for each array."""
    import cupy

    def every() -> None:
        for array in data.arrays:
            cupy.multiply(array, C, out=array)

    return every


def elementwise(data: Set) -> Way:
    """Launch a kernel that CuPy writes around one line, for each array."""
    import cupy

    kernel = cupy.ElementwiseKernel("float32 c", "float32 x", "x *= c", "bench_mul_c")

    def every() -> None:
        for array in data.arrays:
            kernel(C, array)

    return every


def _torch(data: Set) -> tuple[Any, Any, list[Any]]:
    """Return PyTorch, the set's stream and its arrays as PyTorch sees them."""
    try:
        import torch
    except ImportError:
        raise NotMeasuredError("PyTorch is not installed") from None
    if not torch.cuda.is_available():
        raise NotMeasuredError("this PyTorch cannot use the GPU")
    stream = torch.cuda.ExternalStream(data.stream.ptr)
    with torch.cuda.stream(stream):
        return torch, stream, [torch.from_dlpack(array) for array in data.arrays]


def torch_each(data: Set) -> Way:
    """Call PyTorch for each array."""
    torch, stream, tensors = _torch(data)
    c = float(C)

    def every() -> None:
        with torch.cuda.stream(stream):
            for tensor in tensors:
                tensor.mul_(c)

    return every


def torch_foreach(data: Set) -> Way:
    """Call PyTorch's function for a list of arrays."""
    torch, stream, tensors = _torch(data)
    c = float(C)

    def every() -> None:
        with torch.cuda.stream(stream):
            torch._foreach_mul_(tensors, c)

    return every


def copy(data: Set) -> Way:
    """Copy each array to the next one: the most that the memory gives, for as many bytes."""
    import cupy

    pointers = [array.data.ptr for array in data.arrays]
    pairs = list(zip([*pointers[1:], pointers[0]], pointers, strict=True))
    size, stream, copy_it = 4 * data.n, data.stream.ptr, cupy.cuda.runtime.memcpyAsync

    def every() -> None:
        for target, origin in pairs:
            copy_it(target, origin, size, DEVICE_TO_DEVICE, stream)

    return every


WAYS: dict[str, Callable[[Set], Way]] = {
    OWN: own,
    NPP: npp,
    UFUNC: ufunc,
    ELEMENTWISE: elementwise,
    TORCH: torch_each,
    GRAPH: graph,
    MULTI: multi,
    FOREACH: torch_foreach,
    COPY: copy,
}
