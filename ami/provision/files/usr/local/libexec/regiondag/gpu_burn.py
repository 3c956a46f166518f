"""nnlib's own kernels on a GPU while it burns, on whole numbers: every result has one right answer, to the bit.

Their sources are those of the day of the bake (50-driver.sh). They are compiled for the GPU at hand, as every job
compiles those that it brings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

KERNELS = Path(__file__).with_name("kernels")
NAMES = {
    "elementwise": ("set", "mul_c", "sub"),
    "reduce": ("column_sums", "sum_squares"),
    "gather": ("gather",),
    "convolution": ("convolution",),
}
OPTIONS = ("--std=c++17", "--fmad=false")  # nnlib's
THREADS, TILE, SIDE_OF_KERNEL = 256, 64, 3
PARTS = 256  # blocks of a sum, and numbers that it leaves
START, FACTOR, TIMES = 3, -2, 7  # what numbers are set to, and how often they are multiplied by what

Launch = tuple[str, tuple[int, ...], tuple[Any, ...]]  # a kernel, its grid, its arguments


@dataclass(frozen=True)
class Sizes:
    """How much is computed; the matrix has 64 MB, the convolution 2.4 billion products."""

    rows: int = 16384  # of a matrix, some of which are gathered, and whose columns are summed
    columns: int = 1024
    examples: int = 256  # each gathers so many rows
    entries: int = 32
    maps: int = 32  # each of so many channels, below and above
    channels: int = 64
    side: int = 32


@dataclass(frozen=True)
class Work:
    """Launches, the array that holds their result, and what must be in it."""

    kernel: str
    launches: tuple[Launch, ...]
    result: NDArray[np.float32]
    expected: NDArray[np.float32]


def make_work(sizes: Sizes = Sizes()) -> Iterator[Work]:
    """Yield work for the GPU's arithmetic and memory; NumPy says what is right."""
    table = whole(sizes.rows, sizes.columns, base=7)
    yield _multiply(sizes)
    yield _sum_columns(sizes, table)
    yield _gather(sizes, table)
    yield _convolve(sizes)


