"""Layers of one step each become as few as can do the same: sums, normalization, activation, dropout in this order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from nnlib.onnx_files.parts import Part
from nnlib.ops.batch_norm import EPSILON, BatchNorm
from nnlib.spec.types import Activation, LayerKind, PoolingFunction
from nnlib.util.arrays import Floats


def merge(parts: Iterable[Part], outputs: Iterable[str]) -> tuple[dict[str, Part], dict[str, str]]:
    """Return the parts that are left, and of each part which one does its work now.

    A layer of one source takes its normalization, activation and dropout into that source, where nothing else looks at
    the source and its own steps come before. `outputs` are parts that are looked at from outside.
    """
    parts = tuple(parts)
    looks = Counter(name for part in parts for name in part.layer.sources) + Counter(outputs)
    lends = {shared.owner_target for part in parts for shared in part.layer.shared}
    left: dict[str, Part] = {}
    at: dict[str, str] = {}
    for part in parts:
        name = part.layer.name
        below = at.get(part.layer.sources[0]) if len(part.layer.sources) == 1 else None
        found = None
        if below is not None and part.layer.function is PoolingFunction.SUM and looks[below] == 1:
            found = _merged(left[below], part, below in lends)
        if found is None or below is None:
            left[name], at[name] = _renamed(part, at), name
        else:
            left[below], at[name], looks[below] = found, below, looks[name]
    return left, at


def _renamed(part: Part, at: dict[str, str]) -> Part:
    layer = part.layer
    shared = tuple(
        replace(one, source=at[one.source], owner_source=at[one.owner_source], owner_target=at[one.owner_target])
        for one in layer.shared
    )
    return replace(part, layer=replace(layer, sources=tuple(at[name] for name in layer.sources), shared=shared))


def _merged(below: Part, part: Part, lends: bool) -> Part | None:
    """Return what `below` becomes with the one step of `part`, None where it cannot take it."""
    old, new = below.layer, part.layer
    if old.kind is LayerKind.INPUT or old.dropout:
        return None
    if part.norm is not None:
        return _normalized(below, part, part.norm, lends) if old.activation is Activation.LINEAR else None
    if new.activation is not Activation.LINEAR:
        if old.activation is not Activation.LINEAR:
            return None
        more = {"activation": new.activation, "slope": new.slope, "alpha": new.alpha, "selu_lambda": new.selu_lambda}
        return replace(below, layer=replace(old, **more))  # type: ignore[arg-type]
    return replace(below, layer=replace(old, dropout=new.dropout))


def _normalized(below: Part, part: Part, norm: BatchNorm, lends: bool) -> Part | None:
    scale, shift = factors(norm)
    if part.constant and below.norm is not None:
        own = below.norm
        return replace(below, norm=replace(own, scale=own.scale * scale, bias=own.bias * scale + shift))
    if part.constant and below.weights is not None and below.bias is not None and not (lends or below.constant):
        return replace(below, weights=below.weights * scale[:, None], bias=below.bias * scale + shift)
    if below.norm is not None or (below.bias is not None and (part.constant or below.constant)):
        return None
    layer = replace(below.layer, batch_norm=True)
    return replace(below, layer=layer, norm=norm, constant=part.constant)


def factors(norm: BatchNorm) -> tuple[Floats, Floats]:
    """Return (a, c) of a normalization as a x + c."""
    scale = norm.scale / np.sqrt(norm.variance + np.float32(EPSILON))
    return scale, norm.bias - norm.mean * scale
