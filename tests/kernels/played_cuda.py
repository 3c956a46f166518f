"""CUDA as CuPy's own code calls it, played by this process: for tests that are meant for a GPU, without one.

    python -m pytest -p tests.kernels.played_cuda -m gpu tests/nnlib/gpu

CuPy is the real one, so names, arguments and their order are checked by CuPy itself: streams, events, graphs, pools of
memory, how a launch packs its arguments. NVRTC is real, too. What lies below is played: Cython modules call each other
through the capsules of `__pyx_capi__`, and those of CUDA's runtime and driver are replaced before CuPy is imported.
Memory is this process's, streams are as lazy as those of standin.py, kernels run in the harness, and cuBLAS is a small
library with NVIDIA's prototypes, whose products NumPy computes (played_cublas.py), as NCCL is one (played_nccl.py).
cuDNN, where it is installed, is the real one up to what it executes (played_cudnn.py).
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nnlib.gpu.kernels import FAMILIES, source
from nnlib.gpu.maps import cudnn
from tests.kernels import played_cublas, played_cudnn, played_nccl_library
from tests.kernels.library import SCALARS, Kernel, family, signatures
from tests.kernels.standin import FILL, GUARD, Event, Graph, Stream

CAPABILITY = 9, 0
MAJOR, MINOR = 75, 76  # cudaDevAttrComputeCapabilityMajor and -Minor
NON_BLOCKING, NOT_READY = 1, 600  # a flag of streams; cudaErrorNotReady
MEMORY = 8 << 30  # bytes that the device says it has
ALIGNED = 512  # bytes: where cudaMalloc's memory starts
TYPES: dict[str, Any] = {
    "PyObject *": ctypes.py_object,
    "intptr_t": ctypes.c_ssize_t,
    "size_t": ctypes.c_size_t,
    "int": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "cudaMemcpyKind": ctypes.c_int,
    "float": ctypes.c_float,
}
CAPSULE = re.compile(r"(?P<result>PyObject \*|[\w ]+?) ?\((?P<parameters>.*)\)")


class PlayedError(AssertionError):
    """CUDA was asked for what it does not do, or what is not played."""


class Device:
    """One GPU: its memory, and what was made on it, by handle."""

    def __init__(self) -> None:
        self.memory: dict[int, tuple[np.ndarray, int]] = {}
        self.made: dict[int, Any] = {}
        self.failures: list[str] = []
        eager = Stream(non_blocking=True)
        Stream.by_pointer[0] = eager  # the default stream, which nothing here relies on
        eager.ask = lambda work: work()  # type: ignore[method-assign]

    def keep(self, thing: Any) -> int:
        """Return a handle of something."""
        self.made[id(thing)] = thing
        return id(thing)

    def drop(self, handle: int) -> None:
        del self.made[handle]

    def take(self, size: int, *_: int) -> int:
        """Memory with guards around it, poisoned; none may be taken while a graph is captured."""
        assert all(stream.recorded is None for stream in Stream.by_pointer.values()), "memory is taken during a capture"
        room = np.full(size + 2 * GUARD + ALIGNED, FILL, np.uint8)
        begin = -(int(room.ctypes.data) + GUARD) % ALIGNED
        whole = room[begin : begin + size + 2 * GUARD]
        place = int(whole.ctypes.data) + GUARD
        self.memory[place] = whole, size
        return place

    def give(self, place: int) -> None:
        for stream in list(Stream.by_pointer.values()):
            stream.synchronize()
        self._check(*self.memory.pop(place))

    def check(self) -> None:
        """Assert that everything went well, and that nothing was written beside the memory that was taken."""
        failures, self.failures = self.failures, []
        assert not failures, "\n".join(failures)
        for pair in self.memory.values():
            self._check(*pair)

    @staticmethod
    def _check(whole: np.ndarray, size: int) -> None:
        assert (whole[:GUARD] == FILL).all(), "written before what was taken"
        assert (whole[GUARD + size :] == FILL).all(), "written behind what was taken"


DEVICE = Device()


def create_stream(flags: int, priority: int = 0) -> int:
    assert flags == NON_BLOCKING, "graphs cannot be captured on the default stream, nor beside it"
    return int(Stream(non_blocking=True).ptr)


def copy(target: int, origin: int, count: int, kind: int, stream: int) -> None:
    assert kind in (1, 2, 3), "a direction"
    Stream.by_pointer[stream].ask(lambda: ctypes.memmove(target, origin, count))


def copy_rows(target: int, to: int, origin: int, apart: int, width: int, rows: int, kind: int, stream: int) -> None:
    for row in range(rows):
        copy(target + row * to, origin + row * apart, width, kind, stream)


def fill(place: int, value: int, count: int, stream: int) -> None:
    Stream.by_pointer[stream].ask(lambda: ctypes.memset(place, value, count))


def query(event: int) -> int:
    return 0 if DEVICE.made[event].done else NOT_READY


def load(path: str) -> int:
    """Take machine code that NVRTC made: the harness has the same kernels, by the family in the name of the file."""
    code = Path(path).read_bytes()
    assert code.startswith(b"\x7fELF"), "machine code"
    name, _, rest = Path(path).name.partition("-")
    assert rest.startswith("sm_{}{}-".format(*CAPABILITY))
    return DEVICE.keep(SimpleNamespace(library=family(name), code=code))


def load_data(code: bytes) -> int:
    """The same of machine code in memory: the family is the one whose kernels are all in it."""
    assert code.startswith(b"\x7fELF"), "machine code"
    names = {name: signatures(source(name)) for name in FAMILIES}
    found = [name for name, kernels in names.items() if all(one.encode() + b"\0" in code for one in kernels)]
    if not found:
        raise PlayedError("kernels that are none of nnlib's cannot be played")
    return DEVICE.keep(SimpleNamespace(library=family(found[0]), code=code))


def find(module: int, name: str) -> int:
    held = DEVICE.made[module]
    assert name.encode() + b"\0" in held.code, f"{name} is no symbol of the machine code"
    return DEVICE.keep(held.library.kernel(name))


def launch(function: int, *numbers: int) -> None:
    """Take a copy of the arguments, as CUDA does, and run the kernel when its turn comes."""
    *shape, shared, stream, places, extra = numbers
    kernel: Kernel = DEVICE.made[function]
    assert not extra
    pointers = ctypes.cast(places, ctypes.POINTER(ctypes.c_void_p))
    values = [_value(parameter, pointers[n] or 0) for n, parameter in enumerate(kernel.parameters)]
    Stream.by_pointer[stream].ask(lambda: kernel(shape[:3], shape[3:], values, shared))


def _value(parameter: Any, place: int) -> Any:
    kind = np.uint64 if parameter.pointer else SCALARS[parameter.type]
    found = np.frombuffer(ctypes.string_at(place, np.dtype(kind).itemsize), kind)[0]
    if not parameter.pointer:
        return found
    return SimpleNamespace(ctypes_pointer=int(found)) if found else None


def properties(device: int) -> dict[str, Any]:
    numbers = {
        "totalGlobalMem": MEMORY,
        "l2CacheSize": 1 << 20,
        "multiProcessorCount": 1,
        "sharedMemPerBlock": 48 << 10,
    }
    numbers |= {"maxThreadsPerMultiProcessor": 2048, "maxThreadsPerBlock": 1024, "major": CAPABILITY[0]}
    return {"name": b"played", "uuid": bytes(range(1, 17)), "minor": CAPABILITY[1]} | numbers


def elapsed(begin: int, end: int) -> float:
    assert DEVICE.made[begin].mark["done"]
    assert DEVICE.made[end].mark["done"]
    return 1.0


RUNTIME: dict[str, Callable[..., Any]] = {
    "_ensure_context": lambda: None,
    "deviceGetAttribute": lambda attribute, _: CAPABILITY[{MAJOR: 0, MINOR: 1}[attribute]],
    "deviceSynchronize": lambda: [stream.synchronize() for stream in list(Stream.by_pointer.values())] and None,
    "driverGetVersion": lambda: 13000,
    "eventCreateWithFlags": lambda flags: DEVICE.keep(Event()),
    "eventDestroy": DEVICE.drop,
    "eventElapsedTime": elapsed,
    "eventQuery": query,
    "eventRecord": lambda event, stream: DEVICE.made[event].record(Stream.by_pointer[stream]),
    "eventSynchronize": lambda event: DEVICE.made[event].synchronize(),
    "free": DEVICE.give,
    "freeHost": DEVICE.give,
    "getDevice": lambda: 0,
    "getDeviceCount": lambda: 1,
    "getDeviceProperties": properties,
    "graphDestroy": DEVICE.drop,
    "graphExecDestroy": DEVICE.drop,
    "graphInstantiate": lambda graph: DEVICE.keep(Graph(DEVICE.made[graph].works)),
    "graphLaunch": lambda graph, stream: DEVICE.made[graph].launch(Stream.by_pointer[stream]),
    "hostAlloc": DEVICE.take,
    "malloc": DEVICE.take,
    "memGetInfo": lambda: (MEMORY // 2, MEMORY),
    "memcpy2DAsync": copy_rows,
    "memcpyAsync": copy,
    "memsetAsync": fill,
    "pointerGetMemoryType": lambda place: 0,  # that of this machine which is not pinned
    "setDevice": lambda device: None,
    "streamBeginCapture": lambda stream: Stream.by_pointer[stream].begin_capture(),
    "streamCreateWithFlags": create_stream,
    "streamCreateWithPriority": create_stream,
    "streamDestroy": lambda stream: Stream.by_pointer.pop(stream) and None,
    "streamEndCapture": lambda stream: DEVICE.keep(Stream.by_pointer[stream].end_capture()),
    "streamIsCapturing": lambda stream: int(Stream.by_pointer[stream].recorded is not None),
    "streamSynchronize": lambda stream: Stream.by_pointer[stream].synchronize(),
    "streamWaitEvent": lambda stream, event: Stream.by_pointer[stream].wait_event(DEVICE.made[event]),
}
DRIVER: dict[str, Callable[..., Any]] = {
    "launchKernel": launch,
    "moduleGetFunction": find,
    "moduleLoad": load,
    "moduleLoadData": load_data,
    "moduleUnload": DEVICE.drop,
}
_kept: list[Any] = []  # what C holds


def install() -> None:
    """Replace what CuPy calls of CUDA; before CuPy is imported."""
    assert "cupy" not in sys.modules, "CuPy has already taken the functions that are to be replaced"
    from cupy_backends.cuda.api import driver, runtime

    played_cublas.install(DEVICE)
    played_nccl_library.install(DEVICE)
    cudnn.find_library = played_cudnn.played
    for module, played in ((runtime, RUNTIME), (driver, DRIVER)):
        for name in module.__pyx_capi__:
            _replace(module, name, played.get(name, functools.partial(_refuse, name)))
        for name, work in played.items():
            setattr(module, name, _as_documented(getattr(module, name), work) if hasattr(module, name) else work)


def _refuse(name: str, *arguments: Any) -> Any:
    raise PlayedError(f"{name}{arguments} of CUDA is not played")


def _replace(module: Any, name: str, work: Callable[..., Any]) -> None:
    """Put a function in place of one that Cython modules get from this module; others than functions stay."""
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    signature: bytes = api.PyCapsule_GetName(module.__pyx_capi__[name])
    found = CAPSULE.fullmatch(signature.decode())
    parts = [part.strip() for part in found["parameters"].split(",")] if found else []
    own = [part for part in parts if part != "void" and "__pyx_" not in part]
    if not found or found["result"] not in TYPES or not set(own) <= set(TYPES):
        return
    hidden = [ctypes.c_void_p if "opt_args" in part else ctypes.c_int for part in parts if "__pyx_" in part]
    result, count = found["result"], len(own)

    def called(*given: Any) -> Any:
        try:
            return work(*given[:count])
        except BaseException:  # C cannot pass it on
            DEVICE.failures.append(f"{name}{given[:count]}\n{traceback.format_exc()}")
            return None if result == "PyObject *" else 0

    function = ctypes.CFUNCTYPE(TYPES[result], *(TYPES[part] for part in own), *hidden)(called)
    _kept.append((function, signature))
    pointer = ctypes.cast(function, ctypes.c_void_p)
    module.__pyx_capi__[name] = api.PyCapsule_New(pointer, signature, None)


def _as_documented(original: Any, work: Callable[..., Any]) -> Callable[..., Any]:
    """Return `work` with the parameters that the first line of CuPy's documentation has, all of them numbers."""
    inside = re.search(r"\((.*?)\)", original.__doc__.splitlines()[0])
    assert inside
    names = [part.partition("=")[0].split()[-1] for part in inside[1].split(",") if part.strip()]
    signature = inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])

    def called(*arguments: Any, **named: Any) -> Any:
        return work(*(number.__index__() for number in signature.bind(*arguments, **named).args))

    return called


@pytest.fixture(autouse=True)
def _played() -> Iterator[None]:
    """Every test ends with what CUDA was asked for having gone well."""
    yield
    DEVICE.check()
    import cupy

    # CuPy keeps what is free for the stream that had it, and each engine has one of its own: 33 MB a test.
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()


install()
