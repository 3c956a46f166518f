"""Windows over maps: those of convolutions, and the operators that pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, prod

import numpy as np

from nnlib.onnx_files.graph import Node
from nnlib.onnx_files.parts import Build, Part, Value
from nnlib.spec.geometry import Window
from nnlib.spec.json_section import MOST_UNITS
from nnlib.spec.types import LayerType, LocalResponse, PoolingFunction

WIDEST = 2**20  # a kernel, stride or padding


@dataclass(frozen=True, slots=True)
class Windows:
    """A window for each axis, slowest first."""

    axes: tuple[Window, ...]

    def keys(self) -> Mapping[str, tuple[int, ...] | tuple[tuple[int, int], ...]]:
        """Return a layer's keys, which are fastest axis first."""
        turned = self.axes[::-1]
        return {
            "kernel": tuple(window.kernel for window in turned),
            "stride": tuple(window.stride for window in turned),
            "padding": tuple((window.low, window.high) for window in turned),
            "dilation": tuple(window.dilation for window in turned),
        }

    @property
    def padded(self) -> bool:
        """Whether a window takes in more than the maps."""
        return any(one.low or one.high for one in self.axes)


def windows_of(node: Node, value: Value, kernel: tuple[int, ...] | None = None) -> Windows:
    """Return the windows of a node over a value; `kernel` where the weights say it."""
    pads, axes = value.edges, len(value.sizes)
    kernel_shape = node.wholes("kernel_shape", axes, None if kernel is None else 0)
    if kernel is not None and any(kernel_shape) and kernel_shape != kernel:
        raise node.wrong(f"attribute kernel_shape is {list(kernel_shape)}, legal: {list(kernel)}, as weights have it")
    kernel = kernel or kernel_shape
    strides, dilations = node.wholes("strides", axes, 1), node.wholes("dilations", axes, 1)
    given = node.wholes("pads", 2 * axes, 0)
    if not all(0 < n <= WIDEST for n in (*kernel, *strides, *dilations)) or max(given) > WIDEST:
        raise node.wrong(f"kernel {list(kernel)}, strides {list(strides)}, dilations {list(dilations)}, legal: from 1")
    found = []
    for n, size in enumerate(value.sizes):
        span = dilations[n] * (kernel[n] - 1) + 1
        low, high = _edges(node, (given[n], given[n + axes]), size + sum(pads[n]), span, strides[n])
        window = Window(size, kernel[n], strides[n], pads[n][0] + low, pads[n][1] + high, dilations[n])
        if span > size + window.low + window.high or not 0 < window.out <= MOST_UNITS:
            room = size + window.low + window.high
            raise node.wrong(f"a kernel that spans {span} over {room}, legal: one that fits")
        found.append(window)
    return Windows(tuple(found))


