"""Dense products of a training: in float32, or of factors rounded to bfloat16 with sums in float32.

bfloat16 is faster only where a processor multiplies tiles of it (AMX) and oneMKL is installed. Elsewhere the same is
computed by NumPy, a little slower than float32, so that a training goes on, and can be checked, on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nnlib.cpu import mkl
from nnlib.ops.bf16 import from_bf16, to_bf16
from nnlib.util.arrays import Floats

CPU_INFO = Path("/proc/cpuinfo")
Factor = NDArray[Any]


class Products(Protocol):
    """What multiplies. A matrix is made a factor once, and may be one of several products, also transposed."""

    versions: Mapping[str, str]  # of a library that computes besides NumPy

    def factor(self, x: Floats, memory: str = "") -> Factor:
        """Return x (n, m) as a factor; with the name of `memory` in memory that this thread's next one overwrites."""

    def multiply(self, a: Factor, b: Factor, out: Floats | None = None) -> Floats:
        """Return a (n, k) times b (k, m), in `out` if there is one."""


class Float32:
    """Products of the numbers as they are, whatever their type."""

    versions: Mapping[str, str] = {}

    def factor(self, x: Floats, memory: str = "") -> Factor:  # noqa: ARG002 (nothing is copied)
        """See `Products`."""
        return x

    def multiply(self, a: Factor, b: Factor, out: Floats | None = None) -> Floats:
        """See `Products`."""
        return np.matmul(a, b, out=out)


class Rounded(Float32):
    """Products of rounded float32 numbers: the reference, and for machines that have nothing faster."""

    def factor(self, x: Floats, memory: str = "") -> Factor:  # noqa: ARG002 (not where time counts)
        """See `Products`."""
        return from_bf16(to_bf16(x))


FLOAT32 = Float32()


def choose_precision(wanted: str) -> str:
    """Return `float32` or `bf16`: for `auto` bf16 where it is faster; what a GPU does with `tf32` is float32 here."""
    if wanted == "auto":
        return "float32" if obstacle() else "bf16"
    return "bf16" if wanted == "bf16" else "float32"


def describe_precision(wanted: str) -> str:
    """Return what a setting comes to on this machine and why, in words; empty where it says so itself."""
    if wanted not in ("bf16", "auto"):
        return ""
    found, why = choose_precision(wanted), obstacle() or "by oneMKL, on AMX"
    slower = ", which takes longer than float32" if obstacle() and found == "bf16" else ""
    return f"precision {wanted} is {found} here{slower}: {why}"


def products_of(precision: str, dtype: Any) -> Products:
    """Return what multiplies in a precision; in float64, as tests have it, nothing is rounded."""
    if choose_precision(precision) == "float32" or dtype != np.float32:
        return FLOAT32
    return Rounded() if obstacle() else mkl.Mkl()


@lru_cache(maxsize=1)
def obstacle() -> str:
    """Return why bf16 is not faster than float32 here, and what would help; empty where it is."""
    if not has_amx():
        return "this processor has no AMX"
    return "" if mkl.find() else "oneMKL is missing, to install it: pip install 'regiondag[bf16]'"


def has_amx() -> bool:
    """Return whether this processor multiplies tiles of bfloat16 numbers."""
    return bool(re.search(r"^flags\s*:.*\bamx_bf16\b", _cpu_info(), re.MULTILINE))


def _cpu_info() -> str:
    try:
        return CPU_INFO.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
