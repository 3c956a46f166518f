"""Convolution, straight from the maps and by what is unfolded: convolution.cu, filters.cu and unfold.cu in kernels/."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from nnlib.gpu.maps.sweeps import channels_of, sweep_words
from nnlib.gpu.selfcheck.case import EPSILON, Case, Numbers, normal, nothing
from nnlib.ops import convolution
from nnlib.spec.geometry import Maps, Sweep, Window

B = 5
FIRST, SOME = 1, 3  # the examples that are unfolded
TILES = {"": (64, 64), "_narrow": (4, 1024)}  # rows and columns of a block, as in kernels/convolution.cu


def cases() -> Iterator[Case]:
    """Yield a case for each of the kernels: of groups, and of channels that are by themselves."""
    wide = sweep_of_groups(6, 10, 2)
    for kind, sweep in (("", wide), ("_narrow", sweep_of_groups(5, 5, 5))):
        yield from _products(kind, sweep)
    yield from _weights(wide, sweep_of_groups(5, 5, 5))
    yield from _unfolded(wide)


def sweep_of_groups(channels: int, targets: int, groups: int) -> Sweep:
    """Return a sweep with stride, dilation and padding that is not the same on both sides."""
    windows = (Window(9, 3, 2, 1, 0), Window(10, 3, 1, 2, 1, 2))
    source, target = ((w.size for w in windows), (w.out for w in windows))
    return Sweep(Maps(channels, tuple(source)), Maps(targets, tuple(target)), windows, groups)


def arrays_of(sweep: Sweep) -> tuple[Numbers, Numbers, Numbers]:
    """Return x, w and delta."""
    shapes = (B, sweep.source.units), (sweep.target.channels, sweep.fan_in), (B, sweep.target.units)
    first, second, third = (normal(seed, *shape) for seed, shape in enumerate(shapes))
    return first, second, third


def in_double(function: Any, left: Numbers, right: Numbers, sweep: Sweep) -> tuple[Numbers, Numbers]:
    """Return what the reference gives, and how far float32 may be from it, by the sizes of what is summed."""
    double = left.astype(np.float64), right.astype(np.float64)
    return function(*double, sweep), 16 * EPSILON * (function(*map(np.abs, double), sweep) + 4)


def _grid(sweep: Sweep, maps: Maps, channels: int, kind: str) -> tuple[int, ...]:
    rows, columns = TILES[kind]
    return math.ceil(B * maps.area / columns), math.ceil(channels / rows), sweep.groups


def _products(kind: str, sweep: Sweep) -> Iterator[Case]:
    x, w, delta = arrays_of(sweep)
    (below, above), words = channels_of(sweep), {"sweep": sweep_words(sweep), "b": B}
    wanted, near = in_double(convolution.forward, x, w, sweep)
    bias = normal(3, sweep.target.channels)
    spread = np.repeat(bias, sweep.target.area)
    given = {"x": x, "w": w, "bias": bias, "z": delta, **words, "add": 1}
    yield Case(
        f"convolution{kind}",
        _grid(sweep, sweep.target, above, kind),
        given,
        {"z": wanted + delta + spread},
        {"z": near + EPSILON * (np.abs(delta) + np.abs(spread))},
    )
    wanted, near = in_double(convolution.input_gradient, delta, w, sweep)
    given = {"delta": delta, "w": w, "gradient": x, **words, "add": 1}
    grid = _grid(sweep, sweep.source, below, kind)
    allowed = {"gradient": near + EPSILON * np.abs(x)}
    yield Case(f"convolution_input_gradient{kind}", grid, given, {"gradient": wanted + x}, allowed)


def _weights(wide: Sweep, narrow: Sweep) -> Iterator[Case]:
    x, w, delta = arrays_of(wide)
    each = 2
    parts = [slice(low, low + each) for low in range(0, B, each)]
    found = [in_double(convolution.weight_gradient, x[some], delta[some], wide) for some in parts]
    grid = math.ceil(wide.fan_in / 64), math.ceil(channels_of(wide)[1] / 64) * len(parts), wide.groups
    given = {"x": x, "delta": delta, "parts": nothing(len(parts), *w.shape), "sweep": sweep_words(wide), "b": B}
    wanted, near = (np.stack(some) for some in zip(*found, strict=True))
    yield Case("convolution_weight_gradient", grid, given | {"each": each}, {"parts": wanted}, {"parts": near})
    x, w, delta = arrays_of(narrow)
    wanted, near = in_double(convolution.weight_gradient, x, delta, narrow)
    given = {"x": x, "delta": delta, "gradient": w, "sweep": sweep_words(narrow), "b": B, "add": 1}
    name, allowed = "convolution_weight_gradient_narrow", {"gradient": near + EPSILON * np.abs(w)}
    yield Case(name, w.shape, given, {"gradient": wanted + w}, allowed)


def _unfolded(sweep: Sweep) -> Iterator[Case]:
    x, _, delta = arrays_of(sweep)
    inside, where = slice(FIRST, FIRST + SOME), {"first": FIRST, "some": SOME}
    rows, across = sweep.source.channels * sweep.volume, SOME * sweep.target.area
    u = convolution.unfold(x[inside], sweep).reshape(SOME, rows, -1).swapaxes(0, 1).reshape(rows, across)
    grid, words = (math.ceil(across / 256), 2), {"sweep": sweep_words(sweep), **where}
    yield Case("unfold", grid, {"x": x, "rows": nothing(rows, across), **words}, {"rows": u})
    given = normal(4, rows, across)
    back = given.reshape(rows, SOME, -1).swapaxes(0, 1).reshape(SOME, sweep.groups, sweep.fan_in, -1)
    wanted = x.copy()
    wanted[inside] += convolution.fold(back, sweep)
    grid = math.ceil(SOME * sweep.source.area / 256), 2
    yield Case("fold", grid, {"rows": given, "x": x, **words, "add": 1}, {"x": wanted})

    channels, count = sweep.target.channels, sweep.target.area
    maps, sizes = delta.reshape(B, channels, count), {"channels": channels, "places": count, **where}
    laid, grid = np.ascontiguousarray(maps[inside].swapaxes(0, 1)), (math.ceil(SOME * count / 256), 2)
    yield Case("maps_to_rows", grid, {"maps": maps, "rows": nothing(*laid.shape), **sizes}, {"rows": laid})
    bias = normal(5, channels)
    wanted = maps.copy()
    wanted[inside] += maps[inside] + bias[:, None]
    yield Case("rows_to_maps", grid, {"rows": laid, "bias": bias, "maps": maps, **sizes, "add": 1}, {"maps": wanted})
