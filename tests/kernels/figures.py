"""Keep what each kernel takes on each generation of GPUs. Nothing runs, no GPU is needed.

The figures go to scripts/bench/results/kernels.json, one row a kernel: the most registers of a thread on any generation
as `ours`, then those on each, and a block's bytes of shared memory. Nothing is measured.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from nnlib.gpu.kernels import FAMILIES, OPTIONS, source
from scripts.bench.common import harness
from tests.kernels import nvrtc
from tests.kernels.library import signatures

RESULT = harness.RESULTS / "kernels.json"


def figures(family: str) -> dict[str, dict[str, nvrtc.Figures]]:
    """Return what each kernel of a family takes by generation, in the order of the text."""
    by_target = nvrtc.figures(source(family), OPTIONS, nvrtc.GENERATIONS)
    return {
        name: {f"sm_{target[1]}": found[name] for target, found in by_target.items()}
        for name in signatures(source(family))
    }


def to_json(kernels: dict[str, dict[str, nvrtc.Figures]]) -> dict[str, Any]:
    """Return the figures of all kernels in the form in which results are kept."""
    most = {name: max(one.registers for one in found.values()) for name, found in kernels.items()}
    rows = [harness.Row(name, registers, None, "registers") for name, registers in most.items()]
    result = harness.to_json("kernels", rows)
    result["versions"] = {name: nvrtc.version(major) for major, name in nvrtc.WHEELS.items()}
    for row, found in zip(result["rows"], kernels.values(), strict=True):
        row["registers"] = {generation: one.registers for generation, one in found.items()}
        row["shared"] = max(one.shared for one in found.values())
    return result


def main() -> int:
    """Compile everything, print a line for each kernel and keep the figures."""
    kernels = {f"{family}: {name}": found for family in FAMILIES for name, found in figures(family).items()}
    result = to_json(kernels)
    width = max(map(len, kernels))
    print(" " * width, *(f"{f'sm_{architecture}':>6}" for _, architecture in nvrtc.GENERATIONS), "shared")
    for row in result["rows"]:
        counts = [*row["registers"].values(), row["shared"]]
        print(row["workload"].ljust(width), *(f"{count:6}" for count in counts))
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
