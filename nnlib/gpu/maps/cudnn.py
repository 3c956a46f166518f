"""Convolutions by cuDNN where NNLIB_CONVOLUTIONS asks for it, by engines that give the same bits each time.

NVIDIA's library itself is called, by its graph API (cudnn_graph.h, from 9.8 on): its Python frontend would bring half a
gigabyte of compilers, and engines of its own beside the library's. A graph is one convolution of float32, maps as NCHW,
with the bias where it goes forward. Which engine computes it follows from sizes, the library's version and the kind of
GPU alone, as its heuristics, which launch nothing, rank them; results name it. Where none is left, nnlib's own do it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnlib.errors import MachineError, NnlibError
from nnlib.gpu.maps.cudnn_descriptors import Descriptors, NotSupportedError
from nnlib.spec.geometry import Sweep, Window

VARIABLE = "NNLIB_CONVOLUTIONS"
OWN, CUDNN = NAMES = ("own", "cudnn")
LIBRARY, LEAST = "libcudnn.so.9", 90800  # the first that plans for the properties of a device
INSTALL = "install regiondag[cudnn-cuda13] or regiondag[cudnn-cuda12]"
WORKSPACE = 256 << 20  # bytes that an engine may take at most
FORWARD, TO_SOURCE, TO_WEIGHTS = KINDS = ("forward", "input gradient", "weight gradient")
FIRST, SECOND, RESULT, BIAS, SUMS = range(1, 6)  # numbers of a graph's tensors
ALIGNED, OF_NUMBER = 16, 4  # bytes at whose multiples arrays start: of examples as long as that, and of others

# How a kind of convolution is called there, by its descriptor and by its attributes, and which tensors it takes.
OPERATIONS = {
    FORWARD: ("FORWARD", "FORWARD", {"W": SECOND, "X": FIRST, "Y": RESULT}),
    TO_SOURCE: ("BACKWARD_DATA", "BWD_DATA", {"W": SECOND, "DX": RESULT, "DY": FIRST}),
    TO_WEIGHTS: ("BACKWARD_FILTER", "BWD_FILTER", {"DW": RESULT, "X": FIRST, "DY": SECOND}),
}
DATA_FLOAT, CROSS_CORRELATION, ADD = 0, 1, 0
HEURISTICS = {"A": 3, "FALLBACK": 2}
NOTES = {
    "TENSOR_CORE": 0,
    "DOWN_CONVERT_INPUTS": 1,
    "REDUCED_PRECISION_REDUCTION": 2,
    "FFT": 3,
    "NONDETERMINISTIC": 4,
    "WINOGRAD": 5,
    "WINOGRAD_TILE_4x4": 6,
    "WINOGRAD_TILE_6x6": 7,
    "WINOGRAD_TILE_13x13": 8,
}  # of engines that are not taken, but for the first with TF32: what is left adds up products of float32 in one order


@dataclass(frozen=True)
class Task:
    """A convolution to plan: one of KINDS, of so many examples; `add` to what is there, TF32 with `tensor_cores`."""

    kind: str
    sweep: Sweep
    size: int
    add: bool
    tensor_cores: bool


@dataclass(frozen=True)
class Plan:
    """How cuDNN computes a task: its descriptor, bytes of room, the engine with its settings, and ALIGNED or less."""

    descriptor: int
    workspace: int
    engine: str
    aligned: int


def asked() -> bool:
    """Whether cuDNN is to compute convolutions; NnlibError when the variable says something else."""
    wanted = os.environ.get(VARIABLE, OWN).lower() or OWN
    if wanted not in NAMES:
        raise NnlibError(f"{VARIABLE}: {wanted!r} is not legal, legal: {', '.join(NAMES)}")
    return wanted == CUDNN


def find_library() -> Any:
    """Return cuDNN: that of its Python package, else what the loader finds; MachineError when it is not here."""
    found = importlib.util.find_spec("nvidia")
    places = [Path(place) / "cudnn/lib" / LIBRARY for place in (found and found.submodule_search_locations) or ()]
    try:
        library = ctypes.CDLL(str(next((place for place in places if place.exists()), LIBRARY)))
    except OSError as error:
        raise MachineError(f"{VARIABLE} is {CUDNN}, and {error}; {INSTALL}") from error
    library.cudnnGetVersion.restype = ctypes.c_size_t
    if library.cudnnGetVersion() < LEAST:
        raise MachineError(f"cuDNN {_version(library)} is older than {LEAST // 10000}.{LEAST // 100 % 100}; {INSTALL}")
    return library


class Cudnn:
    """cuDNN on one stream of a GPU."""

    def __init__(self, library: Any, device: int | str, stream: int | None) -> None:
        """Plan for a device of this number, or of these properties as JSON; without a stream nothing can be run."""
        self._library, self.descriptors = library, Descriptors(library)
        self._plans, self._handle = dict[Task, Plan | None](), ctypes.c_void_p()
        self._kept: list[int] = []  # what plans are made of
        name = "DEVICE_ID" if isinstance(device, int) else "JSON_REPRESENTATION"
        value = [device] if isinstance(device, int) else device.encode()
        self._device = self.descriptors.make("DEVICEPROP", **{f"DEVICEPROP_{name}": value})
        if stream is not None:
            self.descriptors.call("cudnnCreate", ctypes.byref(self._handle))
            self.descriptors.call("cudnnSetStream", self._handle, ctypes.c_void_p(stream))

    @property
    def versions(self) -> dict[str, str]:
        """What a result says of it: its version, and the engines that were chosen."""
        chosen = sorted({f"{task.kind} {plan.engine}" for task, plan in self._plans.items() if plan})
        return {"cudnn": _version(self._library)} | ({"cudnn engines": ", ".join(chosen)} if chosen else {})

    def plan(self, task: Task) -> Plan | None:
        """Return how to compute a task in WORKSPACE bytes, None when that cannot be."""
        if task not in self._plans:
            self._plans[task] = self._choose(task)
        return self._plans[task]

    def run(self, plan: Plan, tensors: Sequence[int], workspace: int) -> None:
        """Compute a plan on the stream: pointers of the first, second, third tensor and the bias; and the room."""
        assert not any(pointer % plan.aligned for pointer in tensors), "arrays start where cuDNN was told they would"
        pack = self.descriptors.make(
            "VARIANT_PACK",
            VARIANT_PACK_UNIQUE_IDS=range(FIRST, FIRST + len(tensors)),
            VARIANT_PACK_DATA_POINTERS=tensors,
            VARIANT_PACK_WORKSPACE=[workspace],
        )
        self.descriptors.call(
            "cudnnBackendExecute", self._handle, ctypes.c_void_p(plan.descriptor), ctypes.c_void_p(pack)
        )
        self.descriptors.destroy(pack)

    def close(self) -> None:
        """Give up what cuDNN holds, when nothing is under way any more."""
        self._plans.clear()
        for one in (*reversed(self._kept), self._device):
            self.descriptors.destroy(one)
        self._kept.clear()
        if self._handle:
            self.descriptors.call("cudnnDestroy", self._handle)

    def _choose(self, task: Task) -> Plan | None:
        allowed = {NOTES["TENSOR_CORE"]} if task.tensor_cores else set[int]()
        made: list[int] = []
        try:
            for config in self._ranked(self._graph(task, made), made):
                [engine] = self.descriptors.get_descriptors(config, "ENGINECFG_ENGINE", "ENGINE", 1, made)
                if set(self.descriptors.get(engine, "ENGINE_NUMERICAL_NOTE", 32)) & set(NOTES.values()) - allowed:
                    continue
                try:
                    of_device = {"EXECUTION_PLAN_DEVICEPROP": [self._device]}
                    plan = self.descriptors.make("EXECUTION_PLAN", EXECUTION_PLAN_ENGINE_CONFIG=[config], **of_device)
                except NotSupportedError:
                    continue
                [workspace] = self.descriptors.get(plan, "EXECUTION_PLAN_WORKSPACE_SIZE", 1)
                made.append(plan)
                if workspace <= WORKSPACE:
                    self._kept += made
                    made.clear()
                    return Plan(plan, workspace, self._engine(plan), _alignment(task.sweep))
        except NotSupportedError:
            pass  # as of a graph that no engine computes
        finally:
            for one in reversed(made):
                self.descriptors.destroy(one)
        return None

    def _graph(self, task: Task, made: list[int]) -> int:
        sweep, windows = task.sweep, _spatial(task.sweep.windows)
        x = task.size, sweep.source.channels, *(one.size for one in windows)
        w = sweep.target.channels, sweep.source.channels // sweep.groups, *(one.kernel for one in windows)
        y = task.size, sweep.target.channels, *(one.out for one in windows)
        shapes = {FORWARD: (x, w, y), TO_SOURCE: (y, w, x), TO_WEIGHTS: (x, y, w)}[task.kind]

        def make(kind: str, **attributes: Any) -> int:
            made.append(self.descriptors.make(kind, **attributes))
            return made[-1]

        def tensor(number: int, shape: Sequence[int], virtual: bool = False) -> int:
            return make(
                "TENSOR",
                TENSOR_BYTE_ALIGNMENT=[_alignment(sweep)],
                TENSOR_DATA_TYPE=[DATA_FLOAT],
                TENSOR_DIMENSIONS=shape,
                TENSOR_STRIDES=[math.prod(shape[n + 1 :]) for n in range(len(shape))],
                TENSOR_UNIQUE_ID=[number],
                TENSOR_IS_VIRTUAL=[virtual],
            )

        tensors = {n: tensor(n, shape) for n, shape in zip((FIRST, SECOND, RESULT), shapes, strict=True)}
        result = tensors[RESULT]
        if task.kind == FORWARD:
            tensors[RESULT] = tensor(SUMS, y, virtual=True)
        convolution = make(
            "CONVOLUTION",
            CONVOLUTION_COMP_TYPE=[DATA_FLOAT],
            CONVOLUTION_CONV_MODE=[CROSS_CORRELATION],
            CONVOLUTION_SPATIAL_DIMS=[len(windows)],
            CONVOLUTION_DILATIONS=[one.dilation for one in windows],
            CONVOLUTION_FILTER_STRIDES=[one.stride for one in windows],
            CONVOLUTION_PRE_PADDINGS=[one.low for one in windows],
            CONVOLUTION_POST_PADDINGS=[_behind(one) for one in windows],
        )
        kind, short, parts = OPERATIONS[task.kind]
        named = {"CONV_DESC": [convolution], "ALPHA": [1.0], "BETA": [float(task.add)]}
        named |= {name: [tensors[number]] for name, number in parts.items()}
        attributes = {f"OPERATION_CONVOLUTION_{short}_{name}": value for name, value in named.items()}
        operations = [make(f"OPERATION_CONVOLUTION_{kind}", **attributes)]
        if task.kind == FORWARD:
            adding = make("POINTWISE", POINTWISE_MODE=[ADD], POINTWISE_MATH_PREC=[DATA_FLOAT])
            bias = tensor(BIAS, (1, y[1], *(1,) * len(windows)))
            named = {"PW_DESCRIPTOR": [adding], "XDESC": [tensors[RESULT]], "BDESC": [bias], "YDESC": [result]}
            attributes = {f"OPERATION_POINTWISE_{name}": value for name, value in named.items()}
            operations.append(make("OPERATION_POINTWISE", **attributes))
        return make("OPERATIONGRAPH", OPERATIONGRAPH_OPS=operations)

    def _ranked(self, graph: int, made: list[int]) -> Iterator[int]:
        """Yield engines with their settings, the best first."""
        for mode in HEURISTICS.values():
            about = {"ENGINEHEUR_OPERATION_GRAPH": [graph], "ENGINEHEUR_DEVICEPROP": [self._device]}
            try:
                made.append(self.descriptors.make("ENGINEHEUR", ENGINEHEUR_MODE=[mode], **about))
            except NotSupportedError:
                continue
            ranked = made[-1]
            found = self.descriptors.count(ranked, "ENGINEHEUR_RESULTS")
            yield from self.descriptors.get_descriptors(ranked, "ENGINEHEUR_RESULTS", "ENGINECFG", found, made)

    def _engine(self, plan: int) -> str:
        """Return the engine of a plan with its settings, such as `38 SPLIT_K=2`."""
        found = self.read(plan)["engine"]
        knobs = (f"{name.removeprefix('CUDNN_KNOB_TYPE_')}={value}" for name, value in found["knobChoices"].items())
        return " ".join([str(found["engineId"]), *knobs])

    def read(self, plan: int) -> Any:
        """Return a plan as cuDNN writes it down."""
        return json.loads(
            bytes(self.descriptors.get(plan, "EXECUTION_PLAN_JSON_REPRESENTATION", 1 << 20)).rstrip(b"\0")
        )


def _spatial(windows: Sequence[Window]) -> tuple[Window, ...]:
    """Return the windows of two axes or three, as cuDNN wants them."""
    return (*(Window(1, 1),) * (2 - len(windows)), *windows)


def _alignment(sweep: Sweep) -> int:
    """Return where arrays of examples may start: by sizes alone, whichever examples a rank of several has."""
    return OF_NUMBER if (sweep.source.units | sweep.target.units) % (ALIGNED // OF_NUMBER) else ALIGNED


def _behind(window: Window) -> int:
    """Return the zeros behind an axis that the last place of a kernel reaches; cuDNN wants no less than none."""
    return max(0, (window.out - 1) * window.stride + window.span - window.size - window.low)


def _version(library: Any) -> str:
    number = library.cudnnGetVersion()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
