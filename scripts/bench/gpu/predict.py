"""Images a second that a model predicts for GPUs that were not here: `python -m scripts.bench.gpu.predict` prints it.

Nothing is measured. A step takes its operations at a machine's rate of float32 and, besides, what is unfolded for them
at its bandwidth, or the floor by bytes where that is longer (see pictures.py); rates are those that
nnlib/inspection/scaling.py assumes, three quarters of NVIDIA's data sheets.
"""

from __future__ import annotations

import json
import sys

from docs._generate.markdown import table
from nnlib.inspection.scaling import MACHINES, Machine
from scripts.bench.common.harness import RESULTS
from scripts.bench.gpu import pictures
from scripts.bench.gpu.floor import Ceilings
from scripts.bench.gpu.work import GpuWork

NAME = "pictures_predicted"
HEADINGS = ("network", "batch", "GPU", "images/s", "of the floor", "by")


def predict(work: GpuWork, machine: Machine) -> tuple[float, float, str]:
    """Return images a second, which part that is of what the floor allows, and what the floor is due to."""
    floor = pictures.floor_of(work, Ceilings(machine.memory, machine.flops, None))
    seconds = step_seconds(work, machine)
    return work.batch / seconds, 1e-3 * floor.ms / seconds, floor.by


def step_seconds(work: GpuWork, machine: Machine, unfolded: bool = True) -> float:
    """Return the seconds of a step; those of a library that unfolds nothing without `unfolded`."""
    floor = pictures.floor_of(work, Ceilings(machine.memory, machine.flops, None))
    seconds = 1e-3 * floor.operations_ms + (pictures.unfolded_of(work) / machine.memory if unfolded else 0.0)
    return machine.floor + max(seconds, 1e-3 * floor.bytes_ms)


def rows() -> list[tuple[str, ...]]:
    """Return a row for each network, batch and GPU."""
    found: list[tuple[str, ...]] = []
    gpus = {machine.name.partition(",")[0]: machine for machine in reversed(MACHINES)}
    for work in pictures.works(quick=False, tensor_cores=False):
        for gpu, machine in reversed(gpus.items()):
            images, share, by = predict(work, machine)
            found.append((work.kind, str(work.batch), gpu, f"{images:,.0f}", f"{share:.0%}", by))
    return found


def main() -> int:
    """Print the table, and keep it."""
    made = rows()
    print(table(HEADINGS, made))
    kept = {
        "bench": NAME,
        "predicted, not measured": {"float32": [dict(zip(HEADINGS, row, strict=True)) for row in made]},
    }
    (RESULTS / f"{NAME}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
