"""Machine code of the kernels for the GPU at hand, compiled once and kept from one start to the next.

CuPy's own way to compile adds -ftz=true, with which numbers below 1.2e-38 would be zero, unlike anywhere else.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from nnlib.compiled.select import cache_folder
from nnlib.util.files import write_atomically

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


def cubin_folder() -> Path:
    """Return the folder for machine code: among the user's caches, else one of this process."""
    try:
        folder = cache_folder() / "kernels"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):
        pass
    return Path(tempfile.mkdtemp(prefix="nnlib-kernels-", dir=os.environ.get(SCRATCH)))


def ensure_cubin(cupy: Any, family: str, folder: Path) -> Path:
    """Return the file with the machine code of a family for the current GPU; compile it if it is not there."""
    capability, compiler = cupy.cuda.Device().compute_capability, cupy.cuda.nvrtc.getVersion()
    key = repr((source(family), OPTIONS, capability, compiler))
    path = folder / f"{family}-sm_{capability}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.cubin"
    if not path.exists():
        code, _ = cupy.cuda.compiler.compile_using_nvrtc(source(family), OPTIONS)
        write_atomically(path, code)  # several jobs of a machine may do this at once
    return path


FAMILIES = (
    "activation",
    "batchnorm",
    "bf16",
    "convolution",
    "elementwise",
    "filters",
    "gather",
    "joining",
    "limits",
    "mapnorm",
    "output",
    "pooling",
    "reduce",
    "response",
    "rowwise",
    "shards",
    "top",
    "touched",
    "unfold",
    "update",
)
INCLUDE = re.compile(r'^#include "([a-z_]+\.cuh)"$', re.MULTILINE)
KERNEL = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)')
OPTIONS = ("--std=c++17", "--fmad=false")  # of every compilation: see kernels/README.md


@cache
def source(family: str) -> str:
    """Return the text of a family with each included file in place of its first #include."""
    seen = set[str]()

    def text_of(name: str) -> str:
        def included(found: re.Match[str]) -> str:
            if found[1] in seen:
                return ""
            seen.add(found[1])
            return text_of(found[1]).replace("#pragma once\n", "")

        return INCLUDE.sub(included, (_folder() / name).read_text(encoding="utf-8"))

    return text_of(f"{family}.cu")


def _folder() -> Traversable:
    """Return where the kernels are: packaged as nnlib/kernels, in a checkout beside nnlib."""
    packaged = files("nnlib") / "kernels"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "kernels"


@dataclass(frozen=True, slots=True)
class Signature:
    """What a kernel takes: the name and the type of every parameter; pointers end with `*`."""

    family: str
    parameters: tuple[tuple[str, str], ...]


@cache
def read_signatures() -> Mapping[str, Signature]:
    """Return every kernel of every family by its name."""
    found = {}
    for family in FAMILIES:
        for name, parameters in KERNEL.findall(source(family)):
            pairs = [_parameter(text) for text in parameters.split(",")]
            found[name] = Signature(family, tuple(pairs))
    return found


def _parameter(text: str) -> tuple[str, str]:
    """Return name and type of `const float* __restrict__ x`: ("x", "float*")."""
    words = re.sub(r"\b(const|__restrict__)\b", "", text).replace("*", "* ").split()
    return words[-1], " ".join(words[:-1]).replace(" *", "*")
