"""Dense products of a training: in float32, or of factors rounded to bfloat16 with sums in float32.

bfloat16 is faster where a processor multiplies tiles of it (AMX) and oneMKL is installed, and on AMD's with AVX-512's
instructions for it, where Numba is. Elsewhere the same is computed by NumPy, a little slower than float32, so that a
training goes on, and can be checked, on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nnlib.compiled.select import LOOPS
from nnlib.cpu import mkl
from nnlib.cpu.scratch import SCRATCH
from nnlib.ops.bf16 import Halves, from_bf16, to_bf16
from nnlib.util.arrays import Floats

CPU_INFO = Path("/proc/cpuinfo")
PAIRED = "bf16 products"  # among the versions of a result
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


class Paired:
    """Products of bfloat16 numbers by AVX-512's instructions, compiled; see `compiled.bf16`.

    Each is computed by the thread that asks for it, every sum in the order of k.
    """

    versions: Mapping[str, str] = {PAIRED: "avx512"}

    def factor(self, x: Floats, memory: str = "") -> Halves:
        """See `Products`."""
        return mkl.round_factor(x, memory)

    def multiply(self, a: Halves, b: Halves, out: Floats | None = None) -> Floats:
        """See `Products`."""
        assert LOOPS is not None, "who asks for it has looked"
        (n, k), m = a.shape, b.shape[1]
        if out is None:
            out = np.empty((n, m), np.float32)
        if not (n and k and m):
            out[...] = 0
            return out
        pairs = (k + 1) // 2
        words, strides = _left_words(a, pairs)
        panels = SCRATCH.get("right", (-(-m // LOOPS.bf16.WIDTH), pairs, LOOPS.bf16.WIDTH), np.uint32)
        _lay(b, panels)
        tile = SCRATCH.get("tile", (LOOPS.bf16.ROWS * LOOPS.bf16.WIDTH,), np.float32)
        flat, pitch = mkl.flatten(out)
        LOOPS.bf16.multiply_pairs(words.ctypes.data, np.array(strides), panels, n, m, pitch, flat, tile)
        return out


def _left_words(a: Halves, pairs: int) -> tuple[NDArray[Any], tuple[int, int]]:
    """Return where the words of a left factor (n, k) begin, and how many bytes lie between rows and between pairs."""
    n, k = a.shape
    if a.strides[1] != a.itemsize:
        words = SCRATCH.get("left", (1, pairs, n), np.uint32)
        _lay(a.T, words)
        return words, (words.itemsize, n * words.itemsize)
    if k % 2:
        filled = SCRATCH.get("left by rows", (n, k + 1), np.uint16)
        filled[:, :k], filled[:, k] = a, 0
        a = filled
    return a, (a.strides[0], 2 * a.itemsize)


def _lay(x: Halves, out: NDArray[np.uint32]) -> None:
    """Lay out a factor (k, columns) as words in panels; see `compiled.bf16.pair_rows`."""
    assert LOOPS is not None
    by_rows = x.strides[1] == x.itemsize
    numbers, stride = mkl.flatten(x if by_rows else x.T)
    if by_rows:
        LOOPS.bf16.pair_rows(numbers, stride, len(x), x.shape[1], out)
    else:
        LOOPS.bf16.pair_columns(numbers, stride, len(x), x.shape[1], out)


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
    fast = "by oneMKL, on AMX" if has_amx() else "by compiled loops, with AVX-512's instructions for it"
    found, why = choose_precision(wanted), obstacle() or fast
    slower = ", which takes longer than float32" if obstacle() and found == "bf16" else ""
    return f"precision {wanted} is {found} here{slower}: {why}"


def products_of(precision: str, dtype: Any) -> Products:
    """Return what multiplies in a precision; in float64, as tests have it, nothing is rounded."""
    if choose_precision(precision) == "float32" or dtype != np.float32:
        return FLOAT32
    if obstacle():
        return Rounded()
    return mkl.Mkl() if has_amx() else Paired()


@lru_cache(maxsize=1)
def obstacle() -> str:
    """Return why bf16 is not faster than float32 here, and what would help; empty where it is."""
    if has_amx():
        return "" if mkl.find() else "oneMKL is missing, to install it: pip install 'regiondag[bf16]'"
    if not _has_fast_pairs():
        return "this processor multiplies bfloat16 no faster"
    if LOOPS is None:
        return "no compiled loops, to install them: pip install 'regiondag[fast]'"
    return "" if LOOPS.bf16.HAVE_PAIRS else "LLVM does not use this processor's instructions for bfloat16"


def has_amx() -> bool:
    """Return whether this processor multiplies tiles of bfloat16 numbers."""
    return bool(re.search(r"^flags\s*:.*\bamx_bf16\b", _cpu_info(), re.MULTILINE))


def _has_fast_pairs() -> bool:
    """Return whether AVX-512's instructions for bfloat16 are faster than those for float32: on AMD's processors.

    Intel's do as many sums in an instruction, and half as many instructions.
    """
    info = _cpu_info()
    return bool(re.search(r"^flags\s*:.*\bavx512_bf16\b", info, re.MULTILINE)) and "AuthenticAMD" in info


def _cpu_info() -> str:
    try:
        return CPU_INFO.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
