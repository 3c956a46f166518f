"""What there is and what it reaches, each in a process of its own: `facts NAME [quick]` prints a line of JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from importlib import metadata
from typing import Any

ASKED = "driver_version,power.limit,clocks.max.sm,clocks.max.memory"  # of nvidia-smi


def device(_: bool) -> dict[str, Any]:
    """How many can be used; `missing` says why none can."""
    try:
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy, a driver or a GPU is missing, and each fails in its own way
        return {"missing": f"{type(error).__name__}: {error}"}
    return {"missing": "" if count else "CUDA finds no GPU", "count": count}


def gpu(_: bool) -> dict[str, Any]:
    """What GPU there is and what it is used with."""
    import cupy

    runtime, one = cupy.cuda.runtime, cupy.cuda.Device()
    has, capability = runtime.getDeviceProperties(one.id), one.compute_capability
    return {
        "GPU": has["name"].decode(),
        "memory": f"{has['totalGlobalMem'] / 1e9:.3g} GB",
        "L2 cache": f"{has['l2CacheSize'] / (1 << 20):.3g} MB",
        "CUDA": f"{runtime.runtimeGetVersion()}, driver's {runtime.driverGetVersion()}",
        "compute capability": f"{capability[:-1]}.{capability[-1]}",
        "CuPy": cupy.__version__,
        "tf32": int(capability) >= 80,
    } | _of_driver()


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


def torch(_: bool) -> dict[str, Any]:
    """What PyTorch there is, and whether it can use the GPU."""
    try:
        import torch as found
    except ImportError as error:
        return {"reason": f"PyTorch is missing ({error}): pip install torch"}
    known = {"torch": found.__version__, "torch's CUDA": str(found.version.cuda)}
    try:
        known["triton"] = metadata.version("triton")
    except metadata.PackageNotFoundError:
        pass
    if not found.cuda.is_available():
        known["reason"] = f"PyTorch {found.__version__} cannot use the GPU: install one for this driver's CUDA"
    return known


def ceilings(quick: bool) -> dict[str, Any]:
    """What the GPU reaches."""
    from nnlib.gpu.runtime import Runtime
    from scripts.bench.gpu.floor import ceilings_of

    return asdict(ceilings_of(Runtime.open(), *((2048, 1 << 26) if quick else ())))


FACTS = {fact.__name__: fact for fact in (device, gpu, torch, ceilings)}

if __name__ == "__main__":
    print(json.dumps(FACTS[sys.argv[1]]("quick" in sys.argv[2:])), flush=True)
