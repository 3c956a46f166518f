"""The work that all sides of gpu_train.py get, and how they serve it. Imports nothing that one side lacks."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from train_cpu_work import AUTOENCODER, Work

OURS = "ours"
DENSE = "dense input, eager"  # PyTorch's: what they are is in gpu_train_torch.py
EAGER, GRAPHED = "eager", "eager, CUDA graph"
COMPILED, ALL_COMPILED, COMPILED_GRAPH = "compiled", "compiled, optimizer too", "compiled, CUDA graph"
PLAIN = (EAGER, GRAPHED)
COMPILATIONS = (COMPILED, ALL_COMPILED, COMPILED_GRAPH)

READY, STEP, PREPARE, MEMORY = "ready", "step", "prepare", "memory"
CHECKED = 5  # steps whose losses are compared: ours are launched one by one, captured, and from then on replayed
TOLERANCES = {False: 5e-4, True: 3e-3}  # by whether TF32 is allowed; relative, see README.md
MB = 1 << 20

Answer = dict[str, Any]


@dataclass(frozen=True)
class GpuWork(Work):
    """One workload on a GPU and who does it."""

    variant: str = OURS
    tf32: bool = False
    device: str = "cuda"  # of PyTorch; "cpu" is for trying its side without a GPU
    batches: int = 32
    steps: int = 32  # a command goes through all batches once
    warm: int = 32


def work_of(argument: str) -> GpuWork:
    """Read what `Work.arguments` gave."""
    return GpuWork(**json.loads(argument))


def widths(work: GpuWork) -> tuple[int, ...]:
    """Return the units of each layer."""
    hidden = (work.hidden,) * 3
    return (work.items, *hidden, work.items) if work.kind == AUTOENCODER else (784, 512, 512, 10)


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


def serve(ready: Answer, commands: Mapping[str, Callable[[], Answer]]) -> None:
    """Print an answer, and then one for each line on stdin."""
    print(json.dumps({READY: True} | ready), flush=True)
    for line in sys.stdin:
        print(json.dumps(commands[line.strip()]()), flush=True)


def difference(ours: Sequence[float], theirs: Sequence[float], tf32: bool) -> str:
    """Return how the losses of the first steps differ by more than they may, or nothing."""
    for step, (own, other) in enumerate(zip(ours, theirs, strict=True), 1):
        apart = abs(own - other) / max(abs(own), abs(other), 1e-30)
        if not apart <= TOLERANCES[tf32]:  # nor when one is not a number
            return f"loss of step {step} is {other:.7g}, ours {own:.7g}: they differ by {apart:.1e} of it"
    return ""
