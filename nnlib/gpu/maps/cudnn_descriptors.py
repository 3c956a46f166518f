"""cuDNN's descriptors, of which everything in its graph API is made: their attributes are set, then read.

Names and numbers are those of cudnn_graph_v9.h.
"""

from __future__ import annotations

import ctypes
from typing import Any

from nnlib.errors import MachineError

# Types of values, kinds of descriptors, and their attributes with these types.
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
NOT_SUPPORTED = range(3000, 4000)  # cudnnStatus_t


class NotSupportedError(MachineError):
    """cuDNN has no way to do it."""


class Descriptors:
    """The descriptors of a library; whoever makes one destroys it."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def make(self, kind: str, **attributes: Any) -> int:
        """Return a descriptor with these attributes."""
        place = self._create(kind)
        try:
            for name, values in attributes.items():
                number, form, c_type = ATTRIBUTES[name]
                array = (c_type * len(values))(*values)
                head = ctypes.c_void_p(place), ctypes.c_int(number), ctypes.c_int(form)
                self.call("cudnnBackendSetAttribute", *head, ctypes.c_int64(len(values)), array)
            self.call("cudnnBackendFinalize", ctypes.c_void_p(place))
        except BaseException:
            self.destroy(place)
            raise
        return place

    def get(self, place: int, name: str, most: int) -> Any:
        """Return the values of an attribute, up to `most` of them."""
        array = (ATTRIBUTES[name][2] * most)()
        return array[: self._get(place, name, array, most)]

    def get_descriptors(self, place: int, name: str, kind: str, most: int, made: list[int]) -> list[int]:
        """Return the descriptors of an attribute, up to `most`, which are made for that."""
        empty = [self._create(kind) for _ in range(most)]
        made.extend(empty)
        return empty[: self._get(place, name, (ctypes.c_void_p * most)(*empty), most)]

    def destroy(self, place: int) -> None:
        """Give up a descriptor."""
        self.call("cudnnBackendDestroyDescriptor", ctypes.c_void_p(place))

    def count(self, place: int, name: str) -> int:
        """Return how many values an attribute has."""
        return self._get(place, name, None, 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library; NotSupportedError or MachineError when it fails."""
        status = getattr(self._library, name)(*arguments)
        if status:
            said = ctypes.create_string_buffer(512)
            self._library.cudnnGetLastErrorString(said, ctypes.c_size_t(len(said)))
            kind = NotSupportedError if status in NOT_SUPPORTED else MachineError
            raise kind(f"{name} failed with status {status} of cuDNN: {said.value.decode(errors='replace').strip()}")

    def _create(self, kind: str) -> int:
        found = ctypes.c_void_p()
        self.call("cudnnBackendCreateDescriptor", ctypes.c_int(DESCRIPTORS[kind]), ctypes.byref(found))
        return int(found.value or 0)

    def _get(self, place: int, name: str, array: Any, most: int) -> int:
        """Fill an array with an attribute; return how many values there are, of which `most` are taken."""
        (number, form, _), count = ATTRIBUTES[name], ctypes.c_int64()
        head = ctypes.c_void_p(place), ctypes.c_int(number), ctypes.c_int(form), ctypes.c_int64(most)
        self.call("cudnnBackendGetAttribute", *head, ctypes.byref(count), array)
        return count.value
