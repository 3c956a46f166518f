"""From an ONNX file to an `OnnxGraph`: everything in it is hostile until it was bounded and typed.

Weights in files of their own are read where these lie in the model's folder, or below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nnlib.errors import DataError
from nnlib.onnx_files import library
from nnlib.onnx_files.graph import Array, Attribute, Node, OnnxGraph
from nnlib.spec.json_section import MOST_UNITS, show

MOST_BYTES = 2**31 - 1  # of a message of protobuf
MOST_EXTERNAL = 2**33  # bytes of weights in other files, together
MOST_NODES, MOST_RANK, MOST_NAME = 100_000, 8, 1000
OLDEST = 7  # set of operators
EXTERNAL = 1  # data_location
BFLOAT16 = 16
# Numbers of TensorProto.DataType -> how the numbers lie in raw_data.
RAW: dict[int, str] = {
    1: "<f4", 2: "u1", 3: "i1", 4: "<u2", 5: "<i2", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8", 12: "<u4",
    13: "<u8", BFLOAT16: "<u2",
}  # fmt: skip
FLOATS = (1, 10, 11, BFLOAT16)
# The field that holds the numbers where raw_data does not.
FIELDS = {1: "float_data", 7: "int64_data", 11: "double_data", 12: "uint64_data", 13: "uint64_data"}
# AttributeProto.AttributeType -> the field.
ATTRIBUTES = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints", 8: "strings"}


@dataclass(slots=True)
class Beside:
    """The folder of a model, and how many bytes of files in it were read: nodes may name the same ones many times."""

    folder: Path
    bytes_: int = 0


def read_graph(path: Path) -> OnnxGraph:
    """Return the graph of a file; DataError for one that is torn, too large, or reaches out of its folder."""
    size = path.stat().st_size
    if not path.is_file():
        raise DataError(f"{path}: is no regular file")
    if size > MOST_BYTES:
        raise DataError(f"{path}: {size:,} bytes, legal: up to {MOST_BYTES:,}; keep weights as external data beside it")
    try:
        model = library.parse(path.read_bytes())
    except ValueError as error:
        raise DataError(f"{path}: is no ONNX file ({error}); export it again") from error
    proto = model.graph
    if not proto.node or not proto.output:
        raise DataError(f"{path}: is no ONNX file with a graph; export it again")
    if len(proto.node) > MOST_NODES:
        raise DataError(f"{path}: {len(proto.node):,} nodes, legal: up to {MOST_NODES:,}")
    if proto.sparse_initializer:
        raise DataError(f"{path}: has sparse initializers, legal: dense ones; export it again")
    beside = Beside(path.parent)
    constants = {
        _text(one.name): _array(one, f"{path}: initializer {_name(one.name)}", beside) for one in proto.initializer
    }
    return OnnxGraph(
        str(path),
        _opset(model, path),
        tuple(_node(one, f"{path}: node {n}", beside) for n, one in enumerate(proto.node)),
        {_text(one.name): _shape(one, path) for one in proto.input if _text(one.name) not in constants},
        tuple(_text(one.name) for one in proto.output),
        constants,
    )


def _opset(model: Any, path: Path) -> int:
    found = [one.version for one in model.opset_import if one.domain in ("", "ai.onnx")]
    if not found or max(found) < OLDEST:
        raise DataError(f"{path}: operators of set {max(found, default=0)}, legal: {OLDEST} and later; export it again")
    return int(max(found))


def _text(value: str | bytes) -> str:
    """Return a text; protobuf gives bytes for one that is not UTF-8."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _name(text: str | bytes) -> str:
    return show(_text(text)[:MOST_NAME])


def _node(proto: Any, place: str, beside: Beside) -> Node:
    domain, operator = _text(proto.domain), _text(proto.op_type)
    operator = operator if domain in ("", "ai.onnx") else f"{domain}.{operator}"
    place = f"{place} {_name(proto.name or next(iter(proto.output), ''))} ({_name(operator)[1:-1]})"
    attributes = {_text(one.name): _attribute(one, place, beside) for one in proto.attribute}
    inputs, outputs = (tuple(map(_text, names)) for names in (proto.input, proto.output))
    return Node(place, _text(proto.name), operator, inputs, outputs, attributes)


def _attribute(proto: Any, place: str, beside: Beside) -> Attribute:
    field = ATTRIBUTES.get(proto.type)
    if field is None:
        raise DataError(f"{place}: attribute {_name(proto.name)} is of a type that is not read; legal: numbers, texts")
    value = getattr(proto, field)
    if field == "t":
        return _array(value, f"{place}: attribute {_name(proto.name)}", beside)
    if field == "s":
        return _text(value)
    if field == "strings":
        return tuple(map(_text, value))
    return value if field in "fi" else tuple(value)


