"""`data[i] *= c` on a GPU, as in 2014: 128 arrays, again and again, by our kernel, NPP and CuPy.

Run as a process, `multiply [quick]` prints a line of JSON for each size: by way the median seconds of a call, by the
host's clock from the first call to the end of the last (`host`) and between two events on the GPU (`device`).
"""

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from scripts.bench.common.harness import Row
from scripts.bench.common.processes import NotMeasuredError

K, M, GB = 1 << 10, 1 << 20, 1e9
SIZES = (K, M, 16 * M)  # floats of an array
ARRAYS = 128
SAMPLES, PASSES = 5, 200  # each array is multiplied a thousand times, unless that takes too long
MOST_BYTES = 4 << 30  # of all arrays; half of the GPU's memory, if that is less
START = np.float32(3)  # in all arrays
C = np.nextafter(np.float32(1), np.float32(2))  # by which the longest measurement leaves finite numbers
THREADS, WIDE, MOST_BLOCKS = 256, 4, 1 << 16  # of our kernel: of a block, floats of a thread, of a grid
DEVICE_TO_DEVICE, NON_BLOCKING = 3, 1  # cudaMemcpyKind, the flag of the stream

OWN, NPP, UFUNC, COPY = "mul_c", "NPP", "cupy.multiply", "copy"
ROWS = ((K, NPP), (K, UFUNC), (M, NPP), (M, UFUNC))  # floats of an array, the peer
COPIED = 16 * M  # floats of the arrays whose bandwidth is a row

Way = Callable[[], None]  # has every array multiplied once, in order on the set's stream, and returns at once


@dataclass(frozen=True)
class Set:
    """Arrays of n floats each on the GPU, and the stream of everything that is done to them."""

    arrays: Sequence[Any]
    n: int
    stream: Any


def _own(data: Set) -> Way:
    """Launch our kernel for each array."""
    import cupy

    from nnlib.gpu.kernels import OPTIONS, source

    kernel = cupy.RawModule(code=source("elementwise"), options=OPTIONS).get_function(OWN)
    grid, block = (max(1, min(MOST_BLOCKS, -(-data.n // (THREADS * WIDE)))),), (THREADS,)
    arguments = [(array, C, np.int64(data.n)) for array in data.arrays]

    def every() -> None:
        for each in arguments:
            kernel(grid, block, each)

    return every


class StreamContext(ctypes.Structure):
    """NppStreamContext, which is passed by value."""

    _fields_ = (
        ("stream", ctypes.c_void_p),
        *((name, ctypes.c_int) for name in ("device", "multiprocessors", "threads_of_multiprocessor", "threads")),
        ("shared_of_block", ctypes.c_size_t),
        *((name, ctypes.c_int) for name in ("major", "minor")),
        ("stream_flags", ctypes.c_uint),
        ("reserved", ctypes.c_int),
    )


def _npp_context(data: Set) -> StreamContext:
    import cupy

    device = cupy.cuda.Device().id
    has = cupy.cuda.runtime.getDeviceProperties(device)
    threads = has["maxThreadsPerMultiProcessor"], has["maxThreadsPerBlock"]
    where = data.stream.ptr, device, has["multiProcessorCount"]
    return StreamContext(*where, *threads, has["sharedMemPerBlock"], has["major"], has["minor"], NON_BLOCKING, 0)


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


def _npp(data: Set) -> Way:
    """Call NPP for each array, as in 2014."""
    import cupy

    multiply = ctypes.CDLL(str(npp_library(cupy.cuda.runtime.runtimeGetVersion() // 1000))).nppsMulC_32f_I_Ctx
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


def _ufunc(data: Set) -> Way:
    """Call CuPy's function for each array."""
    import cupy

    def every() -> None:
        for array in data.arrays:
            cupy.multiply(array, C, out=array)

    return every


def _copy(data: Set) -> Way:
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
    OWN: _own,
    NPP: _npp,
    UFUNC: _ufunc,
    COPY: _copy,
}


def prepared(data: Set, absent: dict[str, str]) -> Iterator[tuple[str, Way]]:
    """Give the ways that can be used here and multiply as NumPy does; they are warm then. `absent` gets why others."""
    for name, make in WAYS.items():
        try:
            way = make(data)
            _check(way, data, START if name == COPY else START * C)
        except NotMeasuredError as error:
            absent[name] = str(error)
        except Exception as error:  # a library that is missing or does not fit the driver fails in its own way
            absent[name] = f"{type(error).__name__}: {error}"
        else:
            yield name, way


def _check(way: Way, data: Set, wanted: np.float32) -> None:
    for _ in range(2):
        for array in data.arrays:
            array.fill(START)
        way()
        for array in data.arrays:
            if not bool((array == wanted).all()):
                raise NotMeasuredError("gives other numbers than NumPy")


def measured(n: int, quick: bool) -> dict[str, Any]:
    """Return the times of all ways on arrays of n floats, measured in turn, and why which were not."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()  # those of the size before
    count = max(2, min(ARRAYS, min(MOST_BYTES, cupy.cuda.runtime.memGetInfo()[0] // 2) // (4 * n)))
    passes = max(1, min(20 if quick else PASSES, (50 << 30) // (8 * n * count)))
    stream, absent = cupy.cuda.Stream(non_blocking=True), dict[str, str]()
    with stream:
        data = Set([cupy.full(n, START) for _ in range(count)], n, stream)
        ways = dict(prepared(data, absent))
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(3 if quick else SAMPLES):
            for name, way in ways.items():
                found[name].append(_sample(way, data, passes))
    medians = {name: [statistics.median(part) for part in zip(*times, strict=True)] for name, times in found.items()}
    times = {name: {"host": host, "device": device} for name, (host, device) in medians.items()}
    return {"n": n, "arrays": count, "times": times, "absent": absent}


def _sample(way: Way, data: Set, passes: int) -> tuple[float, float]:
    import cupy

    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    data.stream.synchronize()
    started = time.perf_counter()
    begin.record(data.stream)
    for _ in range(passes):
        way()
    end.record(data.stream)
    data.stream.synchronize()
    host = time.perf_counter() - started
    calls = passes * len(data.arrays)
    return host / calls, cupy.cuda.get_elapsed_time(begin, end) / 1000 / calls


def rows_of(answers: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """Return ours beside a peer in calls a second, and our bandwidth beside a copy's; what is missing is nothing."""
    found = {(answer["n"], way): times for answer in answers for way, times in answer["times"].items()}
    for n, peer in ROWS:
        ours, its = (1 / found[n, name]["host"] if (n, name) in found else None for name in (OWN, peer))
        name = f"data[i] *= c, arrays of {n // K}K floats: {OWN} (peer: {peer})"
        yield Row(name, ours, its, "calls/s", higher=True)
    ours, its = (8 * COPIED / found[COPIED, name]["device"] / GB if (COPIED, name) in found else None
              for name in (OWN, COPY))  # fmt: skip
    name = f"data[i] *= c, arrays of {COPIED // M}M floats: {OWN}, bandwidth (peer: a copy)"
    yield Row(name, ours, its, "GB/s", higher=True)


if __name__ == "__main__":
    for floats in SIZES:
        print(json.dumps(measured(floats, "quick" in sys.argv)), flush=True)
