"""Compute on every GPU of this machine, time short kernel launches, keep all busy for seconds; print one line of JSON.

usage: gpu-check.py SECONDS     how long all GPUs are kept busy together

Run by selftest.py, in a process of its own, for a broken GPU may crash or hang whoever touches it. The only program of
the boot that needs CuPy. The burn is products of matrices by cuBLAS and, where the image has them, nnlib's kernels.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import cupy
from gpu_burn import KERNELS, KernelBurn, make_work

COUNT = 1 << 20  # numbers that are added
ARRAYS, CALLS = 128, 1000  # as in 2014: each array is multiplied a thousand times, one launch each
FLOATS, THREADS = 4096, 256
START = 3.0
SIDE, AT_ONCE = 1024, 20  # matrices of the burn, and products between two looks at the clock
SMI_SECONDS = 20.0
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


class Burn:
    """Products of matrices on one GPU, all of which must be the same to the bit.

    Their numbers are small and whole, so that the first product can be checked exactly: its rows add up to A (B 1).
    """

    def __init__(self, number: int) -> None:
        """Make the matrices on a GPU."""
        self.device = cupy.cuda.Device(number)
        with self.device:
            numbers = cupy.arange(SIDE * SIDE, dtype=cupy.int64).reshape(SIDE, SIDE)
            self.a, self.b = (numbers % 5 - 2).astype(cupy.float32), (numbers % 7 - 3).astype(cupy.float32)
            self.first, self.product = cupy.matmul(self.a, self.b), cupy.empty((SIDE, SIDE), dtype=cupy.float32)
            rows = (self.a.astype(cupy.int64) * self.b.astype(cupy.int64).sum(axis=1)[None, :]).sum(axis=1)
            self.wrong = (self.first.astype(cupy.int64).sum(axis=1) != rows).sum()

    def multiply(self) -> None:
        """Have it multiply some more; nobody waits."""
        with self.device:
            for _ in range(AT_ONCE):
                cupy.matmul(self.a, self.b, out=self.product)
            self.wrong = self.wrong + (self.product != self.first).sum()


def start_kernels(count: int) -> tuple[list[KernelBurn], str]:
    """Return nnlib's kernels on so many GPUs; or none, and why: that is no fault of a GPU."""
    if not KERNELS.is_dir():
        return [], "this image has none"
    try:
        all_work = list(make_work())
        return [KernelBurn(cupy, number, all_work) for number in range(count)], ""
    except (OSError, cupy.cuda.compiler.CompileException) as error:
        return [], f"{type(error).__name__}: {error}"


def burn(count: int, kernels: Sequence[KernelBurn], seconds: float) -> tuple[list[int], str]:
    """Keep so many GPUs busy together; return how many numbers of each were wrong, and nvidia-smi's XML meanwhile."""
    burns = [Burn(number) for number in range(count)]
    begin, asked = time.perf_counter(), None
    with tempfile.TemporaryFile() as answer:
        elapsed = 0.0
        while elapsed < seconds or (asked and asked.poll() is None and elapsed < seconds + SMI_SECONDS):
            for each in burns:
                each.multiply()
            for own in kernels:
                own.launch()
            for each in burns:
                each.device.synchronize()
            for own in kernels:
                own.look()
            elapsed = time.perf_counter() - begin
            if asked is None and elapsed > seconds / 2:
                with contextlib.suppress(OSError):
                    asked = subprocess.Popen(["nvidia-smi", "-q", "-x"], stdout=answer, stderr=subprocess.DEVNULL)
        if asked and asked.poll() is None:
            asked.kill()
        answer.seek(0)
        said = answer.read().decode(errors="replace") if asked and asked.wait() == 0 else ""
    return [int(each.wrong) for each in burns], said


def check(number: int) -> dict[str, Any]:
    """Return what a GPU computed and how fast it was launched on."""
    with cupy.cuda.Device(number):
        found = total()
        rate, right = launches_per_second()
    return {"sum": found, "expected": COUNT * (COUNT + 1) // 2, "multiplied": right, "launches_per_second": rate}


def main(seconds: float) -> dict[str, Any]:
    """Return what was found of each GPU, and what nvidia-smi said under load."""
    count = cupy.cuda.runtime.getDeviceCount()
    results = [check(number) for number in range(count)]
    kernels, missing = start_kernels(count)
    wrong, said = burn(count, kernels, seconds)
    bad_kernels = [sorted(own.wrong) for own in kernels] or [[] for _ in range(count)]
    return {
        "gpus": [
            {**result, "wrong": bad, "kernels": own}
            for result, bad, own in zip(results, wrong, bad_kernels, strict=True)
        ],
        "under_load": said,
        "no_kernels": missing,
    }


if __name__ == "__main__":
    print(json.dumps(main(float(sys.argv[1]))))
