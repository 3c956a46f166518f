"""Compiled loops of a wide sigmoid output layer, one block of its units at a time. NumPy twin: `losses`.

Shapes: b examples, n units of the block. z (b, n) holds the sums without `bias` (n,). The targets that are not zero
are listed by unit: unit j should be `values[i]` (None: one) for the examples `rows[i]`, i from starts[j] to
starts[j + 1], no example twice. `margin` is (oneTarget, zeroTarget, oneScale, zeroScale), plain cross entropy
(1, 0, 1, 1). With a = sigmoid(z + bias), a zero counts if a > zeroTarget: loss -zeroScale log(1 - a), delta
zeroScale a; a target other than zero counts if a < oneTarget: loss -oneScale value log(a), delta
oneScale value (a - 1). What is said of a is asked of its logit, so that no exponential is needed to shut a unit out.

All units are first taken for zeros, with those that are not shut; then these get what is theirs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.compiled.compiler import compile_loop, compile_sums, overload_both
from nnlib.compiled.sparse import to_columns
from nnlib.util.arrays import Floats

Ints = NDArray[np.integer]
Margin = tuple[float, float, float, float]

SHUT = -1e30  # the logit of a unit that is no zero, while zeros are counted
CHUNK = 64  # units looked at together: mostly all of them are below zeroTarget
LOWEST = -80.0  # e^-80 is 0 for a sum, and e^-80 / 256 still no subnormal number, which would be slow


def exp(x: Any) -> Any:
    """Return e^x for x <= 0, at least e^LOWEST; 1e-7 accurate in float32."""
    raise NotImplementedError


def log1p(x: Any) -> Any:
    """Return log(1 + x) for x in [0, 1]; 1e-7 accurate in float32."""
    raise NotImplementedError


def _exp_single(x: Any) -> Any:
    """A polynomial and a power of two made from bits (Cephes): no branch and no call, hence SIMD."""
    x = max(x, np.float32(LOWEST))
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691e-4) * r + np.float32(1.3981999e-3)
    p = p * r + np.float32(8.3334519e-3)
    p = p * r + np.float32(4.1665795e-2)
    p = p * r + np.float32(1.6666665e-1)
    p = p * r + np.float32(0.5)
    bits = np.int32((np.int32(n) + np.int32(127)) << np.int32(23))
    return (p * r * r + r + np.float32(1)) * bits.view(np.float32)


def _exp_double(x: Any) -> Any:
    return math.exp(max(x, LOWEST))


def _log1p_single(x: Any) -> Any:
    """The polynomial of degree 9 nearest to log(1 + x) / x, 5e-9 accurate, times x."""
    p = np.float32(-0.003243853) * x + np.float32(0.019850688)
    p = p * x + np.float32(-0.05695808)
    p = p * x + np.float32(0.106035076)
    p = p * x + np.float32(-0.15305506)
    p = p * x + np.float32(0.19675909)
    p = p * x + np.float32(-0.24954128)
    p = p * x + np.float32(0.3332996)
    p = p * x + np.float32(-0.49999902)
    p = p * x + np.float32(1)
    return p * x


def _log1p_double(x: Any) -> Any:
    return math.log1p(x)


overload_both(exp, _exp_single, _exp_double)
overload_both(log1p, _log1p_single, _log1p_double)


def sigmoid_error(
    z: Floats,
    bias: Floats,
    starts: Ints,
    rows: Ints,
    values: Floats | None,
    margin: Margin,
    scale: float,
    bias_gradient: Floats,
) -> float:
    """Return the loss, summed; overwrite z with delta times `scale` and `bias_gradient` (n,) with its column sums.

    NaN anywhere makes the loss NaN. Twin: `losses.sigmoid_error`.
    """
    one_target, zero_target, one_scale, zero_scale = margin
    hits = _take(z, starts, rows)
    gate, factor = z.dtype.type(_logit(zero_target)), z.dtype.type(zero_scale * scale)
    loss: float = zero_scale * _all_zeros(z, bias, bias_gradient, gate, factor)
    return loss + _ones(z, bias, starts, rows, values, hits, one_scale, _logit(one_target), scale, bias_gradient)


def sigmoid_error_gated(
    z: Floats,
    bias: Floats,
    starts: Ints,
    rows: Ints,
    values: Floats | None,
    margin: Margin,
    scale: float,
    bias_gradient: Floats,
    out_starts: Ints,
    out_columns: Ints,
    out_values: Floats,
) -> tuple[float, int]:
    """Return the loss, summed, and how many deltas are not shut out, which are listed by example (CSR).

    Those of example i are at out_starts[i] to out_starts[i + 1] of `out_columns` and `out_values`, times `scale`. As
    soon as these arrays are too short, (0, -1) is returned, z is as it was, and `sigmoid_error` has to be used. Else
    z is of no use afterwards.
    """
    one_target, zero_target, one_scale, zero_scale = margin
    hits = _take(z, starts, rows)
    first, columns, places = to_columns(starts, rows, len(z))  # of the transpose: the targets by example
    order = first, places, columns
    gates = z.dtype.type(_logit(zero_target)), _logit(one_target)
    scales = z.dtype.type(zero_scale * scale), one_scale, scale
    zeros, ones, count = _list_open(
        z, bias, starts, values, hits, order, gates, scales, bias_gradient, out_starts, out_columns, out_values
    )
    if count < 0:
        _give_back(z, starts, rows, hits)
    return zero_scale * zeros + ones, count


def _logit(a: float) -> float:
    if a <= 0:
        return -math.inf
    return math.inf if a >= 1 else math.log(a / (1 - a))


@compile_loop
def _take(z: Floats, starts: Ints, rows: Ints) -> Floats:
    """Return the sums of units that are no zeros, and shut them, so that they do not count as zeros."""
    hits = np.empty(starts[-1] - starts[0], z.dtype)
    for column in range(z.shape[1]):
        for i in range(starts[column], starts[column + 1]):
            hits[i - starts[0]] = z[rows[i], column]
            z[rows[i], column] = SHUT
    return hits


@compile_loop
def _give_back(z: Floats, starts: Ints, rows: Ints, hits: Floats) -> None:
    for column in range(z.shape[1]):
        for i in range(starts[column], starts[column + 1]):
            z[rows[i], column] = hits[i - starts[0]]


@compile_loop
def _all_zeros(z: Floats, bias: Floats, gradient: Floats, gate: Any, factor: Any) -> float:
    """Return the loss of all units, of zeros; overwrite z with delta, `gradient` with its column sums."""
    gradient[:] = 0
    loss, gated = 0.0, gate > -np.inf
    width = CHUNK if gated else max(z.shape[1], 1)
    for row in range(z.shape[0]):
        for low in range(0, z.shape[1], width):
            units, place = z[row, low : low + width], slice(low, low + width)
            if not gated or _open(units, bias[place], gate) > 0:
                loss += _zeros(units, bias[place], gradient[place], gate, factor)
            else:
                units[:] = 0
    return loss


@compile_loop
def _ones(
    z: Floats,
    bias: Floats,
    starts: Ints,
    rows: Ints,
    values: Floats | None,
    hits: Floats,
    weight: float,
    gate: float,
    scale: float,
    gradient: Floats,
) -> float:
    """Return the loss of the units that are no zeros; write delta to z and add it to `gradient`."""
    loss = 0.0
    for column in range(z.shape[1]):
        for i in range(starts[column], starts[column + 1]):
            value = 1.0 if values is None else values[i]
            lost, delta = _one(hits[i - starts[0]] + bias[column], weight * value, gate)
            loss += lost
            z[rows[i], column] = delta * scale
            gradient[column] += z[rows[i], column]
    return loss


@compile_loop
def _list_open(
    z: Floats,
    bias: Floats,
    starts: Ints,
    values: Floats | None,
    hits: Floats,
    order: tuple[Ints, Ints, Ints],
    gates: tuple[Any, float],
    scales: tuple[Any, float, float],
    gradient: Floats,
    out_starts: Ints,
    out_columns: Ints,
    out_values: Floats,
) -> tuple[float, float, int]:
    """Return the losses of zeros and of ones, and how many deltas were listed, -1 when they are too many."""
    first, hit_places, hit_columns = order
    found, logits = np.empty(z.shape[1], np.int64), np.empty(z.shape[1], z.dtype)
    gradient[:] = 0
    zeros, ones, count = 0.0, 0.0, 0
    for row in range(z.shape[0]):
        out_starts[row] = count
        kept = _find_open(z[row], bias, gates[0], found, logits)
        if count + kept + first[row + 1] - first[row] > out_values.size:
            return 0.0, 0.0, -1
        zeros += _activate(logits, kept)
        for k in range(kept):
            out_columns[count], out_values[count] = found[k], scales[0] * logits[k]
            gradient[found[k]] += out_values[count]
            count += 1
        for k in range(first[row], first[row + 1]):
            i, column = hit_places[k], hit_columns[k]
            value = 1.0 if values is None else values[i]
            lost, delta = _one(hits[i - starts[0]] + bias[column], scales[1] * value, gates[1])
            ones += lost
            if delta != 0:
                out_columns[count], out_values[count] = column, delta * scales[2]
                gradient[column] += out_values[count]
                count += 1
    out_starts[z.shape[0]] = count
    return zeros, ones, count


@compile_sums
def _open(z: Floats, bias: Floats, gate: Any) -> Any:
    """Return how many units of a row are above the gate; NaN is."""
    one, count = z.dtype.type(1), z.dtype.type(0)
    for c in range(z.size):
        count += z.dtype.type(0) if z[c] + bias[c] <= gate else one
    return count


@compile_sums
def _zeros(z: Floats, bias: Floats, gradient: Floats, gate: Any, factor: Any) -> Any:
    """Return the loss of units of a row, all of them zeros; overwrite z with delta and add it to `gradient`."""
    zero, half, one = z.dtype.type(0), z.dtype.type(0.5), z.dtype.type(1)
    loss = zero
    for c in range(z.size):
        x = z[c] + bias[c]
        shut = x <= gate
        x = z.dtype.type(SHUT) if shut else x  # a loss of 1e-35 instead of none, as a sum with a branch is no SIMD
        size = abs(x)
        e = exp(-size)
        a = one / (one + e)
        delta = factor * (a if x >= 0 else e * a)
        delta = zero if shut else delta
        loss += half * (x + size) + log1p(e)
        z[c] = delta
        gradient[c] += delta
    return loss


@compile_sums
def _activate(x: Floats, count: int) -> Any:
    """Return the loss of the first `count` logits, of zeros; overwrite them with their sigmoid."""
    half, one = x.dtype.type(0.5), x.dtype.type(1)
    loss = x.dtype.type(0)
    for k in range(count):
        size = abs(x[k])
        e = exp(-size)
        a = one / (one + e)
        loss += half * (x[k] + size) + log1p(e)
        x[k] = a if x[k] >= 0 else e * a
    return loss


@compile_loop
def _one(x: Any, weight: float, gate: float) -> tuple[float, float]:
    """Return loss and delta of a unit that should be one and has the logit x."""
    if x >= gate:
        return 0.0, 0.0
    size = abs(x)
    e = exp(-size)
    loss = 0.5 * (size - x) + log1p(e)
    return weight * loss, -weight * (e if x >= 0 else 1.0) / (1.0 + e)


@compile_loop
def _find_open(z: Floats, bias: Floats, gate: Any, found: Ints, logits: Floats) -> int:
    """List the units of a row that are above the gate, and their logits; return how many they are."""
    count = 0
    for low in range(0, z.size, CHUNK):
        high = min(low + CHUNK, z.size)
        if _open(z[low:high], bias[low:high], gate) > 0:
            for c in range(low, high):
                x = z[c] + bias[c]
                found[count], logits[count] = c, x
                count += 0 if x <= gate else 1
    return count
