"""Operators that change no number: they name the shape of a value anew."""

from __future__ import annotations

from math import prod

from nnlib.onnx_files.graph import Node
from nnlib.onnx_files.load import FLOATS
from nnlib.onnx_files.parts import Build, Value
from nnlib.spec.types import Activation

MOST_AXES = 5  # of a value, with the batch


def keep(build: Build, node: Node) -> Value:
    """Identity, and Cast from one kind of number to another."""
    if node.operator == "Cast" and node.whole("to", 1) not in FLOATS:
        raise node.wrong(f"casts to type {node.whole('to', 1)}, legal: numbers of floating point")
    return build.value(node)


def drop_out(build: Build, node: Node) -> Value:
    """Dropout: nothing when asked; in training the layer before drops as many."""
    value, rate = build.value(node), build.number(node, "ratio", 1, 0.5)
    if not 0 <= rate < 1:
        raise node.wrong(f"ratio {rate:g}, legal: a number from 0, below 1")
    return build.activate(node, value, Activation.LINEAR, dropout=rate) if rate else value


def flatten(build: Build, node: Node) -> Value:
    """Flatten: all units in a row."""
    value = build.value(node)
    axis = node.whole("axis", 1)
    if axis not in (1, -len(value.shape)):
        raise node.wrong(f"attribute axis is {axis}, legal: 1")
    return Value(value.part, (prod(value.shape),))


def reshape(build: Build, node: Node) -> Value:
    """Reshape, where examples stay apart."""
    value, wanted = build.value(node), build.numbers(node, "shape", 1)
    if not wanted or (node.whole("allowzero", 0) and 0 in wanted[1:]):
        raise node.wrong("a shape that is missing, or has sizes of 0, legal: (0 or -1, sizes...)")
    units, first, rest = prod(value.shape), wanted[0], list(wanted[1:])
    for n, size in enumerate(rest):
        if size == 0 and n < len(value.shape):
            rest[n] = value.shape[n]
    known = prod(size for size in rest if size != -1)
    if rest.count(-1) == 1 and known > 0 and not units % known:
        rest[rest.index(-1)] = units // known
    if first not in (-1, 0, 1) or any(size < 1 for size in rest) or prod(rest) != units:
        raise node.wrong(f"{value} to {list(wanted)}, legal: (0 or -1, sizes...) of as many units")
    return Value(value.part, tuple(rest))


def squeeze(build: Build, node: Node) -> Value:
    """Squeeze: sizes of 1 are left out. Unsqueeze: they are put in."""
    value, axes = build.value(node), build.numbers(node, "axes", 1)
    shape = [None, *value.shape]
    if node.operator == "Unsqueeze":
        rank = len(shape) + len(axes or ())
        places = sorted({axis % rank for axis in axes or ()})
        if not places or 0 in places or rank > MOST_AXES:
            raise node.wrong(f"axes {list(axes or ())}, legal: behind the batch, up to {MOST_AXES} in all")
        for place in places:
            shape.insert(place, 1)
    else:
        places = [n for n in range(len(shape)) if shape[n] == 1] if axes is None else [a % len(shape) for a in axes]
        if any(shape[place] != 1 for place in places):
            raise node.wrong(f"axes {list(axes or ())} of {value}, legal: of size 1")
        shape = [size for n, size in enumerate(shape) if n not in places]
    sizes = tuple(size for size in shape[1:] if size is not None)
    return Value(value.part, sizes or (1,))


def transpose(build: Build, node: Node) -> Value:
    """Transpose, where it moves only sizes of 1."""
    value = build.value(node)
    rank = len(value.shape) + 1
    order = node.attributes.get("perm", tuple(reversed(range(rank))))
    if not isinstance(order, tuple) or sorted(map(str, order)) != sorted(map(str, range(rank))) or order[0] != 0:
        raise node.wrong("attribute perm moves the batch, or is none of all axes")
    sizes = (None, *value.shape)
    shape = tuple(sizes[int(axis)] for axis in order[1:])
    if [one for one in shape if one != 1] != [one for one in value.shape if one != 1]:
        raise node.wrong(
            f"perm {list(order)} moves {value}, legal: axes of size 1; channels come "
            "first here, so export the network with channels first (NCHW)"
        )
    return Value(value.part, tuple(size for size in shape if size is not None))
