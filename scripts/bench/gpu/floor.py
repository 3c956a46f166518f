"""The least time that a training step can take on a GPU: by the bytes it must move, and by what it must compute.

Of each dense matrix of weights a step reads the weights twice (forward and backward), writes the gradient, and updates:
it reads the gradient, and reads and writes weights and states. Of the weights of a sparse input it reads the rows that
a batch touches, and reads and writes them and their states. Sums and deltas of the output layer are written once each
and read three times. Products are 2 b m n operations each: forward, weights' gradient, and delta but for the first.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from nnlib.errors import MachineError
from scripts.bench.common.workload import AUTOENCODER, purchases, widths
from scripts.bench.gpu.work import BF16, FLOAT32, TF32, GpuWork

FLOAT = 4  # bytes
STATES = {"adam": 2, "rmsprop": 1}  # arrays that a rule keeps beside the weights
OUTPUT_PASSES = 5
REPEATS = 7


@dataclass(frozen=True)
class Ceilings:
    """What a GPU was measured to reach."""

    bandwidth: float  # bytes a second that a copy reads and writes
    float32: float  # operations a second of a product of square matrices
    tf32: float | None  # None: nothing that differs from float32
    bf16: float | None = None


@dataclass(frozen=True)
class Floor:
    """The least milliseconds of a step."""

    bytes_ms: float
    operations_ms: float

    @property
    def ms(self) -> float:
        """The larger one."""
        return max(self.bytes_ms, self.operations_ms)

    @property
    def by(self) -> str:
        """What it is due to."""
        return "bytes" if self.bytes_ms > self.operations_ms else "operations"


def floor_of(work: GpuWork, touched: float, ceilings: Ceilings) -> Floor:
    """Return the floor of a step that touches so many items."""
    rate = getattr(ceilings, work.precision) or ceilings.float32
    return Floor(1e3 * bytes_of(work, touched) / ceilings.bandwidth, 1e3 * operations_of(work) / rate)


def bytes_of(work: GpuWork, touched: float) -> float:
    """Return the fewest bytes that a step reads and writes."""
    states, units = STATES[work.optimizer], widths(work)
    kept = 2 * (1 + states)
    passes = 4 + kept
    pairs = list(pairwise(units))
    first: float = pairs[0][0] * pairs[0][1] * (passes - 1)  # nothing goes back to the input
    if work.kind == AUTOENCODER:
        first = touched * work.hidden * (1 + kept)
    others = sum(below * above for below, above in pairs[1:]) * passes
    return FLOAT * (first + others + OUTPUT_PASSES * work.batch * units[-1])


def operations_of(work: GpuWork) -> float:
    """Return the operations of a step's products; those of a sparse input are few and no products."""
    units = widths(work)
    first, *others = (2 * work.batch * below * above for below, above in pairwise(units))
    return 3 * sum(others) + (0 if work.kind == AUTOENCODER else 2 * first)


def touched_by(work: GpuWork) -> float:
    """Return how many different items a batch has, on average."""
    if work.kind != AUTOENCODER:
        return 0.0
    return float(np.mean([len(np.unique(indices)) for _, indices in purchases(work)]))


def ceilings_of(runtime: Any, side: int = 8192, words: int = 1 << 28, repeats: int = REPEATS) -> Ceilings:
    """Measure what an `nnlib.gpu.runtime.Runtime` reaches with matrices of `side` rows and copies of `words`."""
    origin, target = runtime.zeros(words), runtime.zeros(words)
    seconds = _seconds(runtime, lambda: runtime.move(target, origin), repeats)
    bandwidth = 2 * FLOAT * words / seconds
    random = np.random.default_rng(3)
    a, b, out = (runtime.zeros((side, side)) for _ in range(3))
    for array in (a, b):  # zeros are multiplied faster than other numbers
        runtime.upload(array, random.random((side, side), np.float32) - np.float32(0.5))
    rates: list[float | None] = []
    for precision in (FLOAT32, TF32, BF16):
        multiply = partial(runtime.multiply, a, b, out, add=False, scale=1.0, precision=precision)
        try:
            rates.append(2 * side**3 / _seconds(runtime, multiply, repeats))
        except MachineError:  # a GPU without it
            rates.append(None)
    return Ceilings(bandwidth, rates[0] or 0.0, *rates[1:])


def _seconds(runtime: Any, work: Callable[[], None], repeats: int) -> float:
    """Return the median time of some work, several in a row between two looks at the clock."""
    calls, found = 5, []
    for _ in range(repeats + 2):
        runtime.compute.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            work()
        runtime.compute.synchronize()
        found.append((time.perf_counter() - began) / calls)
    return statistics.median(found[2:])  # the first ones load what is needed
