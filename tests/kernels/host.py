"""The kernels on the CPU: g++ and cuda_host.h run their unmodified text, one fiber a thread.

For tests of kernels:

    from tests.kernels.host import poisoned, run

    [sums] = run("reduce", "column_sums", (4,), [x, poisoned(n), np.int32(b), ...])

`run` launches a kernel on copies of the arrays, with blocks and threads in three orders, and returns what the writable
arrays (parameters that are not const) hold afterwards, in the order of the parameters; None where None (a null pointer)
was passed. All orders must give the same bits, neither an array's surroundings nor a const array may change, and every
argument must fit the kernel's signature: arrays by dtype, numbers as NumPy scalars (np.int32 for int,
np.int64 for long long, np.uint64, np.float32, np.float64). Shared memory and `poisoned` arrays hold NaNs (POISON) at
first, and what lies around the arrays differs between the launches, so that what is read by mistake shows. An array
passed twice is one array for the kernel, too. A `float* const*` takes a list of arrays. `run` takes a family's name or
a Library: run(compiled(text), ...).

For a stand-in of CuPy:

    kernel = family("reduce").kernel("column_sums")
    kernel(grid, block, args, shared_mem=0)     # like cupy.RawKernel, in place, checked against the signature

Anything with an int `ctypes_pointer` is an array for it, too. What CUDA forbids (a deadlock, a shuffle from a lane that
is not there, an empty grid) is a KernelError. With `sanitize=True`, or KERNELS_SANITIZE=1 in the environment, so is
what -fsanitize=undefined finds: misaligned pointers, overflows, indices outside of shared arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.kernels.library import ORDERS, POISON, Extent, Kernel, KernelError, Library, compiled, family, signatures

__all__ = ["POISON", "Kernel", "KernelError", "Library", "compiled", "family", "poisoned", "run", "signatures"]

SURROUNDINGS = (POISON, 0x449A5000, 0xC49A5000)  # of arrays in the launches; not always NaN, as NaN times c is NaN
GUARD = 4096  # bytes before and after each array


def poisoned(shape: int | tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    """Return an array for a kernel to fill: what it leaves out is NaN, or a huge number."""
    array = np.empty(shape, dtype)
    array.view(np.uint32)[...] = POISON
    return array


class _Guarded:
    """A copy of an array amid copies of a word, at an address as aligned as the original's."""

    def __init__(self, array: np.ndarray, word: int) -> None:
        self._all = np.full(-(-array.nbytes // 4) + 2 * GUARD // 4 + 32, word, np.uint32).view(np.uint8)
        self._begin = GUARD + (array.ctypes.data - self._all.ctypes.data - GUARD) % 64
        self._end = self._begin + array.nbytes
        self.array = self._all[self._begin : self._end].view(array.dtype).reshape(array.shape)
        self.array[...] = array
        self._around = self._surroundings()

    def _surroundings(self) -> bytes:
        return self._all[: self._begin].tobytes() + self._all[self._end :].tobytes()

    def intact(self) -> bool:
        return self._surroundings() == self._around


class _Copies:
    """The arguments of one launch, with each array copied."""

    def __init__(self, kernel: Kernel, args: Sequence[Any], surroundings: int) -> None:
        self._kernel = kernel
        self._word = surroundings
        self._given: list[Any] = list(args)
        self._made: dict[int, _Guarded] = {}
        self.args = [self._copy(arg) for arg in args]

    def _copy(self, arg: Any) -> Any:
        if isinstance(arg, (list, tuple)):
            return np.array([self._copy(one).ctypes.data for one in arg], np.uint64)
        if not isinstance(arg, np.ndarray):
            return arg
        if not arg.flags.c_contiguous:
            raise TypeError(f"{self._kernel.name}: an array that is not contiguous")
        return self._made.setdefault(id(arg), _Guarded(arg, self._word)).array

    def _now(self, arg: Any) -> Any:
        """Return what an argument holds after the launch."""
        if isinstance(arg, (list, tuple)):
            return [self._now(one) for one in arg]
        return self._made[id(arg)].array if isinstance(arg, np.ndarray) else None

    def results(self) -> list[Any]:
        """Return the arrays that may be written; KernelError if anything else was."""
        written = []
        for parameter, arg in zip(self._kernel.parameters, self._given, strict=True):
            for one in arg if isinstance(arg, (list, tuple)) else [arg]:
                if isinstance(one, np.ndarray) and not self._made[id(one)].intact():
                    raise KernelError(f"{self._kernel.name} writes outside of {parameter.name}")
            if parameter.pointer and not parameter.constant:
                written.append(arg)
        for parameter, arg in zip(self._kernel.parameters, self._given, strict=True):
            read = parameter.constant and isinstance(arg, np.ndarray) and all(arg is not one for one in written)
            if read and not _same_bits(arg, self._now(arg)):
                raise KernelError(f"{self._kernel.name} writes to {parameter.name}, which is const")
        return [self._now(arg) for arg in written]


def _same_bits(left: Any, right: Any) -> bool:
    if isinstance(left, list):
        return all(_same_bits(*pair) for pair in zip(left, right, strict=True))
    return left is None or left.tobytes() == right.tobytes()


def run(
    kernels: str | Library,
    name: str,
    grid: Extent,
    args: Sequence[Any],
    block: Extent = (256,),
    shared_mem: int = 0,
) -> list[Any]:
    """Launch a kernel on copies of its arrays, with its threads in several orders, and return what it wrote."""
    kernel = (family(kernels) if isinstance(kernels, str) else kernels).kernel(name)
    first: list[Any] = []
    for order, surroundings in zip(ORDERS, SURROUNDINGS, strict=True):
        copies = _Copies(kernel, args, surroundings)
        kernel(grid, block, copies.args, shared_mem, order)
        results = copies.results()
        first = first or results
        if not _same_bits(first, results):
            raise KernelError(f"{name} depends on the order of the threads, or on what lies around an array")
    return first
