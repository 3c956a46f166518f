"""A stand-in for CuPy: the GPU backend's arrays, streams, events, graphs and RawModule, on the CPU by way of the shim.

Streams are lazy on purpose: what is asked of one is done when somebody waits for it, or when another stream waits for
an event behind it. So a wait that was forgotten, or pinned memory that is filled again too early, gives wrong numbers.
Memory has guard zones (`check`), nothing may be allocated or waited for while a graph is captured, and a launch must
fit the kernel's signature.
"""

from __future__ import annotations

import atexit
import ctypes
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from nnlib.gpu.kernels import FAMILIES, ensure_cubin
from nnlib.gpu.runtime import Runtime
from nnlib.ops.bf16 import from_bf16
from tests.kernels.library import compiled

GUARD, FILL = 256, 0xA5


class Array(np.ndarray):
    """Memory of the device; what NumPy does with it counts as done by nobody."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


class Current(threading.local):
    """The streams that a thread is in."""

    def __init__(self) -> None:
        self.streams: list[Any] = []


class Stream:
    current: ClassVar[Current] = Current()
    by_pointer: ClassVar[dict[int, Any]] = {}

    def __init__(self, non_blocking: bool = False) -> None:
        assert non_blocking, "graphs cannot be captured on the default stream"
        self.waiting: deque[Callable[[], None]] = deque()
        self.turn = threading.RLock()  # whoever waits does what is waiting, and none goes on while another is at it
        self.recorded: list[Callable[[], None]] | None = None
        self.ptr = id(self)
        Stream.by_pointer[self.ptr] = self

    def __enter__(self) -> Stream:
        Stream.current.streams.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Stream.current.streams.pop()

    def ask(self, work: Callable[[], None]) -> None:
        (self.waiting if self.recorded is None else self.recorded).append(work)

    def step(self) -> None:
        with self.turn:
            if self.waiting:
                self.waiting.popleft()()

    def synchronize(self) -> None:
        assert self.recorded is None, "a stream cannot be waited for while it is captured"
        with self.turn:
            while self.waiting:
                self.step()

    def wait_event(self, event: Event) -> None:
        mark = event.mark
        self.ask(lambda: event.finish(mark))

    def begin_capture(self) -> None:
        assert self.recorded is None
        self.recorded = []

    def end_capture(self) -> Graph:
        assert self.recorded is not None
        graph, self.recorded = Graph(self.recorded), None
        return graph


class Graph:
    def __init__(self, works: list[Callable[[], None]]) -> None:
        self.works = works

    def launch(self, stream: Stream) -> None:
        for work in self.works:
            stream.ask(work)


class Event:
    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self.mark: dict[str, Any] = {"done": True}

    def record(self, stream: Stream) -> None:
        mark = self.mark = {"done": False, "stream": stream}
        stream.ask(lambda: mark.update(done=True))

    def finish(self, mark: dict[str, Any]) -> None:
        while not mark["done"]:
            mark["stream"].step()

    def synchronize(self) -> None:
        self.finish(self.mark)

    @property
    def done(self) -> bool:
        if not self.mark["done"]:
            self.mark["stream"].step()  # time goes by
        return bool(self.mark["done"])


class Products:
    """NumPy in place of cuBLAS."""

    def __init__(self, cupy: Any, stream: Stream, precision: str) -> None:
        self._stream, self._halves = stream, precision == "bf16"

    def __call__(self, a: Array, b: Array, out: Array, flip: tuple[bool, bool], add: bool, scale: float) -> None:
        assert a.dtype == b.dtype == (np.uint16 if self._halves else np.float32)
        left, right = (x.T if turned else x for x, turned in zip((a, b), flip, strict=True))
        numbers = from_bf16 if self._halves else np.asarray
        assert out.shape == (left.shape[0], right.shape[1])
        assert left.shape[1] == right.shape[0]

        def work() -> None:
            product = numbers(np.asarray(left)) @ numbers(np.asarray(right)) * np.float32(scale)
            out[...] = product + np.asarray(out) if add else product

        self._stream.ask(work)

    def close(self) -> None:
        assert not self._stream.waiting


class Cupy:
    """What `nnlib.gpu` uses of CuPy."""

    __version__ = "stand-in"

    def __init__(self) -> None:
        self.memory: list[tuple[np.ndarray, int]] = []
        self.taken = 0  # bytes
        self.launched: list[str] = []
        runtime = SimpleNamespace(
            memcpyAsync=self._copy,
            memsetAsync=self._set,
            memcpy2DAsync=self._copy_rows,
            runtimeGetVersion=lambda: 13000,
            driverGetVersion=lambda: 13000,
            getDeviceProperties=lambda _: {"name": b"no GPU", "uuid": bytes(range(16)), "major": 9, "minor": 0},
        )
        self.cuda = SimpleNamespace(
            Stream=Stream,
            Event=Event,
            runtime=runtime,
            nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)),
            compiler=SimpleNamespace(compile_using_nvrtc=lambda code, options: (code.encode(), None)),
            alloc_pinned_memory=lambda size: np.full(size, FILL, np.uint8),
            memory=SimpleNamespace(OutOfMemoryError=MemoryError),
            Device=lambda: SimpleNamespace(id=0, compute_capability="stand-in"),
        )

    def is_available(self) -> bool:
        return True

    def runtime(self) -> Runtime:
        from tests.kernels import played_nccl  # which needs the streams of this module

        return Runtime(self, Products, folder(), lambda: played_nccl)

    def zeros(self, shape: Any, dtype: Any = np.float32) -> Array:
        stream = Stream.current.streams[-1]
        assert stream.recorded is None, "memory is taken before a graph is captured"
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        whole = np.full(size + 2 * GUARD, FILL, np.uint8)
        self.memory.append((whole, size))
        self.taken += size
        array: Array = whole[GUARD : GUARD + size].view(dtype).reshape(shape).view(Array)
        stream.ask(lambda: array.fill(0))
        return array

    def check(self) -> None:
        """Assert that nothing was written beside an array."""
        for whole, size in self.memory:
            assert (whole[:GUARD] == FILL).all()
            assert (whole[GUARD + size :] == FILL).all()

    def RawModule(self, path: str) -> Any:
        library = compiled(Path(path).read_text(encoding="utf-8"))
        return SimpleNamespace(get_function=lambda name: self._function(library.kernel(name)))

    def _function(self, kernel: Any) -> Callable[..., None]:
        def launch(grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> None:
            pairs = zip(kernel.parameters, args, strict=True)
            values = [_pointer(value) if parameter.pointer else value for parameter, value in pairs]
            self.launched.append(kernel.name)
            Stream.current.streams[-1].ask(lambda: kernel(grid, block, values))

        return launch

    def _copy(self, target: int, origin: int, count: int, kind: int, stream: int) -> None:
        Stream.by_pointer[stream].ask(lambda: _move(target, origin, count))

    def _copy_rows(self, target: int, to: int, origin: int, apart: int, width: int, rows: int, *more: int) -> None:
        for row in range(rows):
            self._copy(target + row * to, origin + row * apart, width, *more)

    def _set(self, target: int, value: int, count: int, stream: int) -> None:
        Stream.by_pointer[stream].ask(lambda: _bytes(target, count).fill(value))


@cache
def folder() -> Path:
    """Return the folder of this process for machine code."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    return folder


def write_kernels() -> None:
    """Write the kernels' files: threads must not do it at once, as processes may, which have names of their own."""
    for name in FAMILIES:
        ensure_cubin(Cupy(), name, folder())


def _pointer(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return SimpleNamespace(ctypes_pointer=value.ctypes.data, dtype=value.dtype, array=value)
    assert value == 0, "a null pointer is passed as 0"
    return None


def _move(target: int, origin: int, count: int) -> None:
    _bytes(target, count)[...] = _bytes(origin, count)


def _bytes(pointer: int, count: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(pointer))
