"""How fast the processors of this machine are at what a training step is made of. Twin: gpu/rates.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from nnlib.engines import Rates
from nnlib.model.network import BLOCK
from nnlib.util.threads import Each, consume

MOST_EXAMPLES, MOST_WIDTH = 1024, 2048  # of the product that is measured
COPIED = 16 << 20  # bytes of each array that a thread copies: more than its part of a cache
SECONDS = 0.15  # for each of the three
TRIES = 3  # of which the fastest counts: other programs only slow one down


def measure_rates(each: Each, threads: int, examples: int, width: int) -> Rates:
    """Return what all threads do a second, each with arrays of its own as a block of an output layer has them."""
    b, k = min(examples, MOST_EXAMPLES), min(max(width, 1), MOST_WIDTH)
    rows, weights, sums = (np.ones(shape, np.float32) for shape in ((b, k), (BLOCK, k), (b, BLOCK)))
    of_threads: list[tuple[Any, ...]] = [
        (rows.copy(), weights.copy(), sums.copy(), np.ones(COPIED, np.uint8), np.ones(COPIED, np.uint8))
        for _ in range(threads)
    ]

    def multiply(n: int) -> None:
        np.matmul(of_threads[n][0], of_threads[n][1].T, out=of_threads[n][2])

    def copy(n: int) -> None:
        np.copyto(of_threads[n][3], of_threads[n][4])

    def activate(n: int) -> None:
        np.exp(sums, out=of_threads[n][2])

    def rate(work: Callable[[int], None], amount: float) -> float:
        return threads * amount / _seconds(lambda: consume(each(work, range(threads))))

    return Rates(
        product=(b, k, BLOCK),
        flops=rate(multiply, 2.0 * b * k * BLOCK),
        bytes_moved=rate(copy, 2.0 * COPIED),
        activations=rate(activate, sums.size),
    )


def _seconds(work: Callable[[], None]) -> float:
    """Return how long a piece of work takes when it was done before."""
    work()
    best, end = float("inf"), time.perf_counter() + SECONDS
    for tries in range(1 << 20):
        started = time.perf_counter()
        if tries >= TRIES and started > end:
            break
        work()
        best = min(best, time.perf_counter() - started)
    return max(best, 1e-9)
