"""Dense products of a training: in float32, or of factors rounded to bfloat16 with sums in float32.

bfloat16 is faster where a processor multiplies tiles of it (AMX) and oneMKL is installed, and on AMD's with AVX-512's
instructions for it, where Numba is. Elsewhere the same is computed by NumPy, a little slower than float32, so that a
training goes on, and can be checked, on every machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from nnlib.compiled.select import LOOPS
from nnlib.cpu import mkl
from nnlib.cpu.scratch import SCRATCH, empty_lines
from nnlib.ops.bf16 import from_bf16, to_bf16
from nnlib.util.arrays import Floats

CPU_INFO = Path("/proc/cpuinfo")
PAIRED = "bf16 products"  # among the versions of a result
Factor = Any  # a matrix as one side of a product


class Products(Protocol):
    """What multiplies. A matrix is made a factor once, and may be one of several products, also transposed."""

    versions: Mapping[str, str]  # of a library that computes besides NumPy
    by_row: bool  # whether a row of a product has the same bits, whatever rows there are besides

    def factor(self, x: Floats, memory: str = "") -> Factor:
        """Return x (n, m) as a factor; with the name of `memory` in memory that this thread's next one overwrites."""

    def multiply(self, a: Factor, b: Factor, out: Floats | None = None) -> Floats:
        """Return a (n, k) times b (k, m), in `out` if there is one."""


class Float32:
    """Products of the numbers as they are, whatever their type."""

    versions: Mapping[str, str] = {}
    by_row = False  # OpenBLAS promises nothing

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


