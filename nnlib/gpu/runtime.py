"""A GPU as this process uses it: memory, two streams, kernels, products, graphs. The only module that imports CuPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.errors import MachineError, NnlibError
from nnlib.gpu.cublas import BF16, Cublas
from nnlib.gpu.kernels import Signature, cubin_folder, ensure_cubin, prepare_cupy, read_signatures
from nnlib.gpu.maps import cudnn
from nnlib.util import gpu_facts

Array = Any  # cupy.ndarray
CapturedGraph = Any  # cupy.cuda.Graph
Products = Callable[[Any, Any, str], Any]  # (CuPy, stream, precision) -> what multiplies, as Cublas

THREADS = 256  # of a block
ALIGNMENT = 32  # words: what is multiplied, and every part of a flat array, starts at a multiple of 128 bytes
PART, MOST_PARTS = 4096, 512  # numbers that a block of a sum has at least, and blocks at most
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3  # cudaMemcpyKind
SCALARS = {
    "int": np.int32,
    "long long": np.int64,
    "unsigned long long": np.uint64,
    "float": np.float32,
    "double": np.float64,
}
INSTALL = "install regiondag[gpu-cuda13] (Turing and later) or regiondag[gpu-cuda12] (Volta and later)"
LIBRARIES = ("cupy", "cupy_backends", "cuda")  # whose errors are the machine's


def usable() -> bool:
    """Whether CuPy is here and finds a GPU that it can use; never raises."""
    try:
        cupy = _cupy()
        return bool(cupy.is_available()) and cupy.cuda.Stream(non_blocking=True) is not None  # a busy one refuses that
    except Exception:  # a half-installed CuPy and a broken GPU fail in many ways
        return False


@cache
def _cupy() -> Any:
    """Return CuPy with everything that is needed of it."""
    prepare_cupy()
    import cupy
    import cupy.cublas  # loads cuBLAS, or says that it is missing

    cupy.cuda.nvrtc.getVersion()  # the same for the compiler
    return cupy


def _nccl() -> Any:
    """Return CuPy's module of NCCL, whose library is loaded then."""
    import cupy.cuda.nccl

    return cupy.cuda.nccl


