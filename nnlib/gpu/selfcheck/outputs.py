"""The errors of output layers: kernels/output.cu."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from nnlib.gpu.buffers import ACTIVATIONS, ERRORS, error_constants, unit_constants
from nnlib.gpu.output import DROPPED, TILE
from nnlib.gpu.selfcheck.batches import packed
from nnlib.gpu.selfcheck.case import EPSILON, Case, Numbers, normal, nothing
from nnlib.gpu.selfcheck.layers import kept, noise
from nnlib.ops.losses import Error, block_error, error_of, softmax_normalizer, softmax_part
from nnlib.ops.targets import Targets, targets_of
from nnlib.spec.types import Activation, Boost, ErrorFunction, Layer, LayerKind, Marginal, NetworkSpec

B, N = 5, 200  # units of one tile, so that each example has a loss of its own
MARGIN = Marginal(one_target=0.75, zero_target=0.25, one_scale=3.0, zero_scale=0.5)
CASES = (
    (ErrorFunction.CROSS_ENTROPY, Activation.SIGMOID, False),
    (ErrorFunction.CROSS_ENTROPY, Activation.SOFTMAX, False),
    (ErrorFunction.MARGINAL, Activation.SIGMOID, False),
    (ErrorFunction.DATA_MARGINAL, Activation.SIGMOID, False),
    (ErrorFunction.L1, Activation.TANH, True),
    (ErrorFunction.L2, Activation.LINEAR, True),
    (ErrorFunction.L2_HINGE, Activation.SOFTPLUS, False),
)
HINGE = (ErrorFunction.HINGE, Activation.TANH, False)  # whose targets are dense, -1 or 1
GATE = 1e-4  # relative: margins are gates, which rounding must not open or shut


def cases() -> Iterator[Case]:
    """Yield cases for each of the kernels."""
    assert N <= TILE, "a block does a whole example"
    stored = np.random.default_rng(1).random((B, N)) < 0.2
    stored[1] = False  # an example without entries
    values = (stored * np.abs(normal(2, B, N))).astype(np.float32)
    for kind, activation, dropped in CASES:
        error = _error(kind, activation, 0.25 if dropped else 0.0)
        yield _case(error, targets_of(sparse.csr_array(values), False, _weights()), dropped)
        yield _case(error, targets_of(values, False, _weights()), dropped)
    yield _case(_error(*HINGE[:2], 0.0), targets_of(np.sign(normal(3, B, N)), False, _weights()), False)


def _weights() -> Numbers:
    return np.random.default_rng(4).uniform(0.5, 2, (B, 1)).astype(np.float32)


def _error(kind: ErrorFunction, activation: Activation, dropout: float) -> Error:
    layer = Layer("O", LayerKind.OUTPUT, N, activation=activation, dropout=dropout)
    return error_of(NetworkSpec((layer,), error=kind, marginal=MARGIN, boost=Boost(2.0, 0.25)), layer)


def _case(error: Error, targets: Targets, dropped: bool) -> Case:
    z, bias = _away_from_gates(error, 2 * normal(5, B, N), normal(6, N))
    wide = (z + bias).astype(np.float64)
    normalizer = softmax_normalizer([softmax_part(wide)]) if error.softmax else None
    losses, delta = _twin(error, targets, wide, normalizer, kept((B, N), error.layer.dropout) if dropped else None)
    name, where, batch = _batch(error, targets)
    arguments = {"z": z, "bias": bias, "b": B, "n": N, "ld": N, "low": 0, "batch": batch, **where, **noise()}
    arguments |= {"kind": ERRORS.index(error.kind), "activation": ACTIVATIONS.index(error.layer.activation)}
    arguments |= {"unit": unit_constants(error.layer), "error": error_constants(error, B), "flags": DROPPED * dropped}
    arguments["normalizer"] = None if normalizer is None else normalizer[:, 0].astype(np.float32)
    arguments["parts"] = nothing(B, dtype=np.float64)
    size = _sizes(error, targets, wide, normalizer)
    squares = error.kind in (ErrorFunction.L2, ErrorFunction.L2_HINGE)
    slope = 2 * unit_constants(error.layer)[3]  # at most, of the activation and of dropout
    near = {
        "z": 8 * EPSILON * size * slope / B,
        "parts": 8 * EPSILON * (size * (size if squares else 1)).sum(axis=1),
    }
    return Case(name, (B, 1), arguments, {"z": delta, "parts": losses}, near)


def _batch(error: Error, targets: Targets) -> tuple[str, dict[str, int], Numbers]:
    """Return the kernel of these targets, where it finds them, and the batch."""
    shared = {"weights": targets.weights, "shares": targets.shares if error.softmax else None}
    if targets.columns is None:
        batch, at = packed(targets=targets.dense, **shared)
        return "output_dense", {f"{name}_at": word for name, word in at.items()} | {"targets_ld": N}, batch
    matrix = targets.columns.tocsr()
    matrix.sort_indices()
    batch, at = packed(starts=matrix.indptr, items=matrix.indices, values=matrix.data, **shared)
    return "output_sparse", {f"{name}_at": word for name, word in at.items()}, batch


def _twin(
    error: Error, targets: Targets, z: Numbers, normalizer: Numbers | None, keep: Numbers | None
) -> tuple[Numbers, Numbers]:
    """Return the loss of each example and the deltas, in double precision."""
    losses, deltas = [], []
    assert targets.weights is not None and targets.shares is not None
    for i in range(B):
        row = slice(i, i + 1)
        rows: Any = targets.dense if targets.columns is None else targets.columns.tocsr()
        target = targets_of(rows[row].astype(np.float64), False).block(0, N, error.softmax)
        delta = z[row].copy()
        norm, share = (None if one is None else one[row].astype(np.float64) for one in (normalizer, targets.shares))
        weights = targets.weights[row].astype(np.float64)
        losses.append(block_error(error, delta, target, weights, norm, share, None if keep is None else keep[row]))
        deltas.append(delta[0] / B)
    return np.array(losses), np.array(deltas)


def _sizes(error: Error, targets: Targets, z: Numbers, normalizer: Numbers | None) -> Numbers:
    """Return how large the numbers are that loss and delta of each unit are sums of."""
    matrix: Any = targets.dense if targets.columns is None else targets.columns.toarray()
    size = 2 + np.abs(z) + np.abs(matrix) + (0 if normalizer is None else np.abs(normalizer))
    scale = max(1, error.margin.one_scale, error.margin.zero_scale) * max(1, error.boost.one, error.boost.zero)
    return np.asarray(size * scale * targets.weights)


def _away_from_gates(error: Error, z: Numbers, bias: Numbers) -> tuple[Numbers, Numbers]:
    """Return sums that give no unit an output near a margin."""
    a = 1 / (1 + np.exp(-(z + bias).astype(np.float64)))
    gates = error.margin.one_target, error.margin.zero_target
    near = np.logical_or(*(np.abs(a - gate) < GATE for gate in gates))
    return np.where(near, z + np.float32(0.01), z).astype(np.float32), bias
