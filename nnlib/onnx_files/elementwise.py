"""Operators that keep a value's shape: activations, sums and products, and arithmetic with arrays of the graph."""

from __future__ import annotations

from functools import reduce
from math import inf, isinf, prod

import numpy as np

from nnlib.onnx_files.graph import Node
from nnlib.onnx_files.parts import Build, Value
from nnlib.spec.json_section import show
from nnlib.spec.types import Activation, PoolingFunction
from nnlib.util.arrays import Floats

PLAIN = {
    "Relu": Activation.RELU, "Sigmoid": Activation.SIGMOID, "Tanh": Activation.TANH, "Softplus": Activation.SOFTPLUS,
    "Softsign": Activation.SOFTSIGN,
}  # fmt: skip
SELU = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}  # as the operator's text has them


def activate(build: Build, node: Node) -> Value:
    """Operators that are an activation of ours."""
    value = build.value(node)
    if node.operator in PLAIN:
        return build.activate(node, value, PLAIN[node.operator])
    if node.operator == "LeakyRelu":
        slope = node.real("alpha", 0.01)
        if not 0 <= slope <= 1:
            raise node.wrong(f"attribute alpha is {slope:g}, legal: a number from 0 to 1")
        return build.activate(node, value, Activation.LEAKY_RELU, slope=slope)
    if node.operator == "Elu":
        return build.activate(node, value, Activation.ELU, alpha=_positive(node, "alpha", 1.0))
    alpha, gamma = (_positive(node, name, usual) for name, usual in SELU.items())
    return build.activate(node, value, Activation.SELU, alpha=alpha, selu_lambda=gamma)


def _positive(node: Node, name: str, default: float) -> float:
    value = node.real(name, default)
    if value < 0:
        raise node.wrong(f"attribute {name} is {value:g}, legal: a number from 0")
    return value


def clip(build: Build, node: Node) -> Value:
    """Clip: Relu6 from 0 to 6, Relu from 0 on; other bounds are scaled to these."""
    low, high = build.number(node, "min", 1, -inf), build.number(node, "max", 2, inf)
    low, high = (bound if abs(bound) < 1e30 else np.copysign(inf, bound) for bound in (low, high))
    return _between(build, node, build.value(node), low, high)


def _between(build: Build, node: Node, value: Value, low: float, high: float) -> Value:
    if (low, high) == (0, 6):
        return build.activate(node, value, Activation.RELU6)
    if (low, high) == (0, inf):
        return build.activate(node, value, Activation.RELU)
    if isinf(low) or isinf(high) or not low < high:
        raise node.wrong(f"clips from {low:g} to {high:g}, legal: between two numbers, or from 0")
    span = (high - low) / 6
    below = build.activate(node, build.affine(node, value, 1 / span, -low / span), Activation.RELU6)
    return build.affine(node, below, span, low)


def hard(build: Build, node: Node) -> Value:
    """HardSigmoid, alpha x + beta between 0 and 1; HardSwish, x times that."""
    value, swish = build.value(node), node.operator == "HardSwish"
    alpha, beta = (1 / 6, 0.5) if swish else (node.real("alpha", 0.2), node.real("beta", 0.5))
    # Six times as much, as Relu6 ends at 6.
    inner = build.activate(node, build.affine(node, value, 6 * alpha, 6 * beta), Activation.RELU6)
    gate = build.affine(node, inner, 1 / 6, 0)
    return build.join(node, PoolingFunction.PRODUCT, [value, gate]) if swish else gate


def swish(build: Build, node: Node) -> Value:
    """Swish, x sigmoid(alpha x)."""
    value, alpha = build.value(node), node.real("alpha", 1.0)
    inner = value if alpha == 1 else build.affine(node, value, alpha, 0)
    return build.join(node, PoolingFunction.PRODUCT, [value, build.activate(node, inner, Activation.SIGMOID)])


def softmax(build: Build, node: Node) -> Value:
    """Softmax over all units; LogSoftmax becomes the same, as nothing ranks otherwise by it."""
    value = build.value(node)
    axis = node.whole("axis", 1 if build.opset < 13 else -1) % (len(value.shape) + 1)
    others = prod(value.shape) // value.shape[axis - 1] if axis else 0
    if others != 1 and not (build.opset < 13 and axis == 1):
        raise node.wrong(f"is over axis {axis} of {value}, legal: over all units")
    if node.operator == "LogSoftmax":
        build.notes.append(f"{node.place}: gives probabilities here, not their logarithms")
    return build.activate(node, value, Activation.SOFTMAX)


