"""cuDNN without a GPU: NVIDIA's own plans, for the properties of a device; what it would launch NumPy computes.

The library is the real one, so graphs, engines, what is said of them, workspaces and packs of pointers are checked by
it. The driver beside it has every function that cuDNN looks for, which complains of others at each plan: it loads the
programs of engines and refuses all else. What is executed is read from the plan as cuDNN keeps it.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nnlib.gpu.maps import cudnn
from nnlib.gpu.maps.cudnn import BIAS, FIRST, RESULT, SECOND
from nnlib.gpu.maps.cudnn_descriptors import ATTRIBUTES
from nnlib.ops import convolution
from nnlib.spec.geometry import Maps, Sweep, Window
from tests.kernels.standin import FILL, Stream

REFUSE = """
    CtxGetCurrent CtxGetLimit CtxPopCurrent CtxPushCurrent DeviceGet DeviceGetCount DriverGetVersion GetErrorName
    GetErrorString KernelGetAttribute KernelSetAttribute LaunchCooperativeKernel LaunchKernel LaunchKernelEx
    LibraryLoadFromFile LinkAddData LinkComplete LinkCreate LinkDestroy OccupancyMaxPotentialClusterSize StreamGetCtx
    TensorMapEncodeIm2col TensorMapEncodeTiled
"""
# Some engines load their program when they are planned; what is loaded is written to the first argument.
LOAD = "KernelGetFunction LibraryGetKernel LibraryLoadData ModuleGetFunction ModuleLoadData"
UNLOAD = "LibraryUnload ModuleUnload"
DRIVER = (
    (REFUSE, "int cu{}(void) {{ return 999; }}"),
    (LOAD, "int cu{}(void **loaded) {{ static int it; *loaded = &it; return 0; }}"),
    (UNLOAD, "int cu{}(void) {{ return 0; }}"),
)
# Multiprocessors and shared memory of a block: A100, H100, B200.
find_library = cudnn.find_library  # NVIDIA's, whatever is put in its place
DEVICES = {80: (108, 166912), 90: (132, 232448), 100: (148, 232448)}
IDS, POINTERS, ROOM = (ATTRIBUTES[f"VARIANT_PACK_{name}"][0] for name in ("UNIQUE_IDS", "DATA_POINTERS", "WORKSPACE"))


def properties(capability: int) -> str:
    """Return a device as cuDNN writes it down."""
    processors, shared = DEVICES[capability]
    sizes = {"maxGridSize": [(1 << 31) - 1, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536}
    sizes |= {"multiProcessorCount": processors, "smCountOrigin": 0, "warpSize": 32, "maxSharedMemoryPerBlock": 49152}
    sizes |= {"maxSharedMemoryPerBlockOptin": shared, "oversizedSharedMemoryPerBlock": 0}
    sizes |= {"reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32}
    sizes |= {"maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0}
    sizes |= {"supportCoopLaunch": 1, "totalGlobalMem": 80 << 30, "smClockRateKHz": 1_700_000, "cudaDeviceId": 0}
    sizes |= {"memClockRateKHz": 2_600_000, "memoryBusWidth": 5120, "l2CacheSize": 50 << 20, "sharedMemoryLimit": 0}
    return json.dumps({**sizes, "deviceVer": 10 * capability, "driverVer": 13000, "deviceName": "played"})


@cache
def library() -> Any:
    """Return the real cuDNN, beside a driver that runs nothing; MachineError when it is not here."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "libcuda.so.1"
        text = "".join(f"{form.format(name)}\n" for names, form in DRIVER for name in names.split())
        options = ["-shared", "-fPIC", "-x", "c", "-", f"-Wl,-soname,{path.name}", "-o", str(path)]
        subprocess.run(["gcc", *options], input=text, text=True, check=True)
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    return find_library()


@cache
def played() -> Any:
    """Return cuDNN for a GPU that is played."""
    return Played()


