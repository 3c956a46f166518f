"""The keys of a layer's kernel: Kernel and KernelStride as DSSTNE has them, and Padding, Dilation and Groups besides.

Standard library only, because the manager reads networks too. What a kernel makes of maps is in `geometry`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nnlib.spec.checks import whole
from nnlib.spec.json_section import MOST_UNITS, Section, show
from nnlib.spec.types import LayerKind, LayerType, PoolingFunction

SWEEPING = (PoolingFunction.MAX, PoolingFunction.AVERAGE)  # the pooling functions that have a kernel
BESIDE = ("KernelStride", "Padding", "Dilation")  # what only a layer with Kernel may have
PADDING = "a whole number from 0, or an array of one for each axis of Kernel, each a number or [before, behind]"

SIZE = whole(0, MOST_UNITS)
Padding = tuple[tuple[int, int], ...] | None


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a layer says of its kernel, by axis x, y, z; empty where it says nothing. See `types.Layer`."""

    sizes: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    padding: Padding = None
    dilation: tuple[int, ...] = ()
    groups: int = 1


def parse_kernel(layer: Section, kind: LayerKind, type_: LayerType, function: PoolingFunction | None) -> Kernel:
    """Return the kernel of a layer; one whose type has none ignores Kernel and KernelStride, as DSSTNE does."""
    convolves = kind is not LayerKind.INPUT and type_ is LayerType.CONVOLUTIONAL
    pools = kind is not LayerKind.INPUT and type_ is LayerType.POOLING and function in SWEEPING
    legal = "only with Type Convolutional"
    misplaced = {} if convolves else {"Dilation": legal, "Groups": legal}
    misplaced |= {} if convolves or pools else {"Padding": f"{legal}, and with Function Max or Average"}
    for key, where in misplaced.items():
        if key in layer:
            layer.wrong(key, f"not a key of {_describe(type_, function)}, legal: {where}")
    sizes, stride = layer.wholes("Kernel", 3), layer.wholes("KernelStride", 3)
    axes = len(sizes) or 1
    if len(stride) > axes:
        layer.wrong("KernelStride", f"{show(list(stride))} has more numbers than Kernel, legal: {axes} of them")
    if not (convolves or pools):
        return Kernel()
    for key in BESIDE:
        if key in layer and "Kernel" not in layer:
            layer.wrong(key, "says how Kernel is moved, which is missing, legal: both or none")
    padding, dilation = _padding(layer, sizes), _dilation(layer, sizes)
    return Kernel(sizes, (*stride, 1, 1, 1)[: len(sizes)], padding, dilation, layer.whole("Groups", 1))


def _describe(type_: LayerType, function: PoolingFunction | None) -> str:
    return f"a layer of type {type_}" + (f" with Function {function}" if function else "")


def _dilation(layer: Section, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dilation by axis; a number that is no array is that of every axis."""
    dilation = layer.wholes("Dilation", 3)
    if dilation and not isinstance(layer.raw("Dilation"), list):
        return dilation * len(sizes)
    if len(dilation) > len(sizes):
        layer.wrong("Dilation", f"{show(list(dilation))} has more numbers than Kernel, legal: {len(sizes)} of them")
    return (*dilation, 1, 1, 1)[: len(sizes)]


def _padding(layer: Section, sizes: tuple[int, ...]) -> Padding:
    """Return the padding by axis; a number that is no array is that of both ends of every axis."""
    if "Padding" not in layer:
        return None
    value = layer.raw("Padding")
    entries = value if isinstance(value, list) else [value] * len(sizes)
    try:
        padding = tuple(_ends(entry) for entry in entries)
    except ValueError:
        layer.refuse("Padding", PADDING)
        return None
    if len(padding) > len(sizes):
        layer.wrong("Padding", f"{show(value)} has more entries than Kernel, legal: {len(sizes)} of them")
    return (*padding, (0, 0), (0, 0), (0, 0))[: len(sizes)]


def _ends(entry: Any) -> tuple[int, int]:
    """Return the padding before and behind an axis."""
    ends = entry if isinstance(entry, list) else [entry, entry]
    if len(ends) != 2:
        raise ValueError
    before, behind = (SIZE.of(end) for end in ends)
    return before, behind