def _shape(proto: Any, path: Path) -> tuple[int | None, ...]:
    """Return the shape of an input, None where any number is legal."""
    tensor = proto.type.tensor_type
    if tensor.elem_type not in FLOATS:
        raise DataError(
            f"{path}: input {_name(proto.name)} is of type {tensor.elem_type}, legal: one of floating point"
        )
    shape = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    if not 2 <= len(shape) <= 5 or any(size is not None and not 1 <= size <= MOST_UNITS for size in shape):
        raise DataError(f"{path}: input {_name(proto.name)} has shape {shape}, legal: (batch, channels, sizes...)")
    return tuple(shape)


def _array(proto: Any, place: str, beside: Beside) -> Array:
    """Return a tensor's numbers; floating ones as float32. The sizes are compared before anything is made."""
    shape, kind = tuple(proto.dims), proto.data_type
    if kind not in RAW:
        raise DataError(f"{place}: is of type {kind}, legal: numbers of floating point, or whole ones")
    if len(shape) > MOST_RANK or any(size < 0 for size in shape) or _too_large(shape):
        raise DataError(f"{place}: has shape {_shown(shape)}, legal: up to {MOST_RANK} sizes, and 2 GB")
    raw = RAW[kind]
    if proto.data_location == EXTERNAL:
        values = _external(proto, place, beside, prod(shape), raw)
    elif proto.HasField("raw_data"):
        content = proto.raw_data
        if len(content) != prod(shape) * np.dtype(raw).itemsize:
            raise DataError(f"{place}: has {len(content):,} bytes, legal for its shape {_shown(shape)}: another number")
        values = np.frombuffer(content, raw)
    else:
        values = _listed(proto, place, shape, kind)
    if kind == BFLOAT16:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    if kind in FLOATS:
        with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused where it is a weight
            values = values.astype(np.float32, copy=False)
    return values.reshape(shape)


def _too_large(shape: tuple[int, ...]) -> bool:
    """Whether an array has too many numbers, or would have with sizes of 1 for those of 0: NumPy multiplies them."""
    return prod(max(1, size) for size in shape) * 8 > 4 * MOST_BYTES


def _listed(proto: Any, place: str, shape: tuple[int, ...], kind: int) -> Array:
    """Return numbers that stand one by one; those of 16 bits stand there as their bits."""
    values = np.array(getattr(proto, FIELDS.get(kind, "int32_data")))
    if len(values) != prod(shape):
        raise DataError(f"{place}: has {len(values):,} numbers, legal for its shape {_shown(shape)}: {prod(shape):,}")
    if kind in (10, BFLOAT16):
        return (values.astype(np.int64) & 0xFFFF).astype(np.uint16).view(RAW[kind])
    return values.astype(np.dtype(RAW[kind]), copy=False)


def _external(proto: Any, place: str, beside: Beside, count: int, raw: DTypeLike) -> Array:
    """Return numbers that stand in another file, which has to lie in the folder of the model or below."""
    facts = {_text(one.key): _text(one.value) for one in proto.external_data}
    location = PurePosixPath(facts.get("location", ""))
    path = beside.folder / location
    outside = location.is_absolute() or ".." in location.parts or not location.parts or "\0" in str(location)
    try:
        outside = outside or not path.resolve().is_relative_to(beside.folder.resolve())
    except (OSError, RuntimeError) as error:  # the latter before Python 3.13
        raise DataError(f"{place}: external data in {_name(str(location))}, a link to itself; legal: a file") from error
    if outside:
        raise DataError(f"{place}: external data in {_name(str(location))}, legal: a file in the folder of the model")
    bytes_ = count * np.dtype(raw).itemsize
    low, length = (facts.get(key, usual) for key, usual in (("offset", "0"), ("length", str(bytes_))))
    if not (low.isdecimal() and length.isdecimal() and len(low) < 19 and len(length) < 19) or int(length) != bytes_:
        raise DataError(f"{place}: external data at {_name(low)}, {_name(length)} bytes, legal: {bytes_:,} bytes")
    if not path.is_file() or path.stat().st_size < int(low) + bytes_:
        raise DataError(f"{place}: {path} is missing or too short; copy it beside the model again")
    beside.bytes_ += bytes_
    if beside.bytes_ > MOST_EXTERNAL:
        raise DataError(f"{place}: external data of {beside.bytes_:,} bytes so far, legal: up to {MOST_EXTERNAL:,}")
    with path.open("rb") as file:
        file.seek(int(low))
        return np.fromfile(file, raw, count)


def _shown(shape: tuple[int, ...]) -> str:
    return show(list(shape))
