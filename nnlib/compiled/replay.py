"""Compiled replays of updates that rows of a sparse input's weights missed, as no batch touched them.

Row r of the matrices (rows, k) is at step last[r]. A replay gives each of `rows` the updates of the steps up to `step`,
of rates[t] in step t, with gradients of zero; the last one with those of g (len(rows), k), unless g is (0, k). The bits
are those of the rule in `rules` called step by step. Twin: `optimizer.Optimizer`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.compiled.compiler import compile_loop
from nnlib.compiled.rules import adadelta, adagrad, adam_step, momentum, nesterov, rmsprop, sgd
from nnlib.util.arrays import Floats

Ints = NDArray[np.integer]

PATIENCE = 8  # steps between two looks whether a replay still changes anything
LOOK = 32  # multiplications between two looks, a multiple of four
LEAST_SINGLE = 2.0**-126  # the least float32 that is not subnormal
SMALL_SINGLE = 2.0**-120  # a float32 that is subnormal soon
ROUNDER = 1.5 * 2.0**-97  # a float64 sum with it is a multiple of 2^-149, as subnormal numbers of float32 are
MARGIN = 2.0**60  # how many times smaller a change must be than a weight, to be lost in rounding for sure


@compile_loop
def replay_sgd(w: Floats, rows: Ints, last: Ints, step: int, rates: Floats, l2: float, l1: float, g: Floats) -> None:
    """Replay `sgd`; without l2 and l1 a gradient of zero does nothing."""
    zeros, still = np.zeros_like(w[0]), l2 == 0 and l1 == 0
    for i in range(rows.size):
        row = rows[i]
        for t in range(step if still else last[row] + 1, step if len(g) else step + 1):
            sgd(w[row], zeros, rates[t], l2, l1)
        if len(g):
            sgd(w[row], g[i], rates[step], l2, l1)
        last[row] = step


@compile_loop
def replay_adagrad(
    w: Floats, v: Floats, rows: Ints, last: Ints, step: int, rates: Floats, l2: float, l1: float, g: Floats
) -> None:
    """Replay `adagrad`; without l2 and l1 a gradient of zero does nothing."""
    zeros, still = np.zeros_like(w[0]), l2 == 0 and l1 == 0
    for i in range(rows.size):
        row = rows[i]
        for t in range(step if still else last[row] + 1, step if len(g) else step + 1):
            adagrad(w[row], zeros, v[row], rates[t], l2, l1)
        if len(g):
            adagrad(w[row], g[i], v[row], rates[step], l2, l1)
        last[row] = step


@compile_loop
def replay_momentum(
    w: Floats,
    v: Floats,
    rows: Ints,
    last: Ints,
    step: int,
    rates: Floats,
    mu: float,
    l2: float,
    l1: float,
    g: Floats,
) -> None:
    """Replay `momentum`."""
    zeros, free = np.zeros_like(w[0]), l2 == 0 and l1 == 0
    stop = step if len(g) else step + 1
    for i in range(rows.size):
        row, t = rows[i], last[rows[i]] + 1
        while t < stop and not (free and t % PATIENCE == 0 and _at_rest(w[row], v[row], mu)):
            momentum(w[row], zeros, v[row], rates[t], mu, l2, l1)
            t += 1
        _shrink(v[row], mu, stop - t)
        if len(g):
            momentum(w[row], g[i], v[row], rates[step], mu, l2, l1)
        last[row] = step


@compile_loop
def replay_nesterov(
    w: Floats,
    v: Floats,
    rows: Ints,
    last: Ints,
    step: int,
    rates: Floats,
    mu: float,
    l2: float,
    l1: float,
    g: Floats,
) -> None:
    """Replay `nesterov`."""
    zeros, free = np.zeros_like(w[0]), l2 == 0 and l1 == 0
    stop = step if len(g) else step + 1
    for i in range(rows.size):
        row, t = rows[i], last[rows[i]] + 1
        while t < stop and not (free and t % PATIENCE == 0 and _at_rest(w[row], v[row], mu)):
            nesterov(w[row], zeros, v[row], rates[t], mu, l2, l1)
            t += 1
        _shrink(v[row], mu, stop - t)
        if len(g):
            nesterov(w[row], g[i], v[row], rates[step], mu, l2, l1)
        last[row] = step


@compile_loop
def replay_rmsprop(
    w: Floats,
    v: Floats,
    rows: Ints,
    last: Ints,
    step: int,
    rates: Floats,
    rho: float,
    l2: float,
    l1: float,
    g: Floats,
) -> None:
    """Replay `rmsprop`; without l2 and l1 a gradient of zero does not move w."""
    zeros, free = np.zeros_like(w[0]), l2 == 0 and l1 == 0
    stop = step if len(g) else step + 1
    for i in range(rows.size):
        row = rows[i]
        if free:
            _shrink(v[row], rho, stop - 1 - last[row])
        else:
            for t in range(last[row] + 1, stop):
                rmsprop(w[row], zeros, v[row], rates[t], rho, l2, l1)
        if len(g):
            rmsprop(w[row], g[i], v[row], rates[step], rho, l2, l1)
        last[row] = step


@compile_loop
def replay_adadelta(
    w: Floats, s: Floats, v: Floats, rows: Ints, last: Ints, step: int, mu: float, l2: float, l1: float, g: Floats
) -> None:
    """Replay `adadelta`; without l2 and l1 a gradient of zero does not move w."""
    zeros, free = np.zeros_like(w[0]), l2 == 0 and l1 == 0
    stop = step if len(g) else step + 1
    for i in range(rows.size):
        row = rows[i]
        if free:
            _shrink(s[row], mu, stop - 1 - last[row])
            _shrink(v[row], mu, stop - 1 - last[row])
        else:
            for _ in range(last[row] + 1, stop):
                adadelta(w[row], zeros, s[row], v[row], mu, l2, l1)
        if len(g):
            adadelta(w[row], g[i], s[row], v[row], mu, l2, l1)
        last[row] = step


def replay_adam(
    w: Floats,
    m: Floats,
    s: Floats,
    rows: Ints,
    last: Ints,
    step: int,
    rates: Floats,
    b1: float,
    b2: float,
    epsilon: float,
    l2: float,
    l1: float,
    g: Floats,
    shift: int = 0,
) -> None:
    """Replay `adam`; its step is the one counted here plus `shift`."""
    _replay_adam(w, m, s, rows, last, step, rates, 0.0, b1, b2, epsilon, l2, l1, g, shift)


def replay_adamw(
    w: Floats,
    m: Floats,
    s: Floats,
    rows: Ints,
    last: Ints,
    step: int,
    rates: Floats,
    b1: float,
    b2: float,
    epsilon: float,
    l2: float,
    l1: float,
    g: Floats,
    shift: int = 0,
) -> None:
    """Replay `adamw`; its step is the one counted here plus `shift`."""
    _replay_adam(w, m, s, rows, last, step, rates, l2, b1, b2, epsilon, 0.0, l1, g, shift)


@compile_loop
def _replay_adam(
    w: Floats,
    m: Floats,
    s: Floats,
    rows: Ints,
    last: Ints,
    step: int,
    rates: Floats,
    decay: float,
    b1: float,
    b2: float,
    epsilon: float,
    l2: float,
    l1: float,
    g: Floats,
    shift: int,
) -> None:
    """Moves get smaller from step to step if rates do and b1 <= b2, since m / (1 - b1^t) falls faster than c s."""
    zeros, before = np.zeros_like(w[0]), np.empty_like(w[0])
    stop, calm = step if len(g) else step + 1, _calm(rates, rows, last, step)
    free = decay == 0 and l2 == 0 and l1 == 0 and b1 <= b2 and epsilon > 0
    for i in range(rows.size):
        row, t, resting = rows[i], last[rows[i]] + 1, False
        while t < stop and not resting:
            look = free and t >= calm and t % PATIENCE == 0
            if look:
                _copy(w[row], before)
            a, c = rates[t] / _missing(b1, t + shift), 1 / _missing(b2, t + shift)
            adam_step(w[row], zeros, m[row], s[row], a, c, rates[t] * decay, b1, b2, epsilon, l2, l1)
            resting = look and _still(w[row], before, m[row], a / epsilon)
            t += 1
        _shrink(m[row], b1, stop - t)
        _shrink(s[row], b2, stop - t)
        if len(g):
            a, c = rates[step] / _missing(b1, step + shift), 1 / _missing(b2, step + shift)
            adam_step(w[row], g[i], m[row], s[row], a, c, rates[step] * decay, b1, b2, epsilon, l2, l1)
        last[row] = step


@compile_loop
def _missing(keep: float, step: int) -> float:
    """Return 1 - keep^step with Python's bits; a power with a whole number would be products."""
    return 1 - math.pow(keep, np.float64(step))