class Runtime:
    """One GPU. What is asked of it is done in order on `compute`; `copy` brings the next batches meanwhile."""

    def __init__(self, cupy: Any, products: Products, folder: Path, find_nccl: Callable[[], Any] = _nccl) -> None:
        """Use a module like CuPy, what multiplies matrices on a stream of it, and a folder for machine code."""
        self._cupy, self._products, self._folder, self._find_nccl = cupy, products, folder, find_nccl
        self.compute, self.copy = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        self._modules: dict[str, Any] = {}
        self._functions: dict[str, tuple[Any, list[Callable[[Any], Any]]]] = {}
        self._by_precision: dict[str, Any] = {}
        self._factors: list[Array | None] = [None, None]  # room for both factors of a product, rounded
        self._outgrown: list[Array] = []  # earlier ones: graphs that were captured still use them
        self.cudnn = self.open_cudnn() if cudnn.asked() else None
        self._workspace: Array | None = None  # of cuDNN

    @classmethod
    def open(cls) -> Runtime:
        """Return the GPU of this process; MachineError with the reason when there is none that can be used.

        NnlibError for a variable that is not legal.
        """
        try:
            cupy = _cupy()
            if cupy.is_available():
                return cls(cupy, Cublas, cubin_folder())
        except NnlibError:  # as of a variable that asks for what is not legal, which no other machine would have
            raise
        except Exception as error:  # a half-installed CuPy and a broken GPU fail in many ways
            missing = isinstance(error, ImportError) or type(error).__module__.startswith("cuda.")
            advice = f"; {INSTALL}" if missing else ""
            seen = str(error).partition("\n")[0]  # of a library that is not found, whole folders follow
            raise MachineError(f"no GPU can be used: {seen}{advice}") from error
        raise MachineError(f"no GPU can be used: {gpu_facts.why_none(cupy)}")

    def open_cudnn(self) -> cudnn.Cudnn:
        """Return cuDNN on `compute`, asked for or not; MachineError when its library is not here."""
        return cudnn.Cudnn(cudnn.find_library(), int(self._cupy.cuda.Device().id), self.compute.ptr)

    def close(self) -> None:
        """Wait for what was asked, and give up what cuBLAS and cuDNN hold."""
        for stream in (self.compute, self.copy):
            with suppress(Exception):  # what failed has been told
                stream.synchronize()
        for product in self._by_precision.values():
            product.close()
        self._by_precision.clear()
        if self.cudnn is not None:
            self.cudnn.close()

    @property
    def versions(self) -> dict[str, str]:
        """What a result says of the GPU and its software."""
        return gpu_facts.versions_of(self._cupy) | (self.cudnn.versions if self.cudnn else {})

    @property
    def device(self) -> dict[str, str]:
        """What a result says of the GPU itself; what cannot be found out is left out."""
        return gpu_facts.device_of(self._cupy)

    @property
    def nccl(self) -> Any:
        """NCCL as CuPy has it; MachineError when its library is not here."""
        found = self._find_nccl()
        if not getattr(found, "available", True):
            raise MachineError(f"several GPUs need NCCL, which CuPy does not find; {INSTALL}")
        return found

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Turn what CUDA, its compiler and its libraries raise into MachineError: another machine may succeed."""
        try:
            yield
        except self._cupy.cuda.memory.OutOfMemoryError as error:
            raise MachineError(
                f"the GPU has too little memory: {error}; ask for a larger one, or a smaller batch"
            ) from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in LIBRARIES:
                raise
            raise MachineError(f"the GPU failed: {type(error).__name__}: {error}") from error

    def zeros(self, shape: int | tuple[int, ...], dtype: Any = np.float32) -> Array:
        """Return memory of the GPU, filled with zeros before anything that is launched later."""
        with self.compute:
            return self._cupy.zeros(shape, dtype)

    def pinned(self, words: int) -> NDArray[np.int32]:
        """Return memory of this machine that the GPU can copy from and to while the processor goes on."""
        memory = self._cupy.cuda.alloc_pinned_memory(max(1, words) * 4)
        return np.frombuffer(memory, np.int32, words)

    def upload(self, array: Array, values: NDArray[Any]) -> None:
        """Fill memory of the GPU with values of this machine, converted to its type; waits until that is done."""
        host = np.ascontiguousarray(values, array.dtype)
        assert host.size == array.size, "as many numbers as there are places"
        if host.size:
            self._copy(array.data.ptr, host.ctypes.data, host.nbytes, HOST_TO_DEVICE, self.compute)
        self.compute.synchronize()

    def download(self, array: Array) -> NDArray[Any]:
        """Wait for everything that was asked before; return what is in memory of the GPU, contiguous."""
        host = np.empty(array.shape, array.dtype)
        if host.size:
            self._copy(host.ctypes.data, array.data.ptr, host.nbytes, DEVICE_TO_HOST, self.compute)
        self.compute.synchronize()
        return host

    def rows(self, array: Array) -> NDArray[Any]:
        """Return as `download` a matrix whose rows may lie apart."""
        rows, columns = array.shape
        host = np.empty(array.shape, array.dtype)
        width, pitch = columns * array.itemsize, array.strides[0]
        places = (host.ctypes.data, width, array.data.ptr, pitch, width, rows)
        self._cupy.cuda.runtime.memcpy2DAsync(*places, DEVICE_TO_HOST, self.compute.ptr)
        self.compute.synchronize()
        return host

    def begin_upload(self, array: Array, pinned: NDArray[np.int32]) -> None:
        """Start to copy pinned words to the start of an array of words, on `copy`."""
        self._copy(array.data.ptr, pinned.ctypes.data, pinned.nbytes, HOST_TO_DEVICE, self.copy)

    def begin_download(self, pinned: NDArray[np.int32], array: Array) -> None:
        """Start to copy an array into pinned words, on `compute`."""
        self._copy(pinned.ctypes.data, array.data.ptr, pinned.nbytes, DEVICE_TO_HOST, self.compute)

    def move(self, target: Array, origin: Array, words: int | None = None) -> None:
        """Copy numbers of four bytes within the GPU, on `compute`: all of `origin`, or its first `words`."""
        count = origin.size if words is None else words
        if count:
            self._copy(target.data.ptr, origin.data.ptr, 4 * count, DEVICE_TO_DEVICE, self.compute)

    def clear(self, array: Array) -> None:
        """Fill an array with zeros, on `compute`."""
        if array.size:
            self._cupy.cuda.runtime.memsetAsync(array.data.ptr, 0, array.nbytes, self.compute.ptr)

    def event(self) -> Any:
        """Return a mark that can be set in a stream and waited for."""
        return self._cupy.cuda.Event(block=True, disable_timing=True)  # who waits leaves the processor to others

    def launch(self, name: str, grid: tuple[int, ...], *arguments: Any) -> None:
        """Launch a kernel on `compute` in blocks of THREADS; an empty grid does nothing."""
        if 0 in grid:
            return
        function, conversions = self._function(name)
        assert len(arguments) == len(conversions), f"{name} takes {len(conversions)} arguments, not {len(arguments)}"
        values = tuple(convert(value) for convert, value in zip(conversions, arguments, strict=True))
        with self.compute:
            function(grid, (THREADS,), values)

    def multiply(
        self,
        a: Array,
        b: Array,
        out: Array,
        flip: tuple[bool, bool] = (False, False),
        *,
        add: bool,
        scale: float,
        precision: str,
    ) -> None:
        """Set `out` (or `add` to it) scale times a b, with a or b transposed where `flip` says so; on `compute`.

        `precision`: one of cublas.PRECISIONS, what a and b are rounded to.
        """
        if precision not in self._by_precision:
            self._by_precision[precision] = self._products(self._cupy, self.compute, precision)
        if precision == BF16:
            a, b = self._rounded(a, 0), self._rounded(b, 1)
        self._by_precision[precision](a, b, out, flip, add, scale)

    def _rounded(self, x: Array, place: int) -> Array:
        """Return a matrix as bfloat16 (the bits, as uint16), in room that the next product's factor overwrites."""
        (rows, n), room = x.shape, self._factors[place]
        words = 4 * math.ceil(n / 8)  # rows start at multiples of 16 bytes, as tensor cores want them
        if room is None or room.size < rows * words:
            self._outgrown += [] if room is None else [room]
            room = self._factors[place] = self.zeros(rows * words, np.uint32)
        found = room[: rows * words].reshape(rows, words)
        self.launch("to_bf16", grid_of(rows * words // 2), x, found, rows, n, x.strides[0] // 4, words)
        return found.view(np.uint16)[:, :n]

    def convolve(self, task: cudnn.Task, arrays: Sequence[Array]) -> bool:
        """Compute a convolution by cuDNN, on `compute`; whether it has an engine for that."""
        assert self.cudnn is not None
        plan, room = self.cudnn.plan(task), self._workspace
        if plan is None:
            return False
        if room is None or room.nbytes < plan.workspace:
            self._outgrown += [] if room is None else [room]
            room = self._workspace = self.zeros(max(1, plan.workspace), np.uint8)
        self.cudnn.run(plan, [array.data.ptr for array in arrays], room.data.ptr)
        return True

    def capture(self, work: Callable[[], None]) -> CapturedGraph:
        """Return what `work` launches as a graph, to be launched as often as wanted; nothing of it is done yet."""
        self.compute.begin_capture()
        try:
            work()
        except BaseException:
            with suppress(Exception):  # it would hide what went wrong
                self.compute.end_capture()
            raise
        return self.compute.end_capture()

    def replay(self, graph: CapturedGraph) -> None:
        """Launch a graph on `compute`."""
        graph.launch(self.compute)

    def _copy(self, target: int, origin: int, count: int, kind: int, stream: Any) -> None:
        self._cupy.cuda.runtime.memcpyAsync(target, origin, count, kind, stream.ptr)

    def _function(self, name: str) -> tuple[Any, list[Callable[[Any], Any]]]:
        if name not in self._functions:
            signature = read_signatures()[name]
            if signature.family not in self._modules:
                path = ensure_cubin(self._cupy, signature.family, self._folder)
                self._modules[signature.family] = self._cupy.RawModule(path=str(path))
            function = self._modules[signature.family].get_function(name)
            self._functions[name] = function, _conversions(signature)
        return self._functions[name]


def grid_of(count: int, most: int = 1 << 16) -> tuple[int]:
    """Return the grid of a kernel that takes a thread for each of `count` things, or strides over them."""
    return (min(most, math.ceil(count / THREADS)),)


def part_blocks(count: int) -> int:
    """Return how many blocks share a sum over `count` numbers: the same count, the same sum."""
    return max(1, min(MOST_PARTS, math.ceil(count / PART)))


def _conversions(signature: Signature) -> list[Callable[[Any], Any]]:
    """Return what turns each argument into what a launch takes: an array, or a number of the kernel's type."""
    return [_pointer if kind.endswith("*") else SCALARS[kind] for _, kind in signature.parameters]


def align(words: int) -> int:
    """Return the least multiple of ALIGNMENT that has room for so many words."""
    return -(-words // ALIGNMENT) * ALIGNMENT


def _pointer(array: Array | None) -> Any:
    return np.uint64(0) if array is None else array