def _edges(node: Node, pads: tuple[int, int], size: int, span: int, stride: int) -> tuple[int, int]:
    """Return how many places an axis gets before and after it."""
    mode, ceil = node.text("auto_pad", "NOTSET"), node.whole("ceil_mode", 0)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        total = max((-(-size // stride) - 1) * stride + span - size, 0)
        less, more = total // 2, total - total // 2
        return (less, more) if mode == "SAME_UPPER" else (more, less)
    if mode == "VALID":
        pads = (0, 0)
    elif mode != "NOTSET":
        raise node.wrong(f"attribute auto_pad is {mode[:20]!r}, legal: NOTSET, VALID, SAME_UPPER, SAME_LOWER")
    if not ceil:
        return pads
    low, high = pads
    out = -(-(size + low + high - span) // stride) + 1
    if (out - 1) * stride >= size + low:  # a window that would begin behind the maps is left out
        out -= 1
    return low, max(high, (out - 1) * stride + span - size - low)


def pool(build: Build, node: Node) -> Value:
    """MaxPool and AveragePool, whose padding is not counted."""
    largest = node.operator == "MaxPool"
    value = build.maps(node, padded=largest)
    if value.pads and value.padding != -inf:
        raise node.wrong(f"follows a Pad with {value.padding:g}, legal: with -inf")
    if len(node.outputs) > 1 and node.outputs[1]:
        raise node.wrong("gives indices, too, legal: the largest values alone")
    if node.whole("storage_order", 0):
        raise node.wrong("attribute storage_order is 1, legal: 0")
    windows = windows_of(node, value)
    if any(window.dilation > 1 for window in windows.axes):
        raise node.wrong("attribute dilations is not 1, legal: 1 in pooling")
    if any(max(window.low, window.high) >= window.kernel for window in windows.axes):
        edges = [(window.low, window.high) for window in windows.axes]
        raise node.wrong(f"edges {edges} of kernel {[one.kernel for one in windows.axes]}, legal: less than the kernel")
    shape = (value.shape[0], *(window.out for window in windows.axes))
    if not windows.padded and all((one.kernel, one.stride) == (1, 1) for one in windows.axes):
        return Value(value.part, value.shape)
    # What ceil_mode adds behind the maps is never counted.
    ceil, same = node.whole("ceil_mode", 0), node.text("auto_pad", "NOTSET").startswith("SAME")
    edge = same or any(node.wholes("pads", 2 * len(windows.axes), 0))
    if not largest and node.whole("count_include_pad", 0) and windows.padded and (edge or not ceil):
        if ceil:
            raise node.wrong("attributes count_include_pad and ceil_mode are 1, legal: one of them, or no pads")
        return _mean_with_edge(build, node, value, windows, shape)
    function = PoolingFunction.MAX if largest else PoolingFunction.AVERAGE
    layer = build.pooling(node, function, (value.part,), **windows.keys())
    return build.add(Part(layer, shape))


def _mean_with_edge(build: Build, node: Node, value: Value, windows: Windows, shape: tuple[int, ...]) -> Value:
    """Add a mean that counts the padding as zeros: a convolution of each map by itself, which is not to be trained."""
    channels, volume = shape[0], prod(one.kernel for one in windows.axes)
    build.check_count(channels * volume)
    layer = build.layer(node, LayerType.CONVOLUTIONAL, (value.part,), groups=channels, **windows.keys())
    weights = np.full((channels, volume), 1 / volume, np.float32)
    return build.add(Part(layer, shape, weights, np.zeros(channels, np.float32), constant=True))


def pool_all(build: Build, node: Node) -> Value:
    """GlobalAveragePool and GlobalMaxPool; ReduceMean and ReduceMax over all sizes."""
    value = build.maps(node)
    axes, keep = len(value.shape) - 1, True
    if node.operator.startswith("Reduce"):
        found, keep = build.numbers(node, "axes", 1), bool(node.whole("keepdims", 1))
        wanted = set(range(2, axes + 2))
        if found is None or {one % (axes + 2) for one in found} != wanted:
            raise node.wrong(f"axes {list(found or ())}, legal: {sorted(wanted)}, all sizes of the maps")
    shape = (value.shape[0], *(1,) * axes)
    seen = shape if keep else shape[:1]
    if value.shape == shape:
        return Value(value.part, seen)
    mean = node.operator in ("GlobalAveragePool", "ReduceMean")
    function = PoolingFunction.GLOBAL_AVERAGE if mean else PoolingFunction.GLOBAL_MAX
    return build.add(Part(build.pooling(node, function, (value.part,)), shape), seen)


def pad(build: Build, node: Node) -> Value:
    """Pad: kept in mind for the operator that follows, whose windows take it in."""
    mode = node.text("mode", "constant")
    value = build.maps(node)
    rank = len(value.shape) + 1
    found = build.numbers(node, "pads", 1)
    if mode != "constant" or build.has(node, 3):
        raise node.wrong(f"mode {mode[:20]!r}, or axes, legal: constant, without axes")
    if found is None or len(found) != 2 * rank or any(not 0 <= one <= WIDEST for one in found):
        raise node.wrong(f"pads {list(found or ())[:16]}, legal: {2 * rank} whole numbers from 0")
    pads = tuple(zip(found[:rank], found[rank:], strict=True))
    if any(map(any, pads[:2])):
        raise node.wrong("pads the batch or channels, legal: the sizes of maps")
    filling = build.number(node, "value", 2, 0.0)
    sizes = tuple(size + sum(edge) for size, edge in zip(value.shape[1:], pads[2:], strict=True))
    if not any(map(any, pads)):
        return value
    return Value(value.part, (value.shape[0], *sizes), pads[2:], -inf if filling < -1e30 else filling)


def normalize_response(build: Build, node: Node) -> Value:
    """LRN: the constants are the network's, so all nodes of a graph must have the same."""
    value = build.maps(node)
    rule = LocalResponse(
        k=node.real("bias", 1.0), n=node.whole("size", 0), alpha=node.real("alpha", 1e-4), beta=node.real("beta", 0.75)
    )
    if not 1 <= rule.n <= WIDEST:
        raise node.wrong(f"attribute size is {rule.n}, legal: a whole number from 1")
    if build.response not in (None, rule):
        raise node.wrong(f"has other constants than the LRN before it, {build.response}, legal: the same in a network")
    build.response = rule
    return build.add(Part(build.pooling(node, PoolingFunction.LRN, (value.part,)), value.shape))