@compile_loop
def _calm(rates: Floats, rows: Ints, last: Ints, step: int) -> int:
    """Return the first step from which rates do not grow, of the steps that are replayed."""
    first = step
    for i in range(rows.size):
        first = min(first, last[rows[i]] + 1)
    t = step
    while t > first and rates[t - 1] >= rates[t]:
        t -= 1
    return t


@compile_loop
def _at_rest(w: Floats, v: Floats, mu: float) -> bool:
    """Whether a velocity that only shrinks will never move w again, with momentum or nesterov."""
    keep, more, moved = w.dtype.type(mu), w.dtype.type(1 + mu), 0
    for i in range(w.size):
        reach = more * (keep * v[i])
        moved += 0 if w[i] + reach == w[i] and w[i] - reach == w[i] else 1
    return moved == 0


@compile_loop
def _still(w: Floats, before: Floats, m: Floats, reach: float) -> bool:
    """Whether w has not moved, and will not: m may stop shrinking when it is subnormal, but is lost beside w then."""
    least = w.dtype.type(reach * MARGIN * np.finfo(w.dtype).tiny)
    moved = 0
    for i in range(w.size):
        moved += 0 if w[i] == before[i] and (m[i] == 0 or abs(w[i]) >= least) else 1
    return moved == 0


