"""Machine code of the kernels for the GPU at hand, compiled once and kept from one start to the next.

CuPy's own way to compile adds -ftz=true, with which numbers below 1.2e-38 would be zero, unlike anywhere else.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from nnlib.backend import cache_folder
from nnlib.gpu.sources import OPTIONS, source

CUPY_FOLDER = "CUPY_CACHE_DIR"
SCRATCH = "_CONDOR_SCRATCH_DIR"  # of a job


def prepare_cupy() -> None:
    """Give CuPy a folder that can be written: without one it cannot be imported, and jobs often have no home."""
    if CUPY_FOLDER in os.environ:
        return
    try:
        (Path.home() / ".cupy" / "kernel_cache").mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        os.environ[CUPY_FOLDER] = tempfile.mkdtemp(prefix="cupy-", dir=os.environ.get(SCRATCH))


def kept_in() -> Path:
    """Return the folder for machine code: among the user's caches, else one of this process."""
    try:
        folder = cache_folder() / "kernels"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):
        pass
    return Path(tempfile.mkdtemp(prefix="nnlib-kernels-", dir=os.environ.get(SCRATCH)))


def machine_code(cupy: Any, family: str, folder: Path) -> Path:
    """Return the file with the machine code of a family for the current GPU; compile it if it is not there."""
    capability, compiler = cupy.cuda.Device().compute_capability, cupy.cuda.nvrtc.getVersion()
    key = repr((source(family), OPTIONS, capability, compiler))
    path = folder / f"{family}-sm_{capability}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.cubin"
    if not path.exists():
        code, _ = cupy.cuda.compiler.compile_using_nvrtc(source(family), OPTIONS)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")  # several jobs of a machine may do this at once
        fresh.write_bytes(code)
        fresh.replace(path)
    return path
