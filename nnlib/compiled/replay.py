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

from nnlib.compiled.compiler import compile_loop, compile_within
from nnlib.compiled.rules import adadelta, adagrad, adam_step, momentum, nesterov, rmsprop, sgd
from nnlib.util.arrays import Floats

Ints = NDArray[np.integer]

RATE, CORRECTED, CORRECTION, CALM = range(4)  # columns of Adam's paces
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
    paces: Floats,
    b1: float,
    b2: float,
    epsilon: float,
    l2: float,
    l1: float,
    g: Floats,
) -> None:
    """Replay `adam`; `paces` are those of `updates.tabulate_paces`."""
    _replay_adam(w, m, s, rows, last, step, paces, 0.0, b1, b2, epsilon, l2, l1, g)


def replay_adamw(
    w: Floats,
    m: Floats,
    s: Floats,
    rows: Ints,
    last: Ints,
    step: int,
    paces: Floats,
    b1: float,
    b2: float,
    epsilon: float,
    l2: float,
    l1: float,
    g: Floats,
) -> None:
    """Replay `adamw`; `paces` are those of `updates.tabulate_paces`."""
    _replay_adam(w, m, s, rows, last, step, paces, l2, b1, b2, epsilon, 0.0, l1, g)


@compile_loop
def _replay_adam(
    w: Floats,
    m: Floats,
    s: Floats,
    rows: Ints,
    last: Ints,
    step: int,
    paces: Floats,
    decay: float,
    b1: float,
    b2: float,
    epsilon: float,
    l2: float,
    l1: float,
    g: Floats,
) -> None:
    """Moves get smaller from step to step if rates do and b1 <= b2, since m / (1 - b1^t) falls faster than c s."""
    zeros, before = np.zeros_like(w[0]), np.empty_like(w[0])
    stop, free = step if len(g) else step + 1, decay == 0 and l2 == 0 and l1 == 0
    calm = paces[step, CALM] if b1 <= b2 and epsilon > 0 else np.inf
    for i in range(rows.size):
        row, t = rows[i], last[rows[i]] + 1
        x, y, z = w[row], m[row], s[row]
        if free:
            t = _drift(x, y, z, before, t, stop, paces, calm, b1, b2, epsilon)
        while t < stop and not free:
            rate, a, c = paces[t, RATE], paces[t, CORRECTED], paces[t, CORRECTION]
            adam_step(x, zeros, y, z, a, c, rate * decay, b1, b2, epsilon, l2, l1)
            t += 1
        _shrink(y, b1, stop - t)
        _shrink(z, b2, stop - t)
        if len(g):
            rate, a, c = paces[step, RATE], paces[step, CORRECTED], paces[step, CORRECTION]
            adam_step(x, g[i], y, z, a, c, rate * decay, b1, b2, epsilon, l2, l1)
        last[row] = step


@compile_within
def _drift(
    w: Floats,
    m: Floats,
    s: Floats,
    before: Floats,
    t: int,
    stop: int,
    paces: Floats,
    calm: float,
    b1: float,
    b2: float,
    epsilon: float,
) -> int:
    """Do the steps from t as `adam_step` does with a gradient of zero and no decay, in half the time.

    Return the step before which w came to rest, or `stop`. Sums with zero make -0 to 0 as there.
    """
    e, keep, keep2, nothing = w.dtype.type(epsilon), w.dtype.type(b1), w.dtype.type(b2), w.dtype.type(0)
    resting = False
    while t < stop and not resting:
        a, c = w.dtype.type(paces[t, CORRECTED]), w.dtype.type(paces[t, CORRECTION])
        look = t >= calm and t % PATIENCE == 0
        if look:
            _copy(w, before)
        for i in range(w.size):
            m[i] = keep * m[i] + nothing
            s[i] = keep2 * s[i] + nothing
            w[i] = (w[i] - nothing * w[i]) - a * (m[i] / (math.sqrt(c * s[i]) + e))
        resting = look and _still(w, before, m, paces[t, CORRECTED] / epsilon)
        t += 1
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


@compile_within
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
