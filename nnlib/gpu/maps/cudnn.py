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
from nnlib.spec.geometry import Sweep, Window

VARIABLE = "NNLIB_CONVOLUTIONS"
OWN, CUDNN = NAMES = ("own", "cudnn")
LIBRARY, LEAST = "libcudnn.so.9", 90800  # the first that plans for the properties of a device
INSTALL = "install regiondag[cudnn-cuda13] or regiondag[cudnn-cuda12]"
WORKSPACE = 256 << 20  # bytes that an engine may take at most
FORWARD, TO_SOURCE, TO_WEIGHTS = KINDS = ("forward", "input gradient", "weight gradient")
FIRST, SECOND, RESULT, BIAS, SUMS = range(1, 6)  # numbers of a graph's tensors
ALIGNED, OF_NUMBER = 16, 4  # bytes at whose multiples arrays start: of examples as long as that, and of others

# Names and numbers of cudnn_graph_v9.h: types of values, kinds of descriptors, and their attributes with these types.
C_TYPES: dict[str, tuple[int, Any]] = {
    "DATA_TYPE": (1, ctypes.c_int),
    "BOOLEAN": (2, ctypes.c_bool),
    "INT64": (3, ctypes.c_int64),
    "FLOAT": (4, ctypes.c_float),
    "VOID_PTR": (6, ctypes.c_void_p),
    "CONVOLUTION_MODE": (7, ctypes.c_int),
    "HEUR_MODE": (8, ctypes.c_int),
    "NUMERICAL_NOTE": (11, ctypes.c_int),
    "POINTWISE_MODE": (14, ctypes.c_int),
    "BACKEND_DESCRIPTOR": (15, ctypes.c_void_p),
    "INT32": (23, ctypes.c_int),
    "CHAR": (24, ctypes.c_char),
}
DESCRIPTORS = {
    "POINTWISE": 0,
    "CONVOLUTION": 1,
    "ENGINE": 2,
    "ENGINECFG": 3,
    "ENGINEHEUR": 4,
    "EXECUTION_PLAN": 5,
    "OPERATION_CONVOLUTION_FORWARD": 10,
    "OPERATION_CONVOLUTION_BACKWARD_FILTER": 11,
    "OPERATION_CONVOLUTION_BACKWARD_DATA": 12,
    "OPERATION_POINTWISE": 13,
    "OPERATIONGRAPH": 15,
    "VARIANT_PACK": 16,
    "TENSOR": 17,
    "DEVICEPROP": 38,
}
NUMBERS = """
    POINTWISE_MODE 0 POINTWISE_MODE; POINTWISE_MATH_PREC 1 DATA_TYPE;
    CONVOLUTION_COMP_TYPE 100 DATA_TYPE; CONVOLUTION_CONV_MODE 101 CONVOLUTION_MODE;
    CONVOLUTION_DILATIONS 102 INT64; CONVOLUTION_FILTER_STRIDES 103 INT64;
    CONVOLUTION_POST_PADDINGS 104 INT64; CONVOLUTION_PRE_PADDINGS 105 INT64;
    CONVOLUTION_SPATIAL_DIMS 106 INT64; ENGINEHEUR_MODE 200 HEUR_MODE;
    ENGINEHEUR_OPERATION_GRAPH 201 BACKEND_DESCRIPTOR; ENGINEHEUR_RESULTS 202 BACKEND_DESCRIPTOR;
    ENGINEHEUR_DEVICEPROP 204 BACKEND_DESCRIPTOR; ENGINECFG_ENGINE 300 BACKEND_DESCRIPTOR;
    EXECUTION_PLAN_ENGINE_CONFIG 401 BACKEND_DESCRIPTOR;
    EXECUTION_PLAN_WORKSPACE_SIZE 402 INT64;
    EXECUTION_PLAN_JSON_REPRESENTATION 405 CHAR;
    EXECUTION_PLAN_DEVICEPROP 407 BACKEND_DESCRIPTOR;
    OPERATION_CONVOLUTION_FORWARD_ALPHA 700 FLOAT; OPERATION_CONVOLUTION_FORWARD_BETA 701 FLOAT;
    OPERATION_CONVOLUTION_FORWARD_CONV_DESC 702 BACKEND_DESCRIPTOR;
    OPERATION_CONVOLUTION_FORWARD_W 703 BACKEND_DESCRIPTOR;
    OPERATION_CONVOLUTION_FORWARD_X 704 BACKEND_DESCRIPTOR;
    OPERATION_CONVOLUTION_FORWARD_Y 705 BACKEND_DESCRIPTOR;
    OPERATION_CONVOLUTION_BWD_DATA_ALPHA 706 FLOAT; OPERATION_CONVOLUTION_BWD_DATA_BETA 707 FLOAT;
    OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC 708 BACKEND_DESCRIPTOR;
    OPERATION_CONVOLUTION_BWD_DATA_W 709 BACKEND_DESCRIPTOR;
    OPERATION_CONVOLUTION_BWD_DATA_DX 710 BACKEND_DESCRIPTOR;
    OPERATION_CONVOLUTION_BWD_DATA_DY 711 BACKEND_DESCRIPTOR;
    OPERATION_CONVOLUTION_BWD_FILTER_ALPHA 712 FLOAT; OPERATION_CONVOLUTION_BWD_FILTER_BETA 713 FLOAT;
    OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC 714 BACKEND_DESCRIPTOR;
    OPERATION_CONVOLUTION_BWD_FILTER_DW 715 BACKEND_DESCRIPTOR;
    OPERATION_CONVOLUTION_BWD_FILTER_X 716 BACKEND_DESCRIPTOR;
    OPERATION_CONVOLUTION_BWD_FILTER_DY 717 BACKEND_DESCRIPTOR;
    OPERATION_POINTWISE_PW_DESCRIPTOR 750 BACKEND_DESCRIPTOR;
    OPERATION_POINTWISE_XDESC 751 BACKEND_DESCRIPTOR; OPERATION_POINTWISE_BDESC 752 BACKEND_DESCRIPTOR;
    OPERATION_POINTWISE_YDESC 753 BACKEND_DESCRIPTOR; OPERATIONGRAPH_OPS 801 BACKEND_DESCRIPTOR;
    TENSOR_BYTE_ALIGNMENT 900 INT64; TENSOR_DATA_TYPE 901 DATA_TYPE;
    TENSOR_DIMENSIONS 902 INT64; TENSOR_STRIDES 903 INT64;
    TENSOR_UNIQUE_ID 906 INT64; TENSOR_IS_VIRTUAL 907 BOOLEAN;
    VARIANT_PACK_UNIQUE_IDS 1000 INT64; VARIANT_PACK_DATA_POINTERS 1001 VOID_PTR;
    VARIANT_PACK_WORKSPACE 1003 VOID_PTR; ENGINE_NUMERICAL_NOTE 1303 NUMERICAL_NOTE;
    DEVICEPROP_DEVICE_ID 2700 INT32; DEVICEPROP_JSON_REPRESENTATION 2702 CHAR
"""
ATTRIBUTES = {name: (int(number), *C_TYPES[kind]) for name, number, kind in (one.split() for one in NUMBERS.split(";"))}
# How a kind of convolution is called there, by its descriptor and by its attributes, and which tensors it takes.
OPERATIONS = {
    FORWARD: ("FORWARD", "FORWARD", {"W": SECOND, "X": FIRST, "Y": RESULT}),
    TO_SOURCE: ("BACKWARD_DATA", "BWD_DATA", {"W": SECOND, "DX": RESULT, "DY": FIRST}),
    TO_WEIGHTS: ("BACKWARD_FILTER", "BWD_FILTER", {"DW": RESULT, "X": FIRST, "DY": SECOND}),
}
NOT_SUPPORTED = range(3000, 4000)  # cudnnStatus_t
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
        self._library, self._plans, self._handle = library, dict[Task, Plan | None](), ctypes.c_void_p()
        self._kept: list[int] = []  # what plans are made of
        name = "DEVICE_ID" if isinstance(device, int) else "JSON_REPRESENTATION"
        value = [device] if isinstance(device, int) else device.encode()
        self._device = self.make("DEVICEPROP", **{f"DEVICEPROP_{name}": value})
        if stream is not None:
            self._call("cudnnCreate", ctypes.byref(self._handle))
            self._call("cudnnSetStream", self._handle, ctypes.c_void_p(stream))

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
        pack = self.make(
            "VARIANT_PACK",
            VARIANT_PACK_UNIQUE_IDS=range(FIRST, FIRST + len(tensors)),
            VARIANT_PACK_DATA_POINTERS=tensors,
            VARIANT_PACK_WORKSPACE=[workspace],
        )
        self._call("cudnnBackendExecute", self._handle, ctypes.c_void_p(plan.descriptor), ctypes.c_void_p(pack))
        self.destroy(pack)

    def close(self) -> None:
        """Give up what cuDNN holds, when nothing is under way any more."""
        self._plans.clear()
        for one in (*reversed(self._kept), self._device):
            self.destroy(one)
        self._kept.clear()
        if self._handle:
            self._call("cudnnDestroy", self._handle)

    def _choose(self, task: Task) -> Plan | None:
        allowed = {NOTES["TENSOR_CORE"]} if task.tensor_cores else set[int]()
        made: list[int] = []
        try:
            for config in self._ranked(self._graph(task, made), made):
                [engine] = self.descriptors(config, "ENGINECFG_ENGINE", "ENGINE", 1, made)
                if set(self.get(engine, "ENGINE_NUMERICAL_NOTE", 32)) & set(NOTES.values()) - allowed:
                    continue
                try:
                    of_device = {"EXECUTION_PLAN_DEVICEPROP": [self._device]}
                    plan = self.make("EXECUTION_PLAN", EXECUTION_PLAN_ENGINE_CONFIG=[config], **of_device)
                except _NotSupportedError:
                    continue
                [workspace] = self.get(plan, "EXECUTION_PLAN_WORKSPACE_SIZE", 1)
                made.append(plan)
                if workspace <= WORKSPACE:
                    self._kept += made
                    made.clear()
                    return Plan(plan, workspace, self._engine(plan), _alignment(task.sweep))
        except _NotSupportedError:
            pass  # as of a graph that no engine computes
        finally:
            for one in reversed(made):
                self.destroy(one)
        return None

    def _graph(self, task: Task, made: list[int]) -> int:
        sweep, windows = task.sweep, _spatial(task.sweep.windows)
        x = task.size, sweep.source.channels, *(one.size for one in windows)
        w = sweep.target.channels, sweep.source.channels // sweep.groups, *(one.kernel for one in windows)
        y = task.size, sweep.target.channels, *(one.out for one in windows)
        shapes = {FORWARD: (x, w, y), TO_SOURCE: (y, w, x), TO_WEIGHTS: (x, y, w)}[task.kind]

        def make(kind: str, **attributes: Any) -> int:
            made.append(self.make(kind, **attributes))
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
                made.append(self.make("ENGINEHEUR", ENGINEHEUR_MODE=[mode], **about))
            except _NotSupportedError:
                continue
            ranked = made[-1]
            found = self._get(ranked, "ENGINEHEUR_RESULTS", None, 0)
            yield from self.descriptors(ranked, "ENGINEHEUR_RESULTS", "ENGINECFG", found, made)

    def _engine(self, plan: int) -> str:
        """Return the engine of a plan with its settings, such as `38 SPLIT_K=2`."""
        found = self.read(plan)["engine"]
        knobs = (f"{name.removeprefix('CUDNN_KNOB_TYPE_')}={value}" for name, value in found["knobChoices"].items())
        return " ".join([str(found["engineId"]), *knobs])

    def read(self, plan: int) -> Any:
        """Return a plan as cuDNN writes it down."""
        return json.loads(bytes(self.get(plan, "EXECUTION_PLAN_JSON_REPRESENTATION", 1 << 20)).rstrip(b"\0"))

    def make(self, kind: str, **attributes: Any) -> int:
        """Return a descriptor with these attributes."""
        place = self._create(kind)
        try:
            for name, values in attributes.items():
                number, form, c_type = ATTRIBUTES[name]
                array = (c_type * len(values))(*values)
                head = ctypes.c_void_p(place), ctypes.c_int(number), ctypes.c_int(form)
                self._call("cudnnBackendSetAttribute", *head, ctypes.c_int64(len(values)), array)
            self._call("cudnnBackendFinalize", ctypes.c_void_p(place))
        except BaseException:
            self.destroy(place)
            raise
        return place

    def get(self, place: int, name: str, most: int) -> Any:
        """Return the values of an attribute, up to `most` of them."""
        array = (ATTRIBUTES[name][2] * most)()
        return array[: self._get(place, name, array, most)]

    def descriptors(self, place: int, name: str, kind: str, most: int, made: list[int]) -> list[int]:
        """Return the descriptors of an attribute, up to `most`, which are made for that."""
        empty = [self._create(kind) for _ in range(most)]
        made.extend(empty)
        return empty[: self._get(place, name, (ctypes.c_void_p * most)(*empty), most)]

    def destroy(self, place: int) -> None:
        """Give up a descriptor."""
        self._call("cudnnBackendDestroyDescriptor", ctypes.c_void_p(place))

    def _create(self, kind: str) -> int:
        found = ctypes.c_void_p()
        self._call("cudnnBackendCreateDescriptor", ctypes.c_int(DESCRIPTORS[kind]), ctypes.byref(found))
        return int(found.value or 0)

    def _get(self, place: int, name: str, array: Any, most: int) -> int:
        """Fill an array with an attribute; return how many values there are, of which `most` are taken."""
        (number, form, _), count = ATTRIBUTES[name], ctypes.c_int64()
        head = ctypes.c_void_p(place), ctypes.c_int(number), ctypes.c_int(form), ctypes.c_int64(most)
        self._call("cudnnBackendGetAttribute", *head, ctypes.byref(count), array)
        return count.value

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            said = ctypes.create_string_buffer(512)
            self._library.cudnnGetLastErrorString(said, ctypes.c_size_t(len(said)))
            kind = _NotSupportedError if status in NOT_SUPPORTED else MachineError
            raise kind(f"{name} failed with status {status} of cuDNN: {said.value.decode(errors='replace').strip()}")


class _NotSupportedError(MachineError):
    """cuDNN has no way to do it."""


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
