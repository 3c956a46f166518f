"""The sizes of a network's layers: each follows from those it is computed of, and what cannot be is named.

Pure, standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from nnlib.spec.geometry import Maps, Window, has_kernel, is_computed, kernel_shape, view_maps, windows_of
from nnlib.spec.json_section import MOST_UNITS, Problems, SpecError, show
from nnlib.spec.topology import COMPARING, order
from nnlib.spec.types import Layer, LayerKind, LayerType, NetworkSpec, PoolingFunction

GLOBAL = (PoolingFunction.GLOBAL_MAX, PoolingFunction.GLOBAL_AVERAGE)
AXES = "xyz"
MOST_PADDING = 4, 1024  # times an axis, and values besides that all axes share


def resolve_sizes(spec: NetworkSpec, file: str) -> NetworkSpec:
    """Return the network with the units and dimensions of every layer that is computed of layers with known ones.

    Raises SpecError with every layer whose sources do not fit it: the sizes seen, and the nearest that are legal. The
    network must have been through `check_topology`.
    """
    problems = Problems(file)
    over: dict[str, list[Layer]] = {}
    for layer in spec.layers:
        for name in layer.sources if has_kernel(layer) and layer.kernel else ():
            over.setdefault(name, []).append(layer)
    layers = [_with_channel(layer, over.get(layer.name, ())) for layer in spec.layers]
    for n in order(spec):
        layer = layers[n]
        sources = [layers[spec.places[name]] for name in layer.sources]
        auto = layer.type is LayerType.CONVOLUTIONAL and not layer.dimensions  # as many maps as its data say
        if not is_computed(layer) or auto or any(source.units is None for source in sources):
            continue
        dimensions, found = _size(layer, sources)
        units = math.prod(dimensions)
        if units > MOST_UNITS:
            found.append(("N", f"{_show(dimensions)} are {units:,} units, legal: up to {MOST_UNITS:,}"))
        if not found:
            layers[n] = _completed(layer, dimensions)
        for path, text in found:
            problems.add(_place(n, layer, path), text)
    if problems.found:
        raise SpecError(problems.found)
    resolved = replace(spec, layers=tuple(layers))
    for n, layer in enumerate(layers):
        for path, text in (*_skip_problems(resolved, layer), *_shared_problems(resolved, n)):
            problems.add(_place(n, layer, path), text)
    if problems.found:
        raise SpecError(problems.found)
    return resolved


def _place(number: int, layer: Layer, path: str) -> str:
    """Return where a problem is, with the layer's name, by which `inspect` shows it and others take it as a source."""
    return f"Layers[{number}].{path} of {show(layer.name)}"


def fit_data(layer: Layer, width: int, dimensions: tuple[int, ...], is_sparse: bool) -> Layer:
    """Return an Input or Output layer with the size of its data set, of which dimensions may say nothing.

    The sources of a computed one say how many units it has, and it only how many maps: data with as many axes as its
    kernel are one map.
    """
    dimensions = layer.dimensions or dimensions or (width,)
    if is_computed(layer):
        one = len(dimensions) > 1 and len(layer.kernel) == len(dimensions)
        return replace(layer, dimensions=(*dimensions, 1) if one else dimensions)
    sparse = is_sparse if layer.kind is LayerKind.INPUT else layer.sparse
    return replace(layer, units=width, dimensions=dimensions, sparse=sparse)


def refuse_data(spec: NetworkSpec, source: Layer, dimensions: tuple[int, ...], is_sparse: bool) -> Iterator[str]:
    """Yield what is wrong with the data set of an Input layer whose values have places, as those of images have."""
    said, found = (_without_ones(sizes) for sizes in (source.dimensions, dimensions))
    for layer in spec.layers if source.kind is LayerKind.INPUT else ():
        if not is_computed(layer) or source.name not in layer.sources:
            continue
        if is_sparse:
            what = f"{layer.type}" + (f" with Function {layer.function}" if layer.function else "")
            yield (
                f"layer {layer.name}: of type {what}, takes {source.name}, whose data set {source.data_set!r} is "
                "sparse; legal: a dense data set"
            )
        elif len(said) > 1 and len(found) > 1 and said != found:
            yield (
                f"layer {source.name}: N is {_show(source.dimensions)}, data set {source.data_set!r} is "
                f'{_show(dimensions)}; legal: {show(list(dimensions))} or "auto"'
            )