class Played:
    """cuDNN on a GPU with two properties changed: it is none, and what is executed is asked of a lazy stream."""

    def __init__(self) -> None:
        self._real, self._streams = library(), dict[int, int]()
        self._packed: dict[int, dict[int, list[int]]] = {}  # what was put into packs, which cuDNN does not tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def cudnnBackendSetAttribute(self, place: Any, name: Any, form: Any, count: Any, values: Any) -> int:
        if name.value in (IDS, POINTERS, ROOM):
            self._packed.setdefault(place.value, {})[name.value] = list(values)
        if name.value == ATTRIBUTES["DEVICEPROP_DEVICE_ID"][0]:
            assert list(values) == [0]
            text = properties(90).encode()
            number, kind, _ = ATTRIBUTES["DEVICEPROP_JSON_REPRESENTATION"]
            name, form, count, values = ctypes.c_int(number), ctypes.c_int(kind), ctypes.c_int64(len(text)), text
        return int(self._real.cudnnBackendSetAttribute(place, name, form, count, values))

    def cudnnCreate(self, handle: Any) -> int:
        handle._obj.value = 1 + len(self._streams)
        self._streams[handle._obj.value] = 0
        return 0

    def cudnnSetStream(self, handle: Any, stream: Any) -> int:
        assert stream.value in Stream.by_pointer
        self._streams[handle.value] = stream.value
        return 0

    def cudnnDestroy(self, handle: Any) -> int:
        del self._streams[handle.value]
        return 0

    def cudnnBackendExecute(self, handle: Any, plan: Any, pack: Any) -> int:
        """Read pointers from the pack and the work from the plan; compute when the stream comes to it."""
        reader = cudnn.Cudnn(self._real, properties(90), None)
        graph = reader.read(plan.value)["operationGraph"]
        [needed] = reader.descriptors.get(plan.value, "EXECUTION_PLAN_WORKSPACE_SIZE", 1)
        reader.close()
        packed = self._packed.pop(pack.value)
        pointers, [workspace] = dict(zip(packed[IDS], packed[POINTERS], strict=True)), packed[ROOM]
        tensors = {int(one["name"]): one for one in graph["tensors"]}
        assert set(pointers) == {number for number, one in tensors.items() if not one["isVirtual"]}
        arrays = {number: _array(place, tensors[number]) for number, place in pointers.items()}

        def work() -> None:
            ctypes.memset(workspace, FILL, needed)
            _compute(graph["nodes"], {number: one["dim"] for number, one in tensors.items()}, arrays)

        Stream.by_pointer[self._streams[handle.value]].ask(work)
        return 0


def _array(place: int, tensor: dict[str, Any]) -> Any:
    """Return a tensor in memory, which must be packed."""
    shape, array = tensor["dim"], np.ctypeslib.as_array
    assert tensor["dataType"] == "CUDNN_DATA_FLOAT"
    assert place % tensor["ptrAlignment"] == 0
    assert tensor["stride"] == [int(np.prod(shape[n + 1 :])) for n in range(len(shape))]
    return array(ctypes.cast(place, ctypes.POINTER(ctypes.c_float)), shape)


def _compute(nodes: list[dict[str, Any]], shapes: dict[int, list[int]], arrays: dict[int, Any]) -> None:
    moved = nodes[0]
    x, w, y = (int(moved[name] if name in moved else moved[f"d{name}"]) for name in "XWY")
    low, high = (moved[f"pad_{side}" if f"pad_{side}" in moved else "pad"] for side in ("lower", "upper"))
    axes = zip(shapes[x][2:], shapes[w][2:], moved["stride"], low, high, moved["dilation"], strict=True)
    windows = tuple(Window(*axis) for axis in axes)
    assert [window.out for window in windows] == shapes[y][2:]
    source, target = Maps(shapes[x][1], tuple(shapes[x][2:])), Maps(shapes[y][1], tuple(shapes[y][2:]))
    sweep = Sweep(source, target, windows, shapes[x][1] // shapes[w][1])
    kind = moved["operation"].removeprefix("CUDNN_BACKEND_OPERATION_CONVOLUTION_").removesuffix("_DESCRIPTOR")
    ways: dict[str, Callable[..., Any]] = {
        "FORWARD": convolution.forward,
        "BACKWARD_DATA": convolution.input_gradient,
        "BACKWARD_FILTER": convolution.weight_gradient,
    }
    shaped = shapes[SECOND][0], -1  # of weights: (channels above, fan in); of maps: (examples, units)
    found = ways[kind](arrays[FIRST].reshape(len(arrays[FIRST]), -1), arrays[SECOND].reshape(shaped), sweep)
    found = found.reshape(shapes[RESULT])
    if len(nodes) > 1:
        assert (nodes[1]["pointwiseMode"], int(nodes[1]["B"]), int(nodes[1]["Y"])) == (
            "CUDNN_POINTWISE_ADD",
            BIAS,
            RESULT,
        )
        found = found + arrays[BIAS]
    arrays[RESULT][...] = moved["alpha"] * found + (moved["beta"] * arrays[RESULT] if moved["beta"] else 0)
