"""What pooling layers make of several sources: sum, product, the largest, side by side, and how like they are.

Shapes: each source is (b, units). Those of Sum, Maxout, DotProduct and Cosine have the same units. A source of Product
with one value for each map of the others counts for the whole map (as in squeeze and excitation, Hu et al. 2018).
DotProduct and Cosine compare the first source with each of the others, and give (b, sources - 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnlib.spec.geometry import Maps
from nnlib.spec.types import PoolingFunction
from nnlib.util.arrays import Floats

SMALL = 1e-8  # is added to lengths in the cosine, as in DSSTNE


def forward(function: PoolingFunction, sources: Sequence[Floats], maps: Sequence[Maps]) -> Floats:
    """Return what the layer gives, in memory of its own; `maps` are those of the sources.

    Sum: of the sources; Product: of them; Maxout: the largest of them, each elementwise; Concatenate: their maps, or
    units, one after the other; DotProduct: x_0 . x_i; Cosine: x_0 . x_i / ((|x_0| + 1e-8) (|x_i| + 1e-8)).
    """
    first = sources[0]
    if function is PoolingFunction.CONCATENATE:
        return np.concatenate(sources, axis=1)
    if function is PoolingFunction.PRODUCT:
        return _product(sources, maps)
    if function in (PoolingFunction.SUM, PoolingFunction.MAXOUT):
        join = np.add if function is PoolingFunction.SUM else np.maximum
        a = first.copy()
        for x in sources[1:]:
            join(a, x, out=a)
        return a
    dots = np.stack([_dot(first, x) for x in sources[1:]], axis=1)
    if function is PoolingFunction.COSINE:
        lengths = [_length(x) for x in sources]
        dots /= np.stack([lengths[0] * length for length in lengths[1:]], axis=1)
    return dots


def backward(
    function: PoolingFunction, sources: Sequence[Floats], maps: Sequence[Maps], a: Floats, delta: Floats
) -> list[Floats]:
    """Return dLoss/d(source) for each source, in memory of its own, from a = `forward` and delta = dLoss/da.

    That of Maxout goes to every source which is equal to the largest, as in DSSTNE.
    """
    if function is PoolingFunction.SUM:
        return [delta.copy() for _ in sources]
    if function is PoolingFunction.CONCATENATE:
        ends = np.cumsum([x.shape[1] for x in sources])
        return [np.ascontiguousarray(part) for part in np.split(delta, ends[:-1], axis=1)]
    if function is PoolingFunction.MAXOUT:
        return [np.where(x == a, delta, 0).astype(x.dtype, copy=False) for x in sources]
    if function is PoolingFunction.PRODUCT:
        return [_factor_gradient(n, sources, maps, delta) for n in range(len(sources))]
    return _comparison_gradients(function, sources, a, delta)


def _whole(maps: Sequence[Maps]) -> Maps:
    return max(maps, key=lambda one: one.units)


def _product(sources: Sequence[Floats], maps: Sequence[Maps]) -> Floats:
    whole = _whole(maps)
    a = np.ones((len(sources[0]), whole.channels, whole.units // whole.channels), sources[0].dtype)
    for x in sources:
        a *= _spread(x, whole)
    return a.reshape(len(a), -1)


def _spread(x: Floats, whole: Maps) -> Floats:
    """Return x (b, C) as (b, C, 1), and x (b, units) as (b, C, S)."""
    return x.reshape(len(x), whole.channels, -1)


def _factor_gradient(n: int, sources: Sequence[Floats], maps: Sequence[Maps], delta: Floats) -> Floats:
    whole = _whole(maps)
    below = _spread(delta, whole).copy()
    for m, x in enumerate(sources):
        if m != n:
            below *= _spread(x, whole)
    if maps[n].units < whole.units:
        below = below.sum(axis=2)
    return below.reshape(sources[n].shape)


def _comparison_gradients(
    function: PoolingFunction, sources: Sequence[Floats], a: Floats, delta: Floats
) -> list[Floats]:
    """Of a_i = x_0 . x_i, delta_i x_i for x_0, summed over i, and delta_i x_0 for x_i.

    The cosine's, c = x . y / (l_x l_y) with l_x = |x| + 1e-8, is y / (l_x l_y) - c x / (|x| l_x) for x.
    """
    first, belows = sources[0], [np.zeros_like(sources[0])]
    for i, x in enumerate(sources[1:]):
        share = delta[:, i : i + 1]
        if function is PoolingFunction.DOT_PRODUCT:
            belows[0] += share * x
            belows.append(share * first)
            continue
        cosine, scale = a[:, i : i + 1], share / (_length(first) * _length(x))[:, None]
        belows[0] += scale * x - share * cosine * _direction(first)
        belows.append(scale * first - share * cosine * _direction(x))
    return belows


def _direction(x: Floats) -> Floats:
    """Return x / (|x| (|x| + 1e-8)), 0 where x is."""
    length = np.sqrt(_dot(x, x))
    return np.asarray(x / np.maximum(length * (length + x.dtype.type(SMALL)), np.finfo(x.dtype).tiny)[:, None])


def _length(x: Floats) -> Floats:
    return np.asarray(np.sqrt(_dot(x, x)) + x.dtype.type(SMALL))


def _dot(x: Floats, y: Floats) -> Floats:
    return np.asarray(np.einsum("bi,bi->b", x, y))
