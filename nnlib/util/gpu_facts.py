"""What can be said of a GPU and its software, or of why there is none; whoever has CuPy gives it."""

from __future__ import annotations

import os
import uuid
from typing import Any

from nnlib.util.machine import driver_version


def versions_of(cupy: Any) -> dict[str, str]:
    """Return what a result says of the GPU of this process and its software."""
    runtime = cupy.cuda.runtime
    return {
        "cupy": cupy.__version__,
        "cuda": _version(runtime.runtimeGetVersion()),
        "driver supports cuda": _version(runtime.driverGetVersion()),
        "gpu": _properties(cupy)["name"].decode(),
    }


def device_of(cupy: Any) -> dict[str, str]:
    """Return what a result says of the GPU itself; what cannot be found out is left out."""
    properties = _properties(cupy)
    capability = f"{properties['major']}.{properties['minor']}" if "major" in properties else ""
    found = {
        "name": properties["name"].decode(),
        "uuid": _uuid(properties.get("uuid")),
        "compute_capability": capability,
        "driver": driver_version(),
        "cuda": _version(cupy.cuda.runtime.runtimeGetVersion()),
    }
    return {name: value for name, value in found.items() if value}


def why_none(cupy: Any) -> str:
    """Say why CuPy finds no GPU."""
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # which error depends on what is missing
        return f"{error}; nvidia-smi shows whether driver and GPU are there"
    return f"CUDA counts {count} GPUs; CUDA_VISIBLE_DEVICES may hide them"


def _properties(cupy: Any) -> Any:
    return cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)


def _uuid(found: Any) -> str:
    """Return a GPU's UUID as nvidia-smi writes it, or HTCondor's shorter one where CuPy says none."""
    raw = found.get("bytes") if isinstance(found, dict) else found
    if isinstance(raw, bytes) and len(raw) == 16:
        return f"GPU-{uuid.UUID(bytes=raw)}"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0]
    return visible if visible.startswith("GPU-") else ""


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
