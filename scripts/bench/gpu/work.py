"""The work that all sides of the GPU's training get, and how it is timed. Imports nothing that one side lacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from scripts.bench.common.workload import Work, widths

OURS = "ours"
DENSE = "dense input, eager"  # PyTorch's: what they are is in peer.py
EAGER, GRAPHED = "eager", "eager, CUDA graph"
COMPILED, ALL_COMPILED, COMPILED_GRAPH = "compiled", "compiled, optimizer too", "compiled, CUDA graph"
PLAIN = (EAGER, GRAPHED)
COMPILATIONS = (COMPILED, ALL_COMPILED, COMPILED_GRAPH)

CHECKED = 5  # steps whose losses are compared: ours are launched one by one, captured, and from then on replayed
TOLERANCES = {False: 5e-4, True: 3e-3}  # by whether TF32 is allowed; relative, see README.md
MB = 1 << 20


@dataclass(frozen=True)
class GpuWork(Work):
    """One workload on a GPU and who does it."""

    variant: str = OURS
    tf32: bool = False
    device: str = "cuda"  # of PyTorch; "cpu" is for trying its side without a GPU
    batches: int = 32
    steps: int = 32  # a command goes through all batches once
    warm: int = 32


def weights(work: GpuWork) -> list[Any]:
    """Return the first weights (in, out) between the layers, the same for all sides; biases start at zero."""
    random, found = np.random.default_rng(2), []
    for below, above in pairwise(widths(work)):
        limit = np.float32(np.sqrt(6 / (below + above)))
        drawn = random.random((below, above), np.float32)
        drawn *= 2 * limit
        drawn -= limit
        found.append(drawn)
    return found


def filled(indptr: Any, indices: Any, most: int, filler: int) -> tuple[Any, Any]:
    """Return a batch with `most` entries, each row filled up by about as many.

    >>> filled(np.array([0, 1, 3]), np.array([7, 7, 8]), 6, 9)
    (array([0, 2, 6]), array([7, 9, 7, 8, 9, 9]))
    """
    rows = len(indptr) - 1
    more = np.diff((most - len(indices)) * np.arange(rows + 1) // rows)
    starts = np.concatenate([[0], np.cumsum(np.diff(indptr) + more)])
    full = np.full(most, filler, indices.dtype)
    full[np.arange(len(indices)) + np.repeat(starts[:-1] - indptr[:-1], np.diff(indptr))] = indices
    return starts, full


def timed(step: Callable[[], object], settle: Callable[[], object], steps: int) -> float:
    """Return the milliseconds of a step, from an idle GPU to the end of the last one."""
    settle()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    settle()
    return 1e3 * (time.perf_counter() - began) / steps


def difference(ours: Sequence[float], theirs: Sequence[float], tf32: bool) -> str:
    """Return how the losses of the first steps differ by more than they may, or nothing."""
    for step, (own, other) in enumerate(zip(ours, theirs, strict=True), 1):
        apart = abs(own - other) / max(abs(own), abs(other), 1e-30)
        if not apart <= TOLERANCES[tf32]:  # nor when one is not a number
            return f"loss of step {step} is {other:.7g}, ours {own:.7g}: they differ by {apart:.1e} of it"
    return ""
