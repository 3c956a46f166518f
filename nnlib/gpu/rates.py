"""How fast a GPU is at what a training step is made of. Twin: cpu/rates.py."""

from __future__ import annotations

import time
from collections.abc import Callable

from nnlib.engines import Rates
from nnlib.gpu.cublas import FLOAT32
from nnlib.gpu.runtime import Array, Runtime, grid_of

MOST_EXAMPLES, MOST_WIDTH = 1024, 2048  # of the product that is measured
UNITS = 4096  # that it gives
COPIED = 16 << 20  # numbers: more than a GPU's cache has
REPEATS = 20  # launches of which the mean is taken, as one alone is shorter than its launch takes


def measure_rates(runtime: Runtime, examples: int, width: int) -> Rates:
    """Return what the GPU does a second, float32 without TF32."""
    b, k = min(examples, MOST_EXAMPLES), min(max(width, 1), MOST_WIDTH)
    rows, weights, sums = runtime.zeros((b, k)), runtime.zeros((UNITS, k)), runtime.zeros((b, UNITS))
    copied = [runtime.zeros(COPIED) for _ in range(2)]

    def multiply() -> None:
        runtime.multiply(rows, weights, sums, (False, True), add=False, scale=1.0, precision=FLOAT32)

    def activate() -> None:
        runtime.launch("exp_", grid_of(copied[0].size), copied[0], copied[0].size)

    mark = runtime.zeros(1)
    return Rates(
        product=(b, k, UNITS),
        flops=2.0 * b * k * UNITS / _seconds(runtime, mark, multiply),
        bytes_moved=8.0 * COPIED / _seconds(runtime, mark, lambda: runtime.move(*copied)),
        activations=COPIED / _seconds(runtime, mark, activate),
    )


def _seconds(runtime: Runtime, mark: Array, work: Callable[[], None]) -> float:
    """Return how long a piece of work takes when it was done before; who downloads `mark` waits for all of it."""
    work()
    runtime.download(mark)
    started = time.perf_counter()
    for _ in range(REPEATS):
        work()
    runtime.download(mark)
    return max((time.perf_counter() - started) / REPEATS, 1e-9)
