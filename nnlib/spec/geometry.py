"""What a layer's values are as maps, and how kernels move over them; `sizes` finds the sizes of a network's layers.

Pure, standard library only. A layer's values are (b, units), unit x + Nx (y + Ny (z + Nz w)), the channel being the
last of these axes: maps as NCHW have them, so that they are looked at as (b, channels, H, W) without a copy.
`Layer.dimensions` has the same numbers, x first; `Maps.sizes` has them slowest first, as NumPy's shapes do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nnlib.spec.kernel import SWEEPING
from nnlib.spec.types import Layer, LayerKind, LayerType, NetworkSpec


@dataclass(frozen=True, slots=True)
class Maps:
    """What a layer's values are: `channels` maps of `sizes`, slowest axis first; () is one number a channel."""

    channels: int
    sizes: tuple[int, ...] = ()

    @property
    def area(self) -> int:
        """How many values a map has."""
        return math.prod(self.sizes)

    @property
    def units(self) -> int:
        """How many values there are."""
        return self.channels * self.area

    @property
    def spatial(self) -> bool:
        """Whether a map has more than one value."""
        return self.area > 1


@dataclass(frozen=True, slots=True)
class Window:
    """A kernel of `kernel` values, `dilation` apart, moved by `stride` along an axis of `size` values.

    `low` and `high` are the zeros before and behind the axis, which are no values to a pooling layer.
    """

    size: int
    kernel: int
    stride: int = 1
    low: int = 0
    high: int = 0
    dilation: int = 1

    @property
    def span(self) -> int:
        """How much of the axis the kernel covers."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def out(self) -> int:
        """How many places the kernel has, 0 or less when the axis is too short for it."""
        return (self.size + self.low + self.high - self.span) // self.stride + 1


@dataclass(frozen=True, slots=True)
class Sweep:
    """A kernel that is moved over maps; `windows` has one for each of the sizes of `source`, slowest axis first."""

    source: Maps
    target: Maps
    windows: tuple[Window, ...]
    groups: int = 1

    @property
    def volume(self) -> int:
        """How many values of a map a kernel covers."""
        return math.prod(window.kernel for window in self.windows)

    @property
    def fan_in(self) -> int:
        """How many values a value of a convolution is made of."""
        return self.source.channels // self.groups * self.volume


def maps_of(spec: NetworkSpec, layer_number: int) -> Maps:
    """Return what the values of a layer with all its units are."""
    return view_maps(spec.layers[layer_number])


def sweep_of(spec: NetworkSpec, source_number: int, layer_number: int) -> Sweep:
    """Return how a convolutional, Max or Average layer of resolved sizes moves over one of its sources."""
    layer, source = spec.layers[layer_number], maps_of(spec, source_number)
    windows = windows_of(layer, source.sizes[::-1])
    return Sweep(source, maps_of(spec, layer_number), windows[::-1], layer.groups)


def kernel_shape(spec: NetworkSpec, source_number: int, layer_number: int) -> tuple[int, ...]:
    """Return the shape of a convolutional edge's weights: maps, channels of a group, and the kernel, slowest first."""
    sweep = sweep_of(spec, source_number, layer_number)
    kernel = (window.kernel for window in sweep.windows)
    return (sweep.target.channels, sweep.source.channels // sweep.groups, *kernel)


def has_kernel(layer: Layer) -> bool:
    """Whether a kernel moves over what a layer is computed of."""
    return layer.kind is not LayerKind.INPUT and (
        layer.type is LayerType.CONVOLUTIONAL or (layer.type is LayerType.POOLING and layer.function in SWEEPING)
    )


def is_computed(layer: Layer) -> bool:
    """Whether the size of a layer follows from its sources."""
    return layer.kind is not LayerKind.INPUT and layer.type is not LayerType.FULLY_CONNECTED


def usual_window(size: int, kernel: int, stride: int, dilation: int = 1) -> Window:
    """Return DSSTNE's window for a layer without Padding.

    A kernel as long as the axis or longer has one place, in the middle; else one of stride 1 gives as many values as
    the axis has ("same"); else there is no padding.
    """
    span = dilation * (kernel - 1) + 1
    if size <= span:
        low = (span - size + 1) // 2
        return Window(size, kernel, stride, low, span - size - low, dilation)
    if stride == 1:
        return Window(size, kernel, 1, span // 2, span - 1 - span // 2, dilation)
    return Window(size, kernel, stride, 0, 0, dilation)


def view_maps(layer: Layer) -> Maps:
    """Return what the values of a layer with all its units are."""
    if layer.units is None:
        raise ValueError(f"layer {layer.name}: size not resolved")
    if len(layer.dimensions) < 2:
        return Maps(layer.units)
    return Maps(layer.dimensions[-1], layer.dimensions[-2::-1])


def windows_of(layer: Layer, sizes: Sequence[int]) -> tuple[Window, ...]:
    """Return the windows of a layer's kernel over axes x, y, z of these sizes."""
    ones = (1,) * len(sizes)
    numbers = zip(sizes, layer.kernel or ones, layer.stride or ones, layer.dilation or ones, strict=True)
    if layer.padding is None:
        return tuple(usual_window(*of_axis) for of_axis in numbers)
    return tuple(
        Window(size, kernel, stride, *padding, dilation)
        for (size, kernel, stride, dilation), padding in zip(numbers, layer.padding, strict=True)
    )