@compile_loop
def _shrink(x: Floats, factor: float, times: int) -> None:
    """Multiply x by a factor, `times` times in a row, or until that changes nothing any more.

    Subnormal numbers never reach zero, as they are rounded up again, and are slow on many processors; those of
    float32 are done in float64.
    """
    by = x.dtype.type(factor)
    while times >= LOOK:
        for _ in range(LOOK // 4):
            for i in range(x.size):
                x[i] = x[i] * by * by * by * by
        times -= LOOK
        moved, low = 0, 0
        for i in range(x.size):
            moved += 0 if x[i] * by == x[i] else 1
            low += 1 if abs(x[i]) < SMALL_SINGLE and x[i] != 0 else 0
        if moved == 0:
            return
        if low and x.itemsize == 4:
            _shrink_low(x, by, times)
            return
    for _ in range(times):
        for i in range(x.size):
            x[i] *= by


@compile_loop
def _shrink_low(x: Floats, by: Any, times: int) -> None:
    """As `_shrink`, for float32: products are exact in float64, and rounded to what float32 has there."""
    y, factor = np.empty(x.size), np.float64(by)
    _copy(x, y)
    for _ in range(times):
        moved = 0
        for i in range(y.size):
            product = y[i] * factor
            low = abs(product) < LEAST_SINGLE
            normal = np.float64(np.float32(1.0 if low else product))
            rounded = math.copysign((product + ROUNDER) - ROUNDER, product) if low else normal
            moved += 0 if rounded == y[i] else 1
            y[i] = rounded
        if moved == 0:
            break
    _copy(y, x)


@compile_loop
def _copy(source: Floats, target: Floats) -> None:
    """As target[:] = source, which takes Numba much longer to compile."""
    for i in range(source.size):
        target[i] = source[i]
