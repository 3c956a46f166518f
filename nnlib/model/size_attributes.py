"""What a model file says about the sizes of a layer: its N and its kernel, as DSSTNE's attributes, and back.

Beyond the format, where a layer has them and ignored by DSSTNE: `nnlib_padding` (before and behind x, y, z),
`nnlib_dilation`, `nnlib_groups`, `nnlib_dropChannels`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nnlib.model.attributes import Attributes
from nnlib.spec.geometry import Window, has_kernel, sweep_of
from nnlib.spec.json_section import MOST_UNITS
from nnlib.spec.types import Layer, LayerType, NetworkSpec
from nnlib.util import netcdf

PADDING, DILATION, GROUPS, DROP_CHANNELS = (
    f"nnlib_{name}" for name in ("padding", "dilation", "groups", "dropChannels")
)


def size_attributes(spec: NetworkSpec, number: int) -> dict[str, netcdf.Attribute]:
    """Return the attributes of the size and the kernel of a layer with all its units."""
    layer = spec.layers[number]
    sizes = layer.dimensions or (layer.units or 1,)
    kernel, stride = layer.kernel or (1,), layer.stride or (1,)
    padding = tuple(window.low for window in _windows(spec, number))
    return {
        **{f"N{axis}": np.uint32(size) for axis, size in zip("xyzw", (*sizes, 1, 1, 1), strict=False)},
        "dimensions": np.uint32(len(sizes)),
        **{f"kernel{axis}": np.uint32(size) for axis, size in zip("XYZ", (*kernel, 1, 1), strict=False)},
        "kernelDimensions": np.uint32(len(kernel)),
        **{f"kernelStride{axis}": np.uint32(size) for axis, size in zip("XYZ", (*stride, 1, 1), strict=False)},
        **{f"kernelPadding{axis}": np.uint32(low) for axis, low in zip("XYZ", (*padding, 0, 0, 0), strict=False)},
        **dict(_beyond(layer)),
    }


def _windows(spec: NetworkSpec, number: int) -> tuple[Window, ...]:
    """Return how a layer's kernel moves over the first of its sources, by axis x, y, z."""
    layer = spec.layers[number]
    return sweep_of(spec, spec.places[layer.sources[0]], number).windows[::-1] if has_kernel(layer) else ()


def _beyond(layer: Layer) -> Iterator[tuple[str, netcdf.Attribute]]:
    if layer.padding is not None:
        yield PADDING, np.array(layer.padding, np.uint32).reshape(-1)
    if any(step > 1 for step in layer.dilation):
        yield DILATION, np.array(layer.dilation, np.uint32)
    if layer.groups > 1:
        yield GROUPS, np.uint32(layer.groups)
    if layer.drop_channels:
        yield DROP_CHANNELS, np.uint32(1)


def with_sizes(a: Attributes, at: str, layer: Layer) -> Layer:
    """Return a layer with what `size_attributes` has written; one without a kernel ignores what is said of it."""
    dimensions = _dimensions(a, at)
    sized = replace(
        layer,
        dimensions=dimensions,
        units=math.prod(dimensions),
        drop_channels=a.count(f"{at}{DROP_CHANNELS}", 0, 1, default=0) != 0,
    )
    if not has_kernel(layer):
        return sized
    axes = a.count(f"{at}kernelDimensions", 1, 3)
    ends = a.counts(f"{at}{PADDING}", 2 * axes, 0) if f"{at}{PADDING}" in a.values else None
    convolves = layer.type is LayerType.CONVOLUTIONAL
    return replace(
        sized,
        kernel=tuple(a.count(f"{at}kernel{axis}", 1, MOST_UNITS) for axis in "XYZ"[:axes]),
        stride=tuple(a.count(f"{at}kernelStride{axis}", 1, MOST_UNITS) for axis in "XYZ"[:axes]),
        padding=None if ends is None else tuple(zip(ends[::2], ends[1::2], strict=True)),
        dilation=a.counts(f"{at}{DILATION}", axes, 1) if convolves and f"{at}{DILATION}" in a.values else (),
        groups=a.count(f"{at}{GROUPS}", 1, MOST_UNITS, default=1) if convolves else 1,
    )


def check_sizes(a: Attributes, said: NetworkSpec, found: NetworkSpec) -> None:
    """Raise DataError unless computed layers have the sizes and the padding that the file says."""
    for n, (layer, resolved) in enumerate(zip(said.layers, found.layers, strict=True)):
        if layer.units != resolved.units:
            raise a.wrong(f"layer{n}_Nx", f"sizes of {' x '.join(map(str, resolved.dimensions))}, as its sources give")
        for axis, window in zip("XYZ", _windows(found, n), strict=False):
            name = f"layer{n}_kernelPadding{axis}"
            if a.count(name, default=window.low) != window.low:
                raise a.wrong(name, f"{window.low}, as the sizes say")


def _dimensions(a: Attributes, at: str) -> tuple[int, ...]:
    """Return N; axes beyond `dimensions` must have the size 1, so that the product is the number of units."""
    count = a.count(f"{at}dimensions", 1, 4)
    sizes = [a.count(f"{at}N{axis}", 1, MOST_UNITS if n < count else 1) for n, axis in enumerate("xyzw")]
    if math.prod(sizes) > MOST_UNITS:
        raise a.wrong(f"{at}Nx", f"sizes of up to {MOST_UNITS} units together")
    return tuple(sizes[:count])