class LaidOut:
    """A matrix of float32 numbers as a factor, laid out once for each side of a product that it is on.

    Whoever has it does not change the numbers. Several threads may ask at once; each then lays it out.
    """

    __slots__ = ("_by_rows", "_left", "_memory", "_right", "shape", "x")

    def __init__(self, x: Floats, memory: str = "") -> None:
        self.x = x if x.itemsize in x.strides else np.ascontiguousarray(x)
        self.shape, self._memory = x.shape, memory
        self._by_rows = self.x.strides[1] == x.itemsize
        self._left: tuple[NDArray[Any], NDArray[np.int64]] | None = None
        self._right: NDArray[Any] | None = None

    @property
    def T(self) -> Self:  # noqa: N802 (NumPy's name)
        """The factor transposed."""
        return type(self)(self.x.T, f"{self._memory}, turned" if self._memory else "")

    def __getitem__(self, place: Any) -> Self:
        """Return a part of the factor."""
        return type(self)(self.x[place])

    def _get(self, side: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        if self._memory:
            return SCRATCH.get(f"{side} {self._memory}", shape, dtype)
        return empty_lines(math.prod(shape), dtype).reshape(shape)


class Pairs(LaidOut):
    """As numbers rounded to bfloat16, two of a sum side by side; see `Paired`."""

    __slots__ = ()

    def left(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return words of the left factor (n, k), and how many bytes lie between rows and between pairs."""
        if self._left is None:
            assert LOOPS is not None, "who asks for it has looked"
            (n, k), bf16 = self.shape, LOOPS.bf16
            if self._by_rows:
                words: NDArray[Any] = self._get("left", (n, -(-k // bf16.WIDTH) * bf16.WIDTH), np.uint16)
                bf16.round_rows(self.x.ctypes.data, self.x.strides[0], k, words)
                self._left = words, np.array((words.strides[0], 2 * words.itemsize))
            else:
                room = -(-n // bf16.LANES) * bf16.LANES
                words = self._get("left", (1, (k + 1) // 2, room), np.uint32)
                bf16.pair_rows(self.x.ctypes.data, self.x.strides[1], k, n, words)
                self._left = words, np.array((words.itemsize, words.strides[1]))
        return self._left

    def right(self) -> NDArray[np.uint32]:
        """Return words of the right factor (k, m) in panels; see `compiled.bf16.pair_rows`."""
        if self._right is None:
            assert LOOPS is not None
            (k, m), bf16 = self.shape, LOOPS.bf16
            panels = self._get("right", (-(-m // bf16.WIDTH), (k + 1) // 2, bf16.WIDTH), np.uint32)
            pair, stride = (
                (bf16.pair_rows, self.x.strides[0]) if self._by_rows else (bf16.pair_columns, self.x.strides[1])
            )
            pair(self.x.ctypes.data, stride, k, m, panels)
            self._right = panels
        return self._right


class Paired:
    """Products of bfloat16 numbers by AVX-512's instructions, compiled; see `compiled.bf16`.

    Each is computed by the thread that asks for it, every sum in the order of k.
    """

    versions: Mapping[str, str] = {PAIRED: "avx512"}
    by_row = True

    def factor(self, x: Floats, memory: str = "") -> Pairs:
        """See `Products`."""
        return Pairs(x, memory)

    def multiply(self, a: Pairs, b: Pairs, out: Floats | None = None) -> Floats:
        """See `Products`."""
        assert LOOPS is not None, "who asks for it has looked"
        out, (n, m) = _place_of(a, b, out), (a.shape[0], b.shape[1])
        if not (out.size and a.shape[1]):
            return out
        (words, strides), bf16 = a.left(), LOOPS.bf16
        tile = SCRATCH.get("tile", (bf16.ROWS * bf16.WIDTH,), np.float32)
        pitch = out.strides[0] // out.itemsize
        bf16.multiply_pairs(words.ctypes.data, strides, b.right(), n, m, pitch, out.ctypes.data, tile)
        return out


class Panels(LaidOut):
    """As float32 numbers; see `Ordered`."""

    __slots__ = ()

    def left(self) -> tuple[Floats, NDArray[np.int64]]:
        """Return the left factor (n, k), and `strides` of `compiled.gemm.multiply`."""
        if self._left is None:
            assert LOOPS is not None, "who asks for it has looked"
            (n, k), rows, x = self.shape, LOOPS.ROWS, self.x
            if self._by_rows and n % rows == 0:
                self._left = x, np.array((x.strides[0], x.itemsize, x.strides[0]))
            else:
                blocks = self._get("left", (-(-n // rows), k, rows), np.float32)
                if n % rows:
                    blocks[-1] = 0
                    blocks[-1, :, : n % rows] = x[n // rows * rows :].T
                blocks[: n // rows] = x[: n // rows * rows].reshape(n // rows, rows, k).swapaxes(1, 2)
                self._left = blocks, np.array((x.itemsize, rows * x.itemsize, k * x.itemsize))
        return self._left

    def right(self) -> Floats:
        """Return the right factor (k, m) in panels; see `compiled.gemm.lay_rows`."""
        if self._right is None:
            assert LOOPS is not None
            (k, m), gemm, x = self.shape, LOOPS.gemm, self.x
            panels = self._get("right", (-(-m // gemm.WIDE), k, gemm.WIDE), np.float32)
            if self._by_rows:
                gemm.lay_rows(x.ctypes.data, x.strides[0], k, m, panels)
            else:
                gemm.lay_columns(x.T, panels)
            self._right = panels
        return self._right


class Ordered:
    """Products of float32 numbers, compiled: each sum in the order of k, whatever rows and columns there are."""

    versions: Mapping[str, str] = {}
    by_row = True

    def factor(self, x: Floats, memory: str = "") -> Panels:
        """See `Products`."""
        return Panels(x, memory)

    def multiply(self, a: Panels, b: Panels, out: Floats | None = None) -> Floats:
        """See `Products`."""
        return self.multiply_shards(a, b, (a.shape[1],), out)

    def multiply_shards(self, a: Panels, b: Panels, ends: Sequence[int], out: Floats | None = None) -> Floats:
        """As `multiply`, where each sum is the tree's of one for each shard of k, which end so."""
        assert LOOPS is not None, "who asks for it has looked"
        assert ends[-1] == a.shape[1], "compiled loops do not see where arrays end"
        out, (n, m) = _place_of(a, b, out), (a.shape[0], b.shape[1])
        if not (out.size and a.shape[1]):
            return out
        (left, strides), gemm = a.left(), LOOPS.gemm
        room = SCRATCH.get("tiles", (gemm.BRANCHES + 1, gemm.TILE), np.float32)
        borders, pitch = np.array((0, *ends)), out.strides[0] // out.itemsize
        gemm.multiply(left.ctypes.data, strides, b.right(), borders, n, m, out.ctypes.data, pitch, room)
        return out


def _place_of(a: LaidOut, b: LaidOut, out: Floats | None) -> Floats:
    """Return what a compiled product of fitting factors is written to: `out` if there is one; zeros of empty sums."""
    (n, k), m = a.shape, b.shape[1]
    if out is None:
        out = np.empty((n, m), np.float32)
    assert (b.shape[0], out.shape) == (k, (n, m)), "compiled loops do not see where arrays end"
    if not (n and k and m):
        out[...] = 0
    else:
        assert out.strides[1] == out.itemsize or m == 1, "what is written is rows"
    return out


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


def products_of(precision: str, dtype: Any, is_cut: bool = False) -> Products:
    """Return what multiplies in a precision; in float64, as tests have it, nothing is rounded.

    `is_cut`: of batches that are cut by examples, of which each row should have the same bits in any number of rows.
    """
    if choose_precision(precision) == "float32" or dtype != np.float32:
        return Ordered() if is_cut and dtype == np.float32 and LOOPS is not None and LOOPS.MASKED else FLOAT32
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