def arithmetic(build: Build, node: Node) -> Value:
    """Add, Sub, Mul and Div of two values, or of one and an array that has a number, or one a channel."""
    constant = [build.is_constant(node, index) for index in (0, 1)]
    if not any(constant):
        one, other = build.value(node, 0), build.value(node, 1)
        if node.operator == "Div":
            raise node.wrong("divides by a value that is computed, legal: by an array of the graph")
        return _joined(build, node, one, other)
    if all(constant):
        raise node.wrong("is of two arrays of the graph that are not a shape, legal: of a value and an array")
    value = build.value(node, constant.index(False))
    number = _by_channel(build, node, value, constant.index(True))
    if node.operator == "Div":
        if constant[0] or not number.all():
            raise node.wrong("divides by a value that is computed or by 0, legal: by an array of the graph without 0")
        return build.affine(node, value, 1 / number, 0)
    if node.operator == "Mul":
        return build.affine(node, value, number, 0)
    if node.operator == "Sub" and constant[0]:
        return build.affine(node, value, -1, number)
    return build.affine(node, value, 1, number if node.operator == "Add" else -number)


def _joined(build: Build, node: Node, one: Value, other: Value) -> Value:
    if node.operator == "Sub":
        other = build.affine(node, other, -1, 0)
    if node.operator == "Mul":
        spread = {value.shape[0] for value in (one, other)} if len(one.shape) == len(other.shape) else set()
        flat = [prod(value.shape[1:]) == 1 for value in (one, other)]
        if one.shape != other.shape and not (len(spread) == 1 and any(flat)):
            raise _mismatch(node, one, other)
        if one.part == other.part:
            other = build.activate(node, other, Activation.LINEAR)
        return build.join(node, PoolingFunction.PRODUCT, [one, other])
    if one.shape != other.shape:
        raise _mismatch(node, one, other)
    if one.part == other.part:
        return build.affine(node, one, 2, 0)
    return build.join(node, PoolingFunction.SUM, [one, other])


def add_all(build: Build, node: Node) -> Value:
    """Sum and Max of several values of one shape."""
    values = [build.value(node, index) for index in range(len(node.inputs))]
    if not values:
        raise node.wrong("is given nothing")
    if node.operator == "Sum":
        return reduce(lambda one, other: _joined(build, node, one, other), values)
    values = list({value.part: value for value in values}.values())
    for other in values[1:]:
        if other.shape != values[0].shape:
            raise _mismatch(node, values[0], other)
    return values[0] if len(values) == 1 else build.join(node, PoolingFunction.MAXOUT, values)


def concatenate(build: Build, node: Node) -> Value:
    """Concat of channels, or of units."""
    values = [build.value(node, index) for index in range(len(node.inputs))]
    ranks = {len(value.shape) for value in values}
    axis = node.whole("axis", 1)
    if len(ranks) != 1 or axis % (min(ranks) + 1) != 1:
        raise node.wrong(f"is over axis {axis}, legal: 1, of values with as many axes")
    for other in values[1:]:
        if other.shape[1:] != values[0].shape[1:]:
            raise _mismatch(node, values[0], other)
    if len(values) == 1:
        return values[0]
    return build.concatenate(node, values)


def _by_channel(build: Build, node: Node, value: Value, index: int) -> Floats:
    """Return a number for each channel, or one for all."""
    found = build.floats(node, index)
    if found.size == 1:
        return found.reshape(1)
    rank = len(value.shape) + 1
    shape = (1,) * (rank - found.ndim) + found.shape
    if shape != (1, value.shape[0], *(1,) * (rank - 2)):
        raise node.wrong(f"is of an array {list(found.shape)} and {value}, legal: one number, or one a channel")
    channels = build.parts[value.part].shape[0]
    if found.size != channels:  # the units of maps, in a row
        raise node.wrong(
            f"is of {found.size:,} numbers, and layer {show(value.part)} has {channels:,} channels, legal: as many; do "
            "it by channel before units are put in a row"
        )
    return found.reshape(-1)


def _mismatch(node: Node, one: Value, other: Value) -> Exception:
    shapes = " and ".join(f"{value}" for value in (one, other))
    legal = "one shape" + (", or maps and a number for each" if node.operator == "Mul" else "")
    return node.wrong(f"is given {shapes}, legal: {legal}")
