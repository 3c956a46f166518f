"""Pooling layers on the processors of this machine; `ops/pooling.py` and its neighbours have the formulas.

Max and Average go by maps, as one example of large maps is work for several threads; what is made of several maps or
sources goes by examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnlib.compiled.select import LOOPS
from nnlib.cpu.maps.pieces import by_examples
from nnlib.ops import joining, pooling, response_norm
from nnlib.spec.geometry import Maps, Sweep
from nnlib.spec.types import LocalResponse, PoolingFunction
from nnlib.util.arrays import Floats
from nnlib.util.threads import Each

Windows = tuple[tuple[int, int, int, int], ...]


def pool(function: PoolingFunction, x: Floats, sweep: Sweep, each: Each) -> Floats:
    """Return what each window of a Max, Average, GlobalMax or GlobalAverage gives, (b, target units)."""
    source, flat = _one_by_one(x, sweep.source), _flat(sweep)
    a = np.empty((len(source), sweep.target.area), x.dtype)
    windows = _loop_windows(function, sweep)

    def some(maps: slice) -> None:
        if LOOPS is not None and windows:
            LOOPS.max_pool(_boxes(source[maps], sweep.source), _boxes(a[maps], sweep.target), windows)
        else:
            a[maps] = pooling.forward(function, source[maps], flat)

    by_examples(each, some, len(source), sweep.source.area)
    return a.reshape(len(x), -1)


def pool_gradient(function: PoolingFunction, x: Floats, a: Floats, delta: Floats, sweep: Sweep, each: Each) -> Floats:
    """Return dLoss/dx from `a`, what `pool` gave of x, and delta = dLoss/da."""
    source, flat = _one_by_one(x, sweep.source), _flat(sweep)
    a, delta = (_one_by_one(array, sweep.target) for array in (a, delta))
    below = np.empty_like(source)
    windows = _loop_windows(function, sweep)

    def some(maps: slice) -> None:
        if LOOPS is not None and windows:
            theirs = (_boxes(array[maps], sweep.target) for array in (a, delta))
            ours = (_boxes(array[maps], sweep.source) for array in (source, below))
            LOOPS.max_pool_gradient(*ours, *theirs, windows)
        else:
            below[maps] = pooling.backward(function, source[maps], a[maps], delta[maps], flat)

    by_examples(each, some, len(source), sweep.source.area)
    return below.reshape(x.shape)


def respond(rule: LocalResponse, x: Floats, maps: Maps, each: Each) -> Floats:
    """Return x after local response normalization."""
    return _row_by_row(lambda some: response_norm.forward(rule, x[some], maps), x, each)


def respond_gradient(rule: LocalResponse, x: Floats, delta: Floats, maps: Maps, each: Each) -> Floats:
    """Return dLoss/dx from delta = dLoss/d(what `respond` gave)."""
    return _row_by_row(lambda some: response_norm.backward(rule, x[some], delta[some], maps), x, each)


def join(function: PoolingFunction, sources: Sequence[Floats], maps: Sequence[Maps], units: int, each: Each) -> Floats:
    """Return what a layer of so many units makes of its sources."""
    a = np.empty((len(sources[0]), units), sources[0].dtype)

    def some(examples: slice) -> None:
        a[examples] = joining.forward(function, [x[examples] for x in sources], maps)

    by_examples(each, some, len(a), sum(one.units for one in maps))
    return a


def join_gradients(
    function: PoolingFunction, sources: Sequence[Floats], maps: Sequence[Maps], a: Floats, delta: Floats, each: Each
) -> list[Floats]:
    """Return dLoss/d(source) for each source; that of the first source of a Sum is `delta` itself."""
    if function is PoolingFunction.SUM:
        return [delta, *(delta.copy() for _ in sources[1:])]
    belows = [np.empty_like(x) for x in sources]

    def some(examples: slice) -> None:
        parts = [x[examples] for x in sources]
        found = joining.backward(function, parts, maps, a[examples], delta[examples])
        for below, part in zip(belows, found, strict=True):
            below[examples] = part

    by_examples(each, some, len(delta), sum(one.units for one in maps))
    return belows


def _row_by_row(function: Callable[[slice], Floats], x: Floats, each: Each) -> Floats:
    out = np.empty_like(x)

    def some(examples: slice) -> None:
        out[examples] = function(examples)

    by_examples(each, some, *x.shape)
    return out


def _one_by_one(x: Floats, maps: Maps) -> Floats:
    """Return maps (b C, area)."""
    return np.ascontiguousarray(x).reshape(-1, maps.area)


def _flat(sweep: Sweep) -> Sweep:
    """Return the sweep over one map."""
    return Sweep(Maps(1, sweep.source.sizes), Maps(1, sweep.target.sizes), sweep.windows)


def _boxes(x: Floats, maps: Maps) -> Floats:
    """Return maps (n, area) as (n, D, H, W)."""
    return x.reshape(len(x), *(1,) * (3 - len(maps.sizes)), *maps.sizes)


def _loop_windows(function: PoolingFunction, sweep: Sweep) -> Any:
    """Return (kernel, stride, padding before, dilation) of three axes for the loops, none for NumPy."""
    if function is not PoolingFunction.MAX or not 0 < len(sweep.windows) <= 3:
        return ()
    found = [(w.kernel, w.stride, w.low, w.dilation) for w in sweep.windows]
    return (*((1, 1, 0, 1),) * (3 - len(found)), *found)
