"""What a step is made of, by examples and of whole batches, on one thread of this process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from nnlib.cpu import backward
from nnlib.cpu.forward import Forward
from nnlib.cpu.maps.layers import MapLayers
from nnlib.cpu.maps.shard_norms import ShardNorms
from nnlib.cpu.optimizer import Optimizer
from nnlib.cpu.shard_gradients import ShardGradients

REST = "all else"
# Where the time of each part is spent; one that calls another does not have the time of that.
PARTS: tuple[tuple[Any, str, str], ...] = (
    (Forward, "multiply", "products forward and back"),
    (backward, "weight_gradient", "gradients of weights, added by shard"),
    (MapLayers, "compute", "convolutions and normalization forward"),
    (MapLayers, "norm_backward", "normalization back"),
    (ShardNorms, "backward", "normalization back"),
    (MapLayers, "backward", "convolutions back, gradients of kernels added by shard"),
    (backward, "blocked_error", "output layer"),
    (ShardGradients, "_take", "gradients put aside"),
    (Optimizer, "_update", "updates"),
)


def measure_parts(step: Callable[[], object], steps: int) -> Mapping[str, float]:
    """Return the seconds of each part of a step: the mean of some, of this process."""
    spent = Counter[str]()
    with ExitStack() as stack:
        for owner, name, part in PARTS:
            stack.enter_context(_watched(owner, name, part, spent))
        begun = time.process_time()
        for _ in range(steps):
            step()
        whole = time.process_time() - begun
    found = {part: seconds / steps for part, seconds in spent.items()}
    return {**found, REST: whole / steps - sum(found.values())}


@contextmanager
def _watched(owner: Any, name: str, part: str, spent: Counter[str]) -> Iterator[None]:
    """Count the seconds of a function, but for those of others that are watched."""
    watched = getattr(owner, name)

    def timed(*arguments: Any, **named: Any) -> Any:
        others, begun = spent.total(), time.process_time()
        try:
            return watched(*arguments, **named)
        finally:
            within = spent.total() - others
            spent[part] += time.process_time() - begun - within  # type: ignore[assignment]

    setattr(owner, name, timed)
    try:
        yield
    finally:
        setattr(owner, name, watched)
