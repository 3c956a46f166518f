"""Whole layers, forwards and backwards: activation.cu, rowwise.cu, batchnorm.cu and limits.cu in kernels/."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from nnlib.gpu.buffers import ACTIVATIONS, unit_constants
from nnlib.gpu.optimizer import CHUNK
from nnlib.gpu.selfcheck.case import EPSILON, Case, Numbers, normal, nothing
from nnlib.model.batches import DROPOUT, generator_for
from nnlib.ops import batch_norm
from nnlib.ops.activations import (
    ROWWISE,
    SMALLEST_SUM,
    activate,
    activation_gradient,
    apply_dropout,
    dropout_constants,
    rowwise_sum,
)
from nnlib.ops.batch_norm import BatchNorm
from nnlib.ops.limits import limit_norms, sparseness_gradient
from nnlib.ops.losses import softmax_normalizer, softmax_part
from nnlib.shards.tree import SHARDS
from nnlib.spec.types import Activation, Layer, LayerKind, Sparseness

B, N, GAP = 33, 65, 3
SEED, STEP, LAYERS, LAYER = 987_654_321, 1_234_567, 5, 3
KEY = SEED << 8 | DROPOUT
GRID = (math.ceil(N / 32),)
TALL = 2 * CHUNK + 5  # rows that several blocks share


def cases() -> Iterator[Case]:
    """Yield at least one case for each of the kernels."""
    for kind in Activation:
        yield from _activation(_layer(kind, 0.25))
    yield _bias()
    for kind in ROWWISE:
        yield from _rowwise(_layer(kind))
    yield _log_sum_exp()
    yield from _log_sum_exp_by_shard()
    yield from _batch_norm()
    yield from _limits()


def noise() -> dict[str, Any]:
    """Return what a kernel needs to draw a mask."""
    return {"key": KEY, "step": np.array([STEP], np.int64), "layers": LAYERS, "layer": LAYER, "before": 0}


def kept(shape: tuple[int, ...], p: float) -> Numbers:
    """Return the mask that it draws."""
    return np.asarray(generator_for(SEED, DROPOUT, STEP * LAYERS + LAYER).random(shape, np.float32) >= p)


def _layer(kind: Activation, dropout: float = 0.0) -> Layer:
    """Return a layer whose constants are floats without rounding, so that both precisions have the same."""
    return Layer("H", LayerKind.HIDDEN, N, activation=kind, slope=0.25, alpha=1.5, selu_lambda=1.125, dropout=dropout)


def _activation(layer: Layer) -> Iterator[Case]:
    plain = layer if layer.activation not in ROWWISE else dataclasses.replace(layer, activation=Activation.LINEAR)
    z, bias, penalty, delta = normal(1, B, N), normal(2, N), normal(3, N), normal(4, B, N)
    keep, kind = kept((B, N), layer.dropout), ACTIVATIONS.index(layer.activation)
    wanted = activate(plain, (z + bias).astype(np.float64))
    scale, shift, _ = dropout_constants(layer)
    shared = {"count": z.size, "unit": unit_constants(layer), **noise()}
    sizes = {**shared, "n": N, "kind": kind}
    near = 8 * EPSILON * np.abs(wanted) + 1e-37
    yield Case(
        "bias_activation_dropout",
        (2,),
        {"z": z, "out": nothing(B, N), "bias": bias, "sums": nothing(B, N), **sizes, "broken": np.zeros(1, np.int32)},
        {"z": wanted, "sums": z + bias, "out": apply_dropout(layer, wanted, keep), "broken": np.zeros(1)},
        {"z": near, "out": scale * near + 4 * EPSILON * (scale * np.abs(wanted) + abs(shift) + 2)},
    )
    a = wanted.astype(np.float32)
    yield Case("dropout", (2,), {"a": a, "out": nothing(B, N), **shared}, {"out": apply_dropout(layer, a, keep)})
    above = delta.astype(np.float64) * keep * scale + penalty
    flags = {"out": None, "penalty": penalty, "dropped": 1, "unmasked": 0}
    yield Case(
        "activation_dropout_backward",
        (2,),
        {"delta": delta, "a": a, **flags, **sizes},
        {"delta": activation_gradient(plain, above, a.astype(np.float64))},
        {"delta": 16 * EPSILON * (np.abs(delta) + np.abs(penalty)) * 2 * (1 + scale)},
    )


def _bias() -> Case:
    z, bias = normal(5, B, N + GAP), normal(6, N)
    wanted = z.copy()
    wanted[:, :N] += bias
    return Case("add_bias", (3,), {"z": z, "bias": bias, "b": B, "n": N, "ld": N + GAP}, {"z": wanted})


def _rowwise(layer: Layer) -> Iterator[Case]:
    kind, sizes = layer.activation, {"b": B, "n": N, "ld": N}
    z, delta = 3 * normal(7, B, N), normal(8, B, N)
    wide = z.astype(np.float64)
    wanted, number = activate(layer, wide.copy()), {"kind": ACTIVATIONS.index(kind)}
    a, total = wanted.astype(np.float32), None
    if kind is Activation.SOFTMAX:
        near = (16 + z.max(axis=1, keepdims=True) - z) * EPSILON * wanted
        yield Case("softmax", (B,), {"z": z, **sizes}, {"z": wanted}, {"z": near})
    else:
        total = rowwise_sum(layer, wide)
        yield Case(
            "rowwise_activation",
            (B,),
            {"z": z, "total": nothing(B), **sizes, **number},
            {"z": wanted, "total": total[:, 0]},
            {"z": 16 * EPSILON * np.abs(wanted), "total": 16 * EPSILON * total[:, 0]},
        )
    below = activation_gradient(layer, delta.astype(np.float64), a.astype(np.float64), total)
    mean = (np.abs(delta) * np.abs(a)).sum(axis=1, keepdims=True)
    size = (np.abs(delta) + mean) * (np.abs(a) if total is None else (total > SMALLEST_SUM) / total)
    given = None if total is None else total[:, 0].astype(np.float32)
    arguments = {"delta": delta, "a": a, "total": given, **sizes, **number}
    yield Case("rowwise_backward", (B,), arguments, {"delta": below}, {"delta": 16 * EPSILON * size})


def _log_sum_exp() -> Case:
    z, bias = 3 * normal(9, B, N), normal(10, N)
    wanted = softmax_normalizer([softmax_part((z + bias).astype(np.float64))])[:, 0]
    arguments = {"z": z, "bias": bias, "normalizer": nothing(B), "b": B, "n": N, "ld": N}
    return Case("log_sum_exp", (B,), arguments, {"normalizer": wanted}, {"normalizer": EPSILON * (16 + np.abs(wanted))})


def _log_sum_exp_by_shard() -> Iterator[Case]:
    """Yield what a shard has for the normalizer of a SoftMax, and how those of all shards become it."""
    z, bias = 3 * normal(9, B, N + GAP), normal(10, N)
    sums = (z[:, :N] + bias).astype(np.float64)
    highest = sums.max(axis=1, keepdims=True)
    wanted = np.hstack([highest, np.exp(sums - highest).sum(axis=1, keepdims=True)])
    given = {"z": z, "bias": bias, "parts": nothing(B, 2), "b": B, "n": N, "ld": N + GAP}
    yield Case("exp_parts", (B,), given, {"parts": wanted}, {"parts": EPSILON * 32 * np.array([0, 1]) * wanted})
    parts = np.stack([5 * normal(11, SHARDS, B), np.abs(normal(12, SHARDS, B)) + 1], axis=2)
    total = np.log((parts[..., 1] * np.exp(parts[..., 0].astype(np.float64))).sum(axis=0))
    joined = {"parts": parts, "normalizer": nothing(B), "b": B}
    yield Case("join_parts", (1,), joined, {"normalizer": total}, {"normalizer": EPSILON * (16 + np.abs(total))})


def _batch_norm() -> Iterator[Case]:
    z, delta, sizes = 3 + 2 * normal(11, B, N), normal(12, B, N), {"b": B, "n": N}
    scale, bias, mean, variance = np.random.default_rng(13).uniform(0.5, 2, (4, N)).astype(np.float32)
    given = {"scale": scale, "bias": bias, "mean": mean, "variance": variance}
    norm = BatchNorm(*(array.astype(np.float64) for array in given.values()))
    normed, out = batch_norm.forward(norm, z.astype(np.float64))
    # z - mean is as wrong as the largest sum of its column, however close to the mean it is
    largest = np.abs(z).max(axis=0)
    relative = 16 * EPSILON * (1 + largest * normed.inverse)
    near = relative * (1 + np.abs(normed.normal))
    yield Case(
        "batch_norm",
        GRID,
        {"z": z, "normal": nothing(B, N), "inverse": nothing(N), **given, **sizes},
        {"z": out, "normal": normed.normal, "inverse": normed.inverse, "mean": norm.mean, "variance": norm.variance},
        {
            "z": 2 * near * scale + EPSILON * np.abs(bias),
            "normal": near,
            "inverse": relative * normed.inverse,
            "mean": 8 * EPSILON * (1 + largest),
            "variance": 16 * EPSILON * (1 + largest**2),
        },
    )
    wanted = batch_norm.inference(BatchNorm(**given), z.copy())
    yield Case("batch_norm_inference", (3,), {"z": z, **given, **sizes, "ld": N}, {"z": wanted})
    x, inverse = normed.normal.astype(np.float32), normed.inverse.astype(np.float32)
    single = batch_norm.Normed(x.astype(np.float64), inverse.astype(np.float64))
    below, of_scale, of_bias = batch_norm.backward(norm, single, delta.astype(np.float64))
    size, size_normal = np.abs(delta).sum(axis=0), np.abs(delta * x).sum(axis=0)
    gradients = {"scale_gradient": nothing(N), "bias_gradient": nothing(N)}
    yield Case(
        "batch_norm_backward",
        GRID,
        {"delta": delta, "normal": x, "inverse": inverse, "scale": scale, **gradients, **sizes},
        {"delta": below, "scale_gradient": of_scale, "bias_gradient": of_bias},
        {
            "delta": 16 * EPSILON * (np.abs(delta) + size / B + np.abs(x) * size_normal / B) * scale * inverse,
            "scale_gradient": 16 * EPSILON * size_normal,
            "bias_gradient": 16 * EPSILON * size,
        },
    )


def _limits() -> Iterator[Case]:
    def limited(name: str, w: Numbers, limit: float, axis: int, times: int, arguments: dict[str, Any]) -> Case:
        wanted = w.astype(np.float64)
        limit_norms(wanted, limit, axis, times)
        return Case(
            name, (len(w),), {array: w, **arguments, "limit": limit}, {array: wanted}, {array: near * abs(wanted)}
        )

    near, array = 16 * EPSILON, "delta"
    rows = normal(14, B, N) * np.random.default_rng(15).uniform(0, 1.4, (B, 1)).astype(np.float32)
    length = 0.7 * N**0.5  # some rows are above it, some below
    yield limited("limit_delta", rows, length * B, 1, B, {"b": B, "n": N, "ld": N})
    array = "w"
    yield limited("limit_rows", rows, length, 1, 1, {"rows": B, "n": N})

    w = normal(16, TALL, N) * np.random.default_rng(17).uniform(0, 1.4, N).astype(np.float32)
    grid, shape = (math.ceil(N / 32), math.ceil(TALL / CHUNK)), {"rows": TALL, "n": N}
    squares = np.square(w.astype(np.float64))
    parts = np.array([squares[low : low + CHUNK].sum(axis=0) for low in range(0, TALL, CHUNK)])
    given, single = {"w": w, "parts": nothing(*parts.shape), **shape}, parts.astype(np.float32)
    yield Case("column_squares", grid, given, {"parts": parts}, {"parts": CHUNK / 8 * EPSILON * parts})
    wanted, limit = w.astype(np.float64), 0.7 * TALL**0.5
    limit_norms(wanted, limit, 0)
    yield Case(
        "limit_columns",
        grid,
        {"w": w, "parts": single, **shape, "limit": limit},
        {"w": wanted},
        {"w": near * np.abs(wanted)},
    )

    a = np.random.default_rng(18).uniform(0.05, 0.95, (B, N)).astype(np.float32)
    p, beta, mean = 0.125, 2.5, a.mean(axis=0, dtype=np.float64)
    yield Case(
        "sparseness",
        GRID,
        {"a": a, "penalty": nothing(N), "b": B, "n": N, "p": p, "beta": beta},
        {"penalty": sparseness_gradient(Sparseness(p, beta), a.astype(np.float64))},
        {"penalty": near * beta / B * ((1 - p) / (1 - mean) ** 2 + p / mean)},  # its two parts may cancel
    )
