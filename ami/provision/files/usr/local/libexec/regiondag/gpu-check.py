"""Compute on every GPU of this machine and time short kernel launches; print one line of JSON.

Run by selftest.py, in a process of its own, for a broken GPU may crash or hang whoever touches it. The only program of
the boot that needs CuPy.
"""

from __future__ import annotations

import json
import time
from typing import Any

import cupy

COUNT = 1 << 20  # numbers that are added
ARRAYS, CALLS = 128, 1000  # as in 2014: each array is multiplied a thousand times, one launch each
FLOATS, THREADS = 4096, 256
START = 3.0
SECONDS = 10.0  # a slow machine is told by fewer calls, too
SOURCE = """
extern "C" __global__ void mul_c(float* data, const float c, const int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        data[i] *= c;
}
"""


def total() -> int:
    """Return the sum of 1 ... COUNT as the GPU adds it."""
    return int(cupy.arange(1, COUNT + 1, dtype=cupy.int64).sum())


def launches_per_second(seconds: float = SECONDS) -> tuple[float, bool]:
    """Multiply arrays by -1 in turn, a launch each; return the launches a second, and whether the results are right."""
    kernel = cupy.RawKernel(SOURCE, "mul_c")
    arguments = [
        (cupy.full(FLOATS, START, dtype=cupy.float32), cupy.float32(-1), cupy.int32(FLOATS)) for _ in range(ARRAYS)
    ]
    grid, block = (FLOATS // THREADS,), (THREADS,)
    device = cupy.cuda.Device()
    for each in arguments:  # the first launch compiles and loads
        kernel(grid, block, each)
    device.synchronize()
    calls, begin = 0, time.perf_counter()
    while calls < CALLS and time.perf_counter() - begin < seconds:
        for each in arguments:
            kernel(grid, block, each)
        calls += 1
    device.synchronize()
    elapsed = time.perf_counter() - begin
    wanted = START if calls % 2 else -START
    return calls * ARRAYS / elapsed, all(bool((array == wanted).all()) for array, _, _ in arguments)


def check(number: int) -> dict[str, Any]:
    """Return what a GPU computed and how fast it was launched on."""
    with cupy.cuda.Device(number):
        found = total()
        rate, right = launches_per_second()
    return {"sum": found, "expected": COUNT * (COUNT + 1) // 2, "multiplied": right, "launches_per_second": rate}


if __name__ == "__main__":
    print(json.dumps([check(number) for number in range(cupy.cuda.runtime.getDeviceCount())]))
