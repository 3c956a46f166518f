"""Compiled update rules, in place and in one pass. Twins: the functions of the same names in `rules`.

G = g + l2 w + l1 sign(w), in this order and without the terms of a factor 0; w is a weight, g its gradient. Constants
are rounded to the arrays' type first. Every operation is done as written, so that NumPy gives the same bits.
"""

from __future__ import annotations

import math
from typing import Any

from nnlib.compiled.compiler import compile_loop, compile_within, emit, has, is_zen
from nnlib.compiled.vectors import give_up
from nnlib.util.arrays import Floats

FLOOR = 1e-9
LINE = 64  # bytes of a line of the cache
SHARED = is_zen() and has("clflushopt")  # caches belong to groups of cores, and lines can be taken out of all


_drop_line = emit(lambda builder, address, *_: give_up(builder, address))


@compile_loop
def take_back(w: Floats) -> None:
    """Take weights that other cores have read out of all caches, before they are updated; w has whole rows.

    A line that two groups of cores have can be written once the other group has said that it has not, which takes 50
    to 100 ns, one line after the other: for 512 KB 430 us. From memory the same comes in 35.
    """
    if SHARED:
        begin = w.ctypes.data // LINE * LINE
        for address in range(begin, w.ctypes.data + w.size * w.itemsize, LINE):
            _drop_line(address, 0, 0, 0, 0, 0)


@compile_within
def sgd(w: Floats, g: Floats, rate: float, l2: float, l1: float) -> None:
    """w = w - rate G."""
    a, ridge, lasso = w.dtype.type(rate), w.dtype.type(l2), w.dtype.type(l1)
    for i in range(w.size):
        w[i] -= a * regularize(g[i], w[i], ridge, lasso)


@compile_within
def momentum(w: Floats, g: Floats, v: Floats, rate: float, mu: float, l2: float, l1: float) -> None:
    """v = mu v - rate G; w = w + v."""
    a, keep, ridge, lasso = w.dtype.type(rate), w.dtype.type(mu), w.dtype.type(l2), w.dtype.type(l1)
    for i in range(w.size):
        v[i] = keep * v[i] - a * regularize(g[i], w[i], ridge, lasso)
        w[i] += v[i]


@compile_within
def nesterov(w: Floats, g: Floats, v: Floats, rate: float, mu: float, l2: float, l1: float) -> None:
    """w' = w - mu v; v = mu v - rate G, G of the old w; w = w' + (1 + mu) v."""
    a, keep, ridge, lasso = w.dtype.type(rate), w.dtype.type(mu), w.dtype.type(l2), w.dtype.type(l1)
    more = w.dtype.type(1 + mu)
    for i in range(w.size):
        kept = keep * v[i]
        v[i] = kept - a * regularize(g[i], w[i], ridge, lasso)
        w[i] = (w[i] - kept) + more * v[i]


@compile_within
def adagrad(w: Floats, g: Floats, v: Floats, rate: float, l2: float, l1: float) -> None:
    """v = v + G^2; w = w - rate (G / sqrt(max(v, 1e-9)))."""
    a, ridge, lasso, floor = w.dtype.type(rate), w.dtype.type(l2), w.dtype.type(l1), w.dtype.type(FLOOR)
    for i in range(w.size):
        whole = regularize(g[i], w[i], ridge, lasso)
        v[i] += whole * whole
        w[i] -= a * (whole / math.sqrt(max(v[i], floor)))


@compile_within
def rmsprop(w: Floats, g: Floats, v: Floats, rate: float, rho: float, l2: float, l1: float) -> None:
    """v = rho v + (1 - rho) G^2; w = w - rate (G / sqrt(max(v, 1e-9)))."""
    a, ridge, lasso, floor = w.dtype.type(rate), w.dtype.type(l2), w.dtype.type(l1), w.dtype.type(FLOOR)
    keep, rest = w.dtype.type(rho), w.dtype.type(1 - rho)
    for i in range(w.size):
        whole = regularize(g[i], w[i], ridge, lasso)
        v[i] = keep * v[i] + rest * (whole * whole)
        w[i] -= a * (whole / math.sqrt(max(v[i], floor)))


@compile_within
def adadelta(w: Floats, g: Floats, s: Floats, v: Floats, mu: float, l2: float, l1: float) -> None:
    """s = mu s + (1 - mu) G^2; d = G sqrt(max(v, 1e-9) / max(s, 1e-9)); w = w - d; v = mu v + (1 - mu) d^2."""
    keep, rest, ridge, lasso = w.dtype.type(mu), w.dtype.type(1 - mu), w.dtype.type(l2), w.dtype.type(l1)
    floor = w.dtype.type(FLOOR)
    for i in range(w.size):
        whole = regularize(g[i], w[i], ridge, lasso)
        s[i] = keep * s[i] + rest * (whole * whole)
        d = whole * math.sqrt(max(v[i], floor) / max(s[i], floor))
        w[i] -= d
        v[i] = keep * v[i] + rest * (d * d)


def adam(
    w: Floats,
    g: Floats,
    m: Floats,
    s: Floats,
    rate: float,
    step: int,
    b1: float,
    b2: float,
    epsilon: float,
    l2: float,
    l1: float,
) -> None:
    """m = b1 m + (1 - b1) G; s = b2 s + (1 - b2) G^2; w = w - a (m / (sqrt(c s) + epsilon)).

    a = rate / (1 - b1^step), c = 1 / (1 - b2^step); the first step is 1.
    """
    a, c = rate / (1 - b1**step), 1 / (1 - b2**step)
    adam_step(w, g, m, s, a, c, 0.0, b1, b2, epsilon, l2, l1)


def adamw(
    w: Floats,
    g: Floats,
    m: Floats,
    s: Floats,
    rate: float,
    step: int,
    b1: float,
    b2: float,
    epsilon: float,
    l2: float,
    l1: float,
) -> None:
    """w = w - (rate l2) w; then `adam` with l2 = 0."""
    a, c = rate / (1 - b1**step), 1 / (1 - b2**step)
    adam_step(w, g, m, s, a, c, rate * l2, b1, b2, epsilon, 0.0, l1)


@compile_loop
def regularize(g: Any, w: Any, ridge: Any, lasso: Any) -> Any:
    """Return G. Both terms are always computed: a choice between values is SIMD, a branch is not."""
    nothing = ridge - ridge
    ridged = g + ridge * w
    g = ridged if ridge != nothing else g
    sign = lasso if w > nothing else (-lasso if w < nothing else nothing)
    return g + sign if lasso != nothing else g


@compile_within
def adam_step(
    w: Floats,
    g: Floats,
    m: Floats,
    s: Floats,
    rate: float,
    scale: float,
    decay: float,
    b1: float,
    b2: float,
    epsilon: float,
    l2: float,
    l1: float,
) -> None:
    """`adam` with a (`rate`) and c (`scale`) worked out, after w = w - decay w."""
    a, c, fade = w.dtype.type(rate), w.dtype.type(scale), w.dtype.type(decay)
    keep, rest, keep2, rest2 = w.dtype.type(b1), w.dtype.type(1 - b1), w.dtype.type(b2), w.dtype.type(1 - b2)
    e, ridge, lasso = w.dtype.type(epsilon), w.dtype.type(l2), w.dtype.type(l1)
    for i in range(w.size):
        x = w[i] - fade * w[i]
        whole = regularize(g[i], x, ridge, lasso)
        m[i] = keep * m[i] + rest * whole
        s[i] = keep2 * s[i] + rest2 * (whole * whole)
        w[i] = x - a * (m[i] / (math.sqrt(c * s[i]) + e))
