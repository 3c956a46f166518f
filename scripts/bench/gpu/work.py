"""The work that all sides of the GPU's training get, and how it is timed. Imports nothing that one side lacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.bench.common.workload import AUTOENCODER, Work

OURS = "ours"
BY_CUDNN = "ours, by cuDNN"  # of networks for images
DENSE = "dense input, eager"  # PyTorch's: what they are is in peer.py
EAGER, GRAPHED = "eager", "eager, CUDA graph"
COMPILED, COMPILED_GRAPH = "compiled", "compiled, CUDA graph"
CHANNELS_LAST, COMPILED_LAST = "channels last", "compiled, channels last"  # of networks for images
PLAIN = (EAGER, GRAPHED)
COMPILATIONS = (COMPILED, COMPILED_GRAPH)

CHECKED = 5  # steps whose losses are compared: ours are launched one by one, captured, and from then on replayed
FLOAT32, TF32, BF16 = "float32", "tf32", "bf16"  # what factors of products are rounded to
TOLERANCES = {FLOAT32: 5e-4, TF32: 3e-3, BF16: 2.4e-2}  # relative, see README.md
MB = 1 << 20
SMALL: dict[str, Any] = {"items": 4000, "hidden": 256, "density": 0.02, "batches": 8}  # of a quick run
K = 100  # best items


@dataclass(frozen=True)
class GpuWork(Work):
    """One workload on a GPU and who does it."""

    variant: str = OURS
    precision: str = FLOAT32
    device: str = "cuda"  # of PyTorch; "cpu" is for trying its side without a GPU
    batches: int = 32
    steps: int = 32  # a command goes through all batches once
    warm: int = 32


def top_work(quick: bool) -> GpuWork:
    """Return whose best items are found."""
    return GpuWork(AUTOENCODER, **(SMALL if quick else {}))


def timed(step: Callable[[], object], settle: Callable[[], object], steps: int) -> float:
    """Return the milliseconds of a step, from an idle GPU to the end of the last one."""
    settle()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    settle()
    return 1e3 * (time.perf_counter() - began) / steps


def difference(ours: Sequence[float], theirs: Sequence[float], precision: str, times: float = 1.0) -> str:
    """Return how the losses of the first steps differ by more than `times` what they may, or nothing."""
    for step, (own, other) in enumerate(zip(ours, theirs, strict=True), 1):
        apart = abs(own - other) / max(abs(own), abs(other), 1e-30)
        if not apart <= times * TOLERANCES[precision]:  # nor when one is not a number
            return f"loss of step {step} is {other:.7g}, ours {own:.7g}: they differ by {apart:.1e} of it"
    return ""