def _without_ones(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes without those of 1 at the end, such as one channel."""
    return _without_ones(sizes[:-1]) if sizes[-1:] == (1,) else sizes


def _with_channel(layer: Layer, over: Sequence[Layer]) -> Layer:
    """Return a layer of as many axes as the kernels of those `over` it have, with one channel besides."""
    if is_computed(layer) or layer.units is None:
        return layer
    if over and all(len(other.kernel) == len(layer.dimensions) for other in over):
        return replace(layer, dimensions=(*layer.dimensions, 1))
    return layer


def _completed(layer: Layer, dimensions: tuple[int, ...]) -> Layer:
    """Return a computed layer with its size, and with a number for every axis of its kernel."""
    layer = replace(layer, dimensions=dimensions, units=math.prod(dimensions))
    if not has_kernel(layer):
        return layer
    ones = (1,) * (len(layer.kernel) or len(dimensions) - 1)
    return replace(layer, kernel=layer.kernel or ones, stride=layer.stride or ones, dilation=layer.dilation or ones)


def _size(layer: Layer, sources: Sequence[Layer]) -> tuple[tuple[int, ...], list[tuple[str, str]]]:
    """Return the dimensions of a computed layer, and what keeps it from having them."""
    if has_kernel(layer):
        return _swept_size(layer, sources)
    first = max(sources, key=lambda source: (source.units or 0, len(source.dimensions)))
    dimensions = first.dimensions or (first.units or 0,)
    if layer.function in COMPARING:
        dimensions = (len(sources) - 1,)
    elif layer.function in GLOBAL:
        dimensions = (*(1 for _ in dimensions[:-1]), dimensions[-1])
    elif layer.function is PoolingFunction.CONCATENATE:
        dimensions = (*_largest_sizes(sources), sum(view_maps(source).channels for source in sources))
    return dimensions, list(_join_problems(layer, sources))


def _largest_sizes(sources: Sequence[Layer]) -> tuple[int, ...]:
    """Return the sizes, x first, of the source with the most axes."""
    return max((view_maps(source).sizes[::-1] for source in sources), key=len)


def _swept_size(layer: Layer, sources: Sequence[Layer]) -> tuple[tuple[int, ...], list[tuple[str, str]]]:
    found: list[tuple[str, str]] = []
    sizes: dict[str, tuple[int, ...]] = {}
    channels = view_maps(sources[0]).channels if layer.type is LayerType.POOLING else layer.dimensions[-1]
    for source in sources:
        maps = view_maps(source)
        problem = _axes_problem(layer, source)
        if problem:
            found.append(problem)
            continue
        windows = windows_of(layer, maps.sizes[::-1])
        found += _window_problems(layer, source, windows)
        if layer.type is LayerType.CONVOLUTIONAL:
            found += _group_problems(layer, source, maps.channels, channels)
        sizes[source.name] = tuple(window.out for window in windows)
    if not found and len(set(sizes.values())) > 1:
        seen = ", ".join(f"{show(name)} {_show(size)}" for name, size in sizes.items())
        found.append(("Source", f"maps of different sizes from {seen}, legal: sources of one size"))
    dimensions = (*next(iter(sizes.values()), ()), channels)
    said = layer.dimensions if layer.type is LayerType.CONVOLUTIONAL else ()
    if not found and len(said) > 1 and said != dimensions:
        legal = f"{channels}, the number of maps, or {_show(dimensions)}"
        found.append(("N", f"{_show(said)} is not what its sources give, legal: {legal}"))
    return dimensions, found


def _axes_problem(layer: Layer, source: Layer) -> tuple[str, str] | None:
    """Return what is wrong when a kernel has another number of axes than the maps it moves over."""
    axes = len(view_maps(source).sizes)
    seen = f"{show(source.name)} has {_show(source.dimensions)}"
    if not axes:
        wish = "such as [28, 28, 1] for images of one channel: width, height, channels"
        data = "a data set with width, height and channels, or " if source.kind is LayerKind.INPUT else ""
        return "Source", f"{seen} units and no maps, legal: {data}N of {show(source.name)} {wish}"
    if not layer.kernel or len(layer.kernel) == axes:
        return None
    legal = f"{axes} number{'s' * (axes > 1)}, such as {show([layer.kernel[0]] * axes)}"
    return "Kernel", f"{show(list(layer.kernel))} has {len(layer.kernel)}, {seen}, legal: {legal}"


def _window_problems(layer: Layer, source: Layer, windows: Sequence[Window]) -> Iterator[tuple[str, str]]:
    times, besides = MOST_PADDING
    for axis, window in zip(AXES, windows, strict=False):
        most_padding = times * window.size + besides // len(windows)
        dilated = f" with Dilation {window.dilation}" if window.dilation > 1 else ""
        if layer.type is LayerType.POOLING and max(window.low, window.high) >= window.kernel:
            legal = f"less than Kernel, here {window.kernel}"
            yield "Padding", f"{max(window.low, window.high)} would pool nothing but padding, legal: {legal}"
        elif window.low + window.high > most_padding and layer.padding is not None:
            seen = f"{window.low} + {window.high} on axis {axis}, where {show(source.name)} has {window.size}"
            yield "Padding", f"{seen}, legal: up to {most_padding} together"
        elif window.low + window.high > most_padding:
            seen = f"{window.kernel}{dilated} on axis {axis} covers {window.span}"
            legal = f"a kernel that covers up to {window.size + most_padding}"
            yield "Kernel", f"{seen}, where {show(source.name)} has {window.size}, legal: {legal}"
        elif window.out < 1:
            room = window.size + window.low + window.high
            most = (room - 1) // window.dilation + 1
            yield (
                "Kernel",
                f"{window.kernel}{dilated} on axis {axis} covers {window.span} of the {room} that {show(source.name)} "
                f"has there with its padding ({window.size} + {window.low} + {window.high}), legal: a kernel of up to "
                f"{most}, or Padding of {window.span - window.size} or more together",
            )


def _group_problems(layer: Layer, source: Layer, below: int, above: int) -> Iterator[tuple[str, str]]:
    for count, what in ((below, f"channels of {show(source.name)}"), (above, f"maps of {show(layer.name)}")):
        if count % layer.groups:
            legal = nearest_divisors(math.gcd(below, above), layer.groups)
            yield "Groups", f"{layer.groups} do not divide the {count} {what}, legal: {' or '.join(map(str, legal))}"
            return


def nearest_divisors(count: int, wish: int) -> list[int]:
    """Return the largest divisor of `count` up to `wish`, and the smallest from there, where there is one."""
    small = [n for n in range(1, math.isqrt(count) + 1) if count % n == 0]
    divisors = sorted({*small, *(count // n for n in small)})
    below, above = [n for n in divisors if n <= wish], [n for n in divisors if n >= wish]
    return sorted({*below[-1:], *above[:1]})


def _join_problems(layer: Layer, sources: Sequence[Layer]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the sizes of sources that are put together value by value, or channel by channel."""
    maps = {source.name: view_maps(source) for source in sources}
    seen = ", ".join(f"{show(source.name)} {_show(source.dimensions or (source.units or 0,))}" for source in sources)
    if layer.function is PoolingFunction.CONCATENATE:
        if len({one.sizes for one in maps.values() if one.spatial}) > 1 or len({one.area for one in maps.values()}) > 1:
            yield "Source", f"maps of different sizes: {seen}, legal with Function Concatenate: one size, any channels"
    elif layer.function is PoolingFunction.PRODUCT:
        widest = max(maps.values(), key=lambda one: one.units)
        if any(not _fits(one, widest) and (one.spatial or one.units != widest.channels) for one in maps.values()):
            legal = f"{_show((*widest.sizes[::-1], widest.channels))}, or {widest.channels}, one value a channel"
            yield "Source", f"sources of different sizes: {seen}, legal with Function Product: {legal}"
    elif len(sources) > 1 and not all(_fits(one, other) for one in maps.values() for other in maps.values()):
        yield "Source", f"sources of different sizes: {seen}, legal with Function {layer.function}: one size"


def _fits(one: Maps, other: Maps) -> bool:
    """Whether values can be put together one by one: as many of them, in maps of one size where both have maps."""
    return one.units == other.units and (one.sizes == other.sizes or not (one.spatial and other.spatial))


def _skip_problems(spec: NetworkSpec, layer: Layer) -> Iterator[tuple[str, str]]:
    for name in layer.skips:
        source = spec.layers[spec.places[name]]
        if None in (source.units, layer.units):
            continue
        have_maps = is_computed(layer) or is_computed(source)  # else units are added by their numbers
        if source.units != layer.units or (have_maps and not _fits(view_maps(source), view_maps(layer))):
            seen, legal = (_show(one.dimensions or (one.units or 0,)) for one in (source, layer))
            yield "Skip", f"{show(name)} has {seen} units, legal: {legal}, as {show(layer.name)} has"


def _shared_problems(spec: NetworkSpec, number: int) -> Iterator[tuple[str, str]]:
    """Yield what keeps the kernels of an edge from being those of another."""
    layer = spec.layers[number]
    if layer.type is not LayerType.CONVOLUTIONAL:
        return
    for i, shared in enumerate(layer.shared):
        path, owner = f"SharedWeights[{i}]", spec.layers[spec.places[shared.owner_target]]
        ends = (spec.places[shared.source], number), (spec.places[shared.owner_source], spec.places[owner.name])
        if shared.transposed:
            yield f"{path}.Transposed", "true is not legal for a layer of type Convolutional, legal: false"
        elif layer.units is not None and owner.units is not None:
            own, theirs = (kernel_shape(spec, *pair) for pair in ends)
            if own != theirs:
                pair = f"{show(shared.owner_source)} to {show(owner.name)}"
                yield path, f"the weights from {pair} are {_show(theirs)}, legal: {_show(own)} (maps, channels, kernel)"


def _show(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))
