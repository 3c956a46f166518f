"""Pooling, joins and normalization of maps: pooling.cu, response.cu, joining.cu and mapnorm.cu in kernels/."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnlib.gpu.buffers import unit_constants
from nnlib.gpu.maps.sweeps import sweep_words
from nnlib.gpu.selfcheck.case import EPSILON, Case, Numbers, normal, nothing
from nnlib.gpu.selfcheck.layers import kept, noise
from nnlib.ops import batch_norm, joining, pooling, response_norm
from nnlib.ops.activations import apply_dropout, dropout_derivative
from nnlib.ops.batch_norm import BatchNorm
from nnlib.spec.geometry import Maps, Sweep, Window
from nnlib.spec.types import Activation, Layer, LayerKind, LocalResponse, PoolingFunction

B, CHANNELS, PLACES = 7, 5, 36
ROWS = B * CHANNELS
EACH = 3  # examples of a part of a sum
PARTS = -(-B // EACH)
SIZES = {"b": B, "channels": CHANNELS, "places": PLACES}
IN_ROWS = {"rows": ROWS, "channels": CHANNELS, "places": PLACES}


def cases() -> Iterator[Case]:
    """Yield at least one case for each of the kernels."""
    yield from _pooling()
    yield from _response()
    yield from _dropout()
    yield from _joins()
    yield from _comparisons()
    yield from _norm()
    yield from _norm_backward()


def _pooling() -> Iterator[Case]:
    windows = (Window(9, 3, 2, 1, 0), Window(10, 2, 1, 0, 1, 2))
    source, target = (Maps(CHANNELS, tuple(getattr(w, name) for w in windows)) for name in ("size", "out"))
    sweep = Sweep(source, target, windows)
    words: dict[str, Any] = {"sweep": sweep_words(sweep), "rows": ROWS}
    x, delta = np.maximum(normal(1, B, source.units), 0), normal(2, B, target.units)
    for name, function in (("max_pool", PoolingFunction.MAX), ("average_pool", PoolingFunction.AVERAGE)):
        a = pooling.forward(function, x, sweep)
        yield Case(name, (2,), {"x": x, "a": nothing(*a.shape), **words}, {"a": a})
        seen = {"x": x, "a": a} if function is PoolingFunction.MAX else {}
        wanted = x + pooling.backward(function, x, a, delta, sweep)
        given = {**seen, "delta": delta, "below": x, **words, "add": 1}
        if seen:
            given["below"] = x.copy()
        yield Case(f"{name}_backward", (2,), given, {"below": wanted})


def _response() -> Iterator[Case]:
    rule, maps = LocalResponse(1.5, 4, 0.3, 0.6), Maps(CHANNELS, (PLACES,))
    x, delta, before = (2 * normal(seed, B, maps.units) for seed in (3, 4, 5))
    half = {"half": (rule.n - 1) // 2, "rest": rule.n // 2}
    constants = {"k": rule.k, "share": rule.alpha / rule.n, "beta": rule.beta}
    given = {"x": x, "count": x.size, "channels": CHANNELS, "places": PLACES, **half, **constants}
    wanted = response_norm.forward(rule, x.astype(np.float64), maps)
    yield Case(
        "response_norm", (2,), given | {"y": nothing(*x.shape)}, {"y": wanted}, {"y": 32 * EPSILON * abs(wanted)}
    )
    wanted = before + response_norm.backward(rule, x.astype(np.float64), delta.astype(np.float64), maps)
    given |= {"delta": delta, "below": before, "add": 1}
    yield Case("response_norm_backward", (2,), given, {"below": wanted}, {"below": 256 * EPSILON})


def _dropout() -> Iterator[Case]:
    layer = Layer("H", LayerKind.HIDDEN, CHANNELS * PLACES, activation=Activation.ELU, dropout=0.25)
    keep = np.repeat(kept((B, CHANNELS), layer.dropout), PLACES, axis=1).reshape(ROWS, PLACES)
    a, given = normal(6, ROWS, PLACES), {"rows": ROWS, "n": PLACES, "unit": unit_constants(layer), **noise()}
    yield Case("drop_maps", (2,), {"a": a, "out": nothing(*a.shape), **given}, {"out": apply_dropout(layer, a, keep)})
    wanted = a * dropout_derivative(layer, keep, a.dtype)
    yield Case("drop_maps_backward", (2,), {"delta": a, **given}, {"delta": wanted})


def _joins() -> Iterator[Case]:
    x, y, delta, before = (normal(seed, ROWS, PLACES) for seed in (7, 8, 9, 10))
    rows, factor = {"rows": ROWS, "n": PLACES}, normal(11, ROWS)
    yield Case("mul_maps", (2,), {"x": x, "y": factor, **rows}, {"x": x * factor[:, None]})
    sums, near = x.sum(axis=1, dtype=np.float64), EPSILON * PLACES * np.abs(x).sum(axis=1)
    yield Case(
        "sum_maps", (2,), {"x": x, "sums": factor, **rows, "add": 1}, {"sums": factor + sums}, {"sums": near + EPSILON}
    )
    wide = normal(12, ROWS, PLACES + 3)
    wanted = wide.copy()
    wanted[:, :PLACES] += x
    yield Case(
        "copy_rows", (2,), {"from": x, "to": wide, **rows, "ld": PLACES, "to_ld": PLACES + 3, "add": 1}, {"to": wanted}
    )
    a = np.maximum(x, y)
    yield Case("maximum", (2,), {"x": x, "y": y, "n": x.size}, {"x": a})
    given = {"x": x, "a": a, "delta": delta, "below": before, "n": x.size, "add": 1}
    yield Case("maxout_backward", (2,), given, {"below": before + delta * (x == a)})


def _comparisons() -> Iterator[Case]:
    x, y, delta, before = (normal(seed, B, PLACES) for seed in (13, 14, 15, 16))
    for cosine, function in enumerate((PoolingFunction.DOT_PRODUCT, PoolingFunction.COSINE)):
        pair, maps = [x.astype(np.float64), y.astype(np.float64)], [Maps(PLACES, ())] * 2
        a, share = joining.forward(function, pair, maps), delta[:, 1:2].astype(np.float64)
        given = {"x": x, "y": y, "rows": B, "n": PLACES, "ld": 3, "at": 1, "cosine": cosine}
        wanted = nothing(B, 3)
        wanted[:, 1] = a[:, 0]
        near = PLACES * EPSILON * np.abs(x * y).sum(axis=1, keepdims=True)
        yield Case("compare_rows", (2,), given | {"a": nothing(B, 3)}, {"a": wanted}, {"a": near})
        below = joining.backward(function, pair, maps, a, share)[0]
        given |= {"delta": np.ascontiguousarray(delta[:, :3]), "below": before, "add": 1}
        near = 8 * PLACES * EPSILON * (np.abs(below).max(axis=1, keepdims=True) + np.abs(before))
        yield Case("compare_rows_backward", (2,), given, {"below": before + below}, {"below": near})


def _columns(x: Numbers) -> Numbers:
    """Return (b, C, S) as (b S, C): the channels are units of b S examples."""
    return x.astype(np.float64).swapaxes(1, 2).reshape(-1, CHANNELS)


def _maps(columns: Numbers) -> Numbers:
    return columns.reshape(B, PLACES, CHANNELS).swapaxes(1, 2)


def _parameters() -> dict[str, Numbers]:
    arrays = np.random.default_rng(17).uniform(0.5, 2, (4, CHANNELS)).astype(np.float32)
    return dict(zip(("scale", "bias", "mean", "variance"), arrays, strict=True))


def _norm() -> Iterator[Case]:
    z, given = 3 + 2 * normal(18, B, CHANNELS, PLACES), _parameters()
    norm = BatchNorm(*(array.astype(np.float64) for array in given.values()))
    means, squares = np.zeros((PARTS, CHANNELS)), np.zeros((PARTS, CHANNELS))
    for part in range(PARTS):
        some = z[part * EACH : part * EACH + EACH].astype(np.float64)
        means[part] = some.mean(axis=(0, 2))
        squares[part] = np.square(some - means[part][:, None]).sum(axis=(0, 2))
    rooms = {"means": nothing(PARTS, CHANNELS), "squares": nothing(PARTS, CHANNELS)}
    near = 32 * EPSILON * np.abs(z).max()
    yield Case(
        "map_moments",
        (CHANNELS, PARTS),
        {"z": z, **rooms, **SIZES, "each": EACH},
        {"means": means, "squares": squares},
        {"means": near, "squares": 32 * EPSILON * (squares + EACH * PLACES)},
    )
    normed, out = batch_norm.forward(norm, _columns(z))
    center = _columns(z).mean(axis=0)
    single = {"means": means.astype(np.float32), "squares": squares.astype(np.float32)}
    running = {"mean": given["mean"], "variance": given["variance"]}
    yield Case(
        "map_statistics",
        (1,),
        {**single, "center": nothing(CHANNELS), "inverse": nothing(CHANNELS), **running, **SIZES, "each": EACH},
        {"center": center, "inverse": normed.inverse, "mean": norm.mean, "variance": norm.variance},
        {"center": near, "inverse": near, "mean": near, "variance": 4 * near},
    )
    whole, rounded = batch_norm.moments_of(z.astype(np.float64)), 64 * EPSILON
    pair = (
        {"out": np.array([whole.mean, whole.squares])},
        {"out": np.array([near + 0 * center, rounded * whole.squares])},
    )
    yield Case("map_moments_join", (1,), {**single, "out": nothing(2, CHANNELS), **SIZES, "each": EACH}, *pair)
    given_parts = nothing(PARTS + 1, 2, CHANNELS)  # of shards 5, 6, ... of a batch, the last one without examples
    given_parts[:PARTS, 0], given_parts[:PARTS, 1] = single["means"], single["squares"]
    place = {"first": 5, "each": EACH, "examples": 5 * EACH + B, "places": PLACES}
    arguments = {"parts": given_parts, "count": PARTS + 1, "out": nothing(2, CHANNELS), "channels": CHANNELS, **place}
    yield Case("join_moments", (1,), arguments, *pair)
    constants = {"center": center.astype(np.float32), "inverse": normed.inverse.astype(np.float32)}
    yield Case(
        "map_norm",
        (2,),
        {"z": z, "normal": nothing(*z.shape), **constants, "scale": given["scale"], "bias": given["bias"], **IN_ROWS},
        {"z": _maps(out), "normal": _maps(normed.normal)},
        {"z": 4 * near, "normal": 2 * near},
    )
    columns = z.swapaxes(1, 2).copy().reshape(-1, CHANNELS)
    wanted = _maps(batch_norm.inference(BatchNorm(**_parameters()), columns))
    yield Case("map_norm_inference", (2,), {"z": z, **given, **IN_ROWS}, {"z": wanted})


def _norm_backward() -> Iterator[Case]:
    delta, normed = normal(19, B, CHANNELS, PLACES), normal(20, B, CHANNELS, PLACES)
    given, count = _parameters(), B * PLACES
    inverse = given["mean"]
    parts = [slice(part * EACH, part * EACH + EACH) for part in range(PARTS)]
    wanted = {
        "sums": np.array([delta[some].sum(axis=(0, 2), dtype=np.float64) for some in parts]),
        "products": np.array([(delta * normed)[some].sum(axis=(0, 2), dtype=np.float64) for some in parts]),
    }
    rooms = {"sums": nothing(PARTS, CHANNELS), "products": nothing(PARTS, CHANNELS)}
    arguments = {"x": delta, "y": normed, **rooms, **SIZES, "each": EACH}
    yield Case("map_sums", (CHANNELS, PARTS), arguments, wanted, {"sums": 1e-4, "products": 1e-4})
    norm = BatchNorm(*(array.astype(np.float64) for array in given.values()))
    kept = batch_norm.Normed(_columns(normed), inverse.astype(np.float64))
    below, of_scale, of_bias = batch_norm.backward(norm, kept, _columns(delta))
    gradients = {"scale_gradient": of_scale.astype(np.float32), "bias_gradient": of_bias.astype(np.float32)}
    given_rows = {"scale": given["scale"], **gradients, "examples": B, **IN_ROWS}
    arguments = {"delta": delta, "normal": normed, "inverse": inverse, **given_rows}
    size = np.abs(_columns(delta)).sum() / count
    yield Case("map_norm_backward", (2,), arguments, {"delta": _maps(below)}, {"delta": 64 * EPSILON * (4 + size)})
