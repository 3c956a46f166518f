"""How both sides serve a work. Imports nothing that one side lacks."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable

from scripts.bench.common import workload
from scripts.bench.wide.data import Wide

STEP, EPOCH, MEMORY = "step", "epoch", "memory"  # commands


def serve(work: Wide, step: Callable[[], float], end_epoch: Callable[[], object]) -> None:
    """Answer STEP and EPOCH (its end) with milliseconds, on one thread of CPU time; MEMORY with the most so far."""
    clock = time.process_time if work.threads == 1 else time.perf_counter
    losses = [step() for _ in range(work.warm)]

    def timed(act: Callable[[], object]) -> float:
        started = clock()
        act()
        return 1e3 * (clock() - started)

    workload.serve(
        {"loss": losses[-1]},
        {
            STEP: lambda: {"ms": statistics.median(timed(step) for _ in range(work.steps))},
            EPOCH: lambda: {"ms": timed(end_epoch)},
            MEMORY: lambda: {"mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024},
        },
    )
