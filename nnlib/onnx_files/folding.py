"""Arrays that follow from other arrays of the graph: shapes for Reshape, and weights that are turned around."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from nnlib.onnx_files.graph import Array, Node
from nnlib.onnx_files.parts import Build

BATCH = 0  # stands for the number of examples in a shape: Reshape takes it for "as it is"
MOST_COMPUTED = 2**28  # numbers of all arrays that are computed: a small file may ask for large ones
TYPES: Mapping[int, Any] = {
    1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float32, 11: np.float32, 16: np.float32,
}  # fmt: skip
Arrays = Sequence[Array]


def constant(build: Build, node: Node) -> Array:
    """Return the array of an operator Constant."""
    del build
    if isinstance(found := node.attributes.get("value"), np.ndarray):
        return found
    for name, kind in (("value_float", np.float32), ("value_int", np.int64)):
        for attribute in (name, f"{name}s"):
            if isinstance(value := node.attributes.get(attribute), int | float | tuple):
                return np.array(value, kind)
    raise node.wrong("has no value, legal: numbers")


def shape_of(build: Build, node: Node) -> Array:
    """Return the shape of a value or an array."""
    if build.is_constant(node, 0):
        found = np.array(build.constant(node, 0).shape, np.int64)
    else:
        found = np.array((BATCH, *build.value(node).shape), np.int64)
    return found[slice(node.whole("start", 0), node.whole("end", len(found)))]


def fold(build: Build, node: Node) -> Array:
    """Return what an operator of FOLDED makes of arrays."""
    arrays = [build.constant(node, n) for n in range(len(node.inputs)) if build.has(node, n)]
    try:
        build.computed += _count(node, arrays)
        if build.computed > MOST_COMPUTED:
            raise ValueError(f"{build.computed:,} numbers in all, legal: up to {MOST_COMPUTED:,}")
        with np.errstate(all="ignore"):
            return np.asarray(FOLDED[node.operator](node, arrays))
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        shapes = [list(one.shape) for one in arrays]
        raise node.wrong(f"cannot be computed of arrays {shapes}: {str(error)[:200]}") from error


def _count(node: Node, arrays: Arrays) -> int:
    """Return how many numbers an operator will give, at most."""
    if node.operator == "ConstantOfShape":
        return prod(max(int(one), 0) for one in arrays[0].reshape(-1))
    if node.operator in ("Add", "Sub", "Mul", "Div"):
        return prod(np.broadcast_shapes(*(one.shape for one in arrays)))
    if node.operator == "Gather":
        return arrays[0].size * arrays[1].size
    return sum(one.size for one in arrays)


def _axes(node: Node, arrays: Arrays) -> tuple[int, ...] | None:
    """Return the axes that are an input or, in earlier sets of operators, an attribute."""
    if len(arrays) > 1:
        return tuple(int(one) for one in arrays[1].reshape(-1))
    found = node.attributes.get("axes")
    return found if isinstance(found, tuple) else None  # type: ignore[return-value]


def _reshape(_: Node, arrays: Arrays) -> Array:
    shape = [int(one) for one in arrays[1].reshape(-1)]
    return arrays[0].reshape([arrays[0].shape[n] if one == 0 else one for n, one in enumerate(shape)])


def _slice(node: Node, arrays: Arrays) -> Array:
    if len(arrays) == 1:  # of sets 7 to 9, where these are attributes
        given = [node.attributes.get(name) for name in ("starts", "ends", "axes")]
        arrays = [arrays[0], *(np.array(one, np.int64) for one in given if isinstance(one, tuple))]
    if len(arrays) < 3:
        raise ValueError("starts or ends are missing")
    starts, ends, *rest = ([int(one) for one in array.reshape(-1)] for array in arrays[1:])
    axes = rest[0] if rest else list(range(len(starts)))
    steps = rest[1] if len(rest) > 1 else [1] * len(starts)
    found = [slice(None)] * arrays[0].ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        found[axis] = slice(start, end, step)
    return arrays[0][tuple(found)]


def _divide(_: Node, arrays: Arrays) -> Array:
    one, other = arrays
    if one.dtype.kind == "f":
        return np.divide(one, other)
    if not other.all():
        raise ValueError("a division by 0")
    return np.asarray(np.trunc(one / other)).astype(one.dtype)  # of whole numbers, towards 0


def _fill(node: Node, arrays: Arrays) -> Array:
    value = node.attributes.get("value", np.zeros(1, np.float32))
    if not isinstance(value, np.ndarray) or value.size != 1:
        raise ValueError("attribute value is not one number")
    return np.full([int(one) for one in arrays[0].reshape(-1)], value.reshape(-1)[0])


FOLDED: Mapping[str, Callable[[Node, Arrays], Any]] = {
    "Identity": lambda _, arrays: arrays[0],
    "Cast": lambda node, arrays: arrays[0].astype(TYPES[node.whole("to", 0)]),
    "Reshape": _reshape,
    "Transpose": lambda node, arrays: np.transpose(arrays[0], node.attributes.get("perm")),  # type: ignore[arg-type]
    "Unsqueeze": lambda node, arrays: np.expand_dims(arrays[0], _axes(node, arrays) or ()),
    "Squeeze": lambda node, arrays: np.squeeze(arrays[0], _axes(node, arrays)),
    "Concat": lambda node, arrays: np.concatenate(arrays, node.whole("axis", 0)),
    "Gather": lambda node, arrays: np.take(arrays[0], arrays[1], node.whole("axis", 0)),
    "Slice": _slice,
    "Add": lambda _, arrays: np.add(*arrays),
    "Sub": lambda _, arrays: np.subtract(*arrays),
    "Mul": lambda _, arrays: np.multiply(*arrays),
    "Div": _divide,
    "Sqrt": lambda _, arrays: np.sqrt(arrays[0]),
    "Neg": lambda _, arrays: np.negative(arrays[0]),
    "ConstantOfShape": _fill,
}
