"""Parts of gpu.py that run in processes of their own: `gpu_parts.py NAME [quick]` prints lines of JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from importlib import metadata
from typing import Any

ASKED = "driver_version,power.limit,clocks.max.sm,clocks.max.memory"  # of nvidia-smi

Answers = Iterator[dict[str, Any]]


def facts(_: bool) -> Answers:
    """What GPU there is and what it is used with."""
    import cupy
    from gpu_multiply import facts as known

    capability = cupy.cuda.Device().compute_capability
    found = known() | {"compute capability": f"{capability[:-1]}.{capability[-1]}", "CuPy": cupy.__version__}
    yield found | {"tf32": int(capability) >= 80} | _of_driver()


def _of_driver() -> dict[str, str]:
    """Return what nvidia-smi says, nothing when there is none."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    command = [tool, f"--query-gpu={ASKED}", "--format=csv,noheader", "--id=0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    values = [value.strip() for value in done.stdout.split(",")]
    names = ASKED.replace("_", " ").replace(".", " ").split(",")
    return dict(zip(names, values, strict=True)) if len(values) == len(names) else {}


def torch(_: bool) -> Answers:
    """What PyTorch there is, and whether it can use the GPU."""
    try:
        import torch as found
    except ImportError as error:
        yield {"reason": f"PyTorch is missing ({error}): pip install torch"}
        return
    known = {"torch": found.__version__, "torch's CUDA": str(found.version.cuda)}
    try:
        known["triton"] = metadata.version("triton")
    except metadata.PackageNotFoundError:
        pass
    if not found.cuda.is_available():
        known["reason"] = f"PyTorch {found.__version__} cannot use the GPU: install one for this driver's CUDA"
    yield known


def ceilings(quick: bool) -> Answers:
    """What the GPU reaches."""
    from gpu_floor import ceilings_of

    from nnlib.gpu.runtime import Runtime

    yield asdict(ceilings_of(Runtime.open(), *((2048, 1 << 26) if quick else ())))


def multiply(quick: bool) -> Answers:
    """`data[i] *= c`: fewer passes than gpu_multiply.py makes by itself."""
    import gpu_multiply

    sizes = gpu_multiply.QUICK if quick else gpu_multiply.Sizes(passes=100, bytes=50 << 30, rounds=5)
    if quick:
        sizes = replace(sizes, rounds=3)
    for n in sizes.floats:
        lines, absent = gpu_multiply.measure(replace(sizes, floats=(n,)))
        yield {"lines": [asdict(line) for line in lines], "absent": absent}


PARTS = {part.__name__: part for part in (facts, torch, ceilings, multiply)}

if __name__ == "__main__":
    for answer in PARTS[sys.argv[1]]("quick" in sys.argv[2:]):
        print(json.dumps(answer), flush=True)