def whole(*shape: int, base: int) -> NDArray[np.float32]:
    """Return small whole numbers, those below `base` in turn, around 0."""
    return (np.arange(math.prod(shape)) % base - base // 2).astype(np.float32).reshape(shape)


def _multiply(sizes: Sizes) -> Work:
    x = np.zeros(sizes.rows * sizes.columns, np.float32)
    many, n = (PARTS,), np.int64(x.size)
    again = ("mul_c", many, (x, np.float32(FACTOR), n))
    launches = (("set", many, (x, np.float32(START), n)), *[again] * TIMES)
    return Work("mul_c", launches, x, np.full_like(x, START * FACTOR**TIMES))


def _sum_columns(sizes: Sizes, table: NDArray[np.float32]) -> Work:
    sums, n = np.zeros(sizes.columns, np.float32), np.int32(sizes.columns)
    arguments = (table, sums, np.int32(sizes.rows), n, n, np.float32(1), np.int32(0))
    return Work("column_sums", (("column_sums", (math.ceil(n / 32),), arguments),), sums, table.sum(axis=0))


def _gather(sizes: Sizes, table: NDArray[np.float32]) -> Work:
    b, n = sizes.examples, sizes.columns
    items = np.random.default_rng(1).integers(sizes.rows, size=(b, sizes.entries), dtype=np.int32)
    starts = np.arange(b + 1, dtype=np.int32) * np.int32(sizes.entries)
    batch = np.concatenate([np.array([2, 2 + starts.size], np.int32), starts, items.reshape(-1)])
    z, no_noise = np.zeros((b, n), np.float32), (None, np.uint64(0), None, np.int32(1), np.int32(0))
    where = (np.int32(0), np.int32(1), np.int32(-1))  # starts, items, and no values: all are one
    shape = (np.int32(b), np.int32(n), np.int32(n), np.int32(0))
    arguments = (batch, *where, table, np.int64(n), np.int64(1), z, *shape, *no_noise)
    return Work("gather", (("gather", (b, math.ceil(n / 1024)), arguments),), z, table[items].sum(axis=1))


def _convolve(sizes: Sizes) -> Work:
    b, channels, side, kernel = sizes.maps, sizes.channels, sizes.side, SIDE_OF_KERNEL
    x, w = whole(b, channels, side, side, base=5), whole(channels, channels, kernel, kernel, base=3)
    axes = [1, 1, 1, 1, 0, 1, *[side, side, kernel, 1, kernel // 2, 1] * 2]  # of kernels/sweep.cuh
    sweep = np.array([*axes, channels, channels, 1, kernel**2, side**2, side**2], np.int32)
    z = np.zeros_like(x)
    grid = (math.ceil(b * side**2 / TILE), math.ceil(channels / TILE))
    launch = ("convolution", grid, (x, w, None, z, sweep, np.int32(b), np.int32(0)))
    around = np.pad(x, ((0, 0), (0, 0), (kernel // 2,) * 2, (kernel // 2,) * 2))
    expected = np.zeros((b, channels, side**2), np.float32)
    for row, column in np.ndindex(kernel, kernel):
        seen = around[:, :, row : row + side, column : column + side].reshape(b, channels, side**2)
        expected += w[:, :, row, column] @ seen
    return Work("convolution", (launch,), z, expected.reshape(x.shape))


class KernelBurn:
    """Such work on one GPU, again and again; what must come out lies on the GPU, too."""

    def __init__(self, cupy: Any, number: int, all_work: Sequence[Work]) -> None:
        """Compile, bring the numbers to a GPU, and have this machine compare its first results."""
        self.device = cupy.cuda.Device(number)
        self.wrong = set[str]()
        self._cupy, self._all_work = cupy, all_work
        self._arrays: dict[int, Any] = {}  # CuPy's, by the number of NumPy's, which stay as long as their work
        with self.device:
            self._functions = find_functions(cupy)
            self._parts = [cupy.zeros(PARTS, np.float64) for _ in all_work]
            for work in all_work:
                self._compute(work)
                if not np.array_equal(self._sent(work.result).get(), work.expected):
                    self.wrong.add(work.kernel)

    def launch(self) -> None:
        """Have it compute and compare once more; nobody waits."""
        with self.device:
            for work, parts in zip(self._all_work, self._parts, strict=True):
                self._compute(work)
                n = np.int64(work.result.size)
                self._call("sub", (PARTS,), (work.result, work.expected, n))
                self._call("sum_squares", (PARTS,), (work.result, parts, n))

    def look(self) -> None:
        """Wait, and add the kernels whose last results were wrong."""
        with self.device:
            self.wrong |= {
                work.kernel for work, parts in zip(self._all_work, self._parts, strict=True) if parts.get().any()
            }

    def _compute(self, work: Work) -> None:
        for launch in work.launches:
            self._call(*launch)

    def _call(self, name: str, grid: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        sent = [self._sent(each) if isinstance(each, np.ndarray) else each for each in arguments]
        self._functions[name](grid, (THREADS,), tuple(sent))

    def _sent(self, array: NDArray[Any]) -> Any:
        if id(array) not in self._arrays:
            self._arrays[id(array)] = self._cupy.asarray(array)
        return self._arrays[id(array)]


def find_functions(cupy: Any) -> dict[str, Any]:
    """Return the kernels that are launched, by name, for the current GPU; OSError where their sources are not here."""
    found = {}
    for family, names in NAMES.items():
        module = cupy.cuda.function.Module()
        module.load(_compiled(cupy, family, cupy.cuda.Device().compute_capability))
        found |= {name: module.get_function(name) for name in names}
    return found


@cache
def _compiled(cupy: Any, family: str, _capability: str) -> bytes:  # once for all GPUs of a kind
    text = (KERNELS / f"{family}.cu").read_text(encoding="utf-8")
    code, _ = cupy.cuda.compiler.compile_using_nvrtc(text, (*OPTIONS, f"-I{KERNELS}"))
    return bytes(code)
