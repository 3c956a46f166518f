"""How both sides of the CPU benchmark serve a work. Imports nothing that one side lacks."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping

from scripts.bench.common import workload
from scripts.bench.common.workload import MEMORY, STEP, Work


def serve(
    work: Work,
    step: Callable[[], float],
    settle: Callable[[], None] = lambda: None,
    about: Mapping[str, str] | None = None,
) -> None:
    """Say what there is `about` this side, and answer: STEP with milliseconds, CPU and wall; MEMORY with the most."""
    for _ in range(work.warm):
        step()

    def timed() -> dict[str, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(work.steps):
            step()
        spent = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
        return {name: 1e3 * value / work.steps for name, value in spent.items()}

    def memory() -> dict[str, float]:
        settle()
        return {"mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}

    workload.serve(about or {}, {STEP: timed, MEMORY: memory})
