"""Operators with weights: convolution, products with a matrix, batch normalization."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from math import prod

import numpy as np

from nnlib.onnx_files.graph import Node
from nnlib.onnx_files.parts import Build, Part, Value
from nnlib.onnx_files.windows import windows_of
from nnlib.ops.batch_norm import EPSILON, BatchNorm
from nnlib.spec.types import LayerType, SharedWeights
from nnlib.util.arrays import Floats


def convolve(build: Build, node: Node) -> Value:
    """Conv: weights (out, in / groups, sizes), cross-correlation as everywhere."""
    value = build.maps(node, padded=True)
    if value.padding:
        raise node.wrong(f"follows a Pad with {value.padding:g}, legal: with 0")
    weights, groups = build.floats(node, 1), node.whole("group", 1)
    channels, axes = value.shape[0], len(value.shape) - 1
    outputs = len(weights) if weights.ndim else 0
    fits = weights.ndim == axes + 2 and groups > 0 and not outputs % groups and weights.shape[1] * groups == channels
    if not fits or not outputs:
        raise node.wrong(
            f"weights {list(weights.shape)} in {groups} groups, legal: (maps, {channels} / groups, {axes} sizes), and "
            "groups that divide both"
        )
    windows = windows_of(node, value, kernel=weights.shape[2:])
    shape = (outputs, *(window.out for window in windows.axes))
    bias = build.floats(node, 2, (outputs,)) if build.has(node, 2) else np.zeros(outputs, np.float32)
    key = (node.inputs[1], build.parts[value.part].shape, windows, groups)
    layer = build.layer(node, LayerType.CONVOLUTIONAL, (value.part,), groups=groups, **windows.keys())
    return _weighted(build, Part(layer, shape, weights.reshape(outputs, -1), bias.copy()), key)


def multiply_matrix(build: Build, node: Node) -> Value:
    """MatMul: x W, W (in, out); a bias is an Add of its own, which is merged."""
    weights = build.floats(node, 1)
    bias = np.zeros(weights.shape[-1:], np.float32)
    return _fully_connect(build, node, weights.T, bias, (node.inputs[1], False, 1.0))


def gemm(build: Build, node: Node) -> Value:
    """Gemm: alpha x W + beta c, W (in, out), or (out, in) with transB."""
    if node.whole("transA", 0):
        raise node.wrong("attribute transA is 1, legal: 0")
    weights, turned, alpha = build.floats(node, 1), bool(node.whole("transB", 0)), node.real("alpha", 1.0)
    weights = weights if turned else weights.T
    outputs = weights.shape[:1]
    bias = np.zeros(outputs, np.float32)
    if build.has(node, 2):
        given = build.floats(node, 2)
        if given.size != 1 and given.shape not in (outputs, (1, *outputs)):
            raise node.wrong(f"bias {list(given.shape)}, legal: {list(outputs)}")
        bias = np.broadcast_to(given.reshape(-1), outputs) * np.float32(node.real("beta", 1.0))
    scaled = weights if alpha == 1 else weights * np.float32(alpha)
    return _fully_connect(build, node, scaled, bias, (node.inputs[1], turned, alpha))


def normalize_batch(build: Build, node: Node) -> Value:
    """BatchNormalization by its running statistics, each with another epsilon than ours folded in."""
    for name, legal in (("training_mode", 0), ("spatial", 1)):
        if node.whole(name, legal) != legal:
            raise node.wrong(f"attribute {name} is not {legal}: export the network for evaluation, by model.eval()")
    value = build.value(node)
    scale, bias, mean, variance = (build.floats(node, n, (value.shape[0],)) for n in (1, 2, 3, 4))
    if variance.min(initial=0) < 0:
        raise node.wrong(f"a variance is {variance.min():g}, legal: numbers from 0")
    wanted = variance + np.float32(node.real("epsilon", 1e-5))
    if not wanted.min(initial=1) > 0:
        raise node.wrong("variance + epsilon is not above 0")
    kept = np.maximum(wanted - np.float32(EPSILON), 0)
    scale = scale * np.sqrt((kept + np.float32(EPSILON)) / wanted)
    return build.normalize(node, value, BatchNorm(scale, bias.copy(), mean.copy(), kept))


def _fully_connect(build: Build, node: Node, weights: Floats, bias: Floats, key: Hashable) -> Value:
    value = build.value(node)
    if weights.ndim != 2 or not weights.size or value.shape != weights.shape[1:]:
        raise node.wrong(f"is given {value} and weights {list(weights.shape[::-1])}, legal: (batch, in) and (in, out)")
    if prod(build.parts[value.part].shape) != weights.shape[1]:
        raise node.wrong("is given other units than a layer has")
    layer = build.layer(node, LayerType.FULLY_CONNECTED, (value.part,))
    return _weighted(build, Part(layer, weights.shape[:1], weights, bias.copy()), key)


def _weighted(build: Build, part: Part, key: Hashable) -> Value:
    """Add a part with weights, or without where another has the same ones of the graph and uses them alike."""
    owner = build.owners.setdefault(key, part.layer.name)
    if owner != part.layer.name:
        [source], [owner_source] = part.layer.sources, build.parts[owner].layer.sources
        shared = SharedWeights(source, owner_source, owner)
        part = replace(part, layer=replace(part.layer, shared=(shared,)), weights=None)
    return build.add(part)
