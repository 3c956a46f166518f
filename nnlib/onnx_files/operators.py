"""The operators of ONNX that are read, with their attributes, and what each becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nnlib.errors import DataError
from nnlib.onnx_files import elementwise, folding, reshaping, weighted, windows
from nnlib.onnx_files.graph import Node
from nnlib.onnx_files.parts import Build, Value
from nnlib.spec.json_section import nearest

MOST_NAMED = 8  # nodes in one message


@dataclass(frozen=True, slots=True)
class Operator:
    """What reads an operator, its attributes that are read, and what it becomes, in words."""

    read: Callable[[Build, Node], Value]
    becomes: str
    attributes: tuple[str, ...] = ()


POOLED = ("kernel_shape", "strides", "pads", "auto_pad", "ceil_mode", "dilations")
OPERATORS: Mapping[str, Operator] = {
    "Conv": Operator(
        weighted.convolve,
        "a Convolutional layer: 1 to 3 sizes, padding, stride, dilation, groups",
        ("kernel_shape", "strides", "pads", "auto_pad", "dilations", "group"),
    ),
    "Gemm": Operator(weighted.gemm, "a FullyConnected layer", ("alpha", "beta", "transA", "transB")),
    "MatMul": Operator(weighted.multiply_matrix, "a FullyConnected layer, with the Add behind it as its bias"),
    "BatchNormalization": Operator(
        weighted.normalize_batch,
        "BatchNormalization of the layer before, or a layer of its own",
        ("epsilon", "momentum", "training_mode", "spatial"),
    ),
    "MaxPool": Operator(windows.pool, "a Pooling layer with Max", (*POOLED, "storage_order")),
    "AveragePool": Operator(
        windows.pool,
        "a Pooling layer with Average; where padding counts, a Convolutional one with fixed weights",
        (*POOLED, "count_include_pad"),
    ),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), Operator(windows.pool_all, "a Pooling layer")),
    **dict.fromkeys(
        ("ReduceMean", "ReduceMax"),
        Operator(
            windows.pool_all,
            "a Pooling layer, over all sizes of the maps",
            ("axes", "keepdims", "noop_with_empty_axes"),
        ),
    ),
    "LRN": Operator(
        windows.normalize_response, "a Pooling layer with LRN, one rule a network", ("size", "alpha", "beta", "bias")
    ),
    "Pad": Operator(windows.pad, "padding of the Conv or MaxPool behind it", ("mode", "pads", "value")),
    **dict.fromkeys(elementwise.PLAIN, Operator(elementwise.activate, "an activation")),
    "LeakyRelu": Operator(elementwise.activate, "an activation, slope from 0 to 1", ("alpha",)),
    "Elu": Operator(elementwise.activate, "an activation", ("alpha",)),
    "Selu": Operator(elementwise.activate, "an activation", ("alpha", "gamma")),
    "Clip": Operator(elementwise.clip, "Relu6 from 0 to 6, Relu from 0 on; others as scaled Relu6", ("min", "max")),
    "HardSigmoid": Operator(elementwise.hard, "a scaled Relu6", ("alpha", "beta")),
    "HardSwish": Operator(elementwise.hard, "a Product with a scaled Relu6"),
    "Swish": Operator(elementwise.swish, "a Product with a Sigmoid", ("alpha",)),
    "Softmax": Operator(elementwise.softmax, "SoftMax, over all units", ("axis",)),
    "LogSoftmax": Operator(
        elementwise.softmax, "SoftMax, at the end of a graph: probabilities, not their logarithms", ("axis",)
    ),
    **dict.fromkeys(
        ("Add", "Sub", "Mul", "Div"),
        Operator(
            elementwise.arithmetic,
            "a Pooling layer with Sum or Product; with an array of the graph, scale and shift by channel",
        ),
    ),
    "Sum": Operator(elementwise.add_all, "a Pooling layer with Sum"),
    "Max": Operator(elementwise.add_all, "a Pooling layer with Maxout"),
    "Concat": Operator(elementwise.concatenate, "a Pooling layer with Concatenate, axis 1", ("axis",)),
    "Identity": Operator(reshaping.keep, "nothing"),
    "Cast": Operator(reshaping.keep, "nothing", ("to", "saturate", "round_mode")),
    "Dropout": Operator(reshaping.drop_out, "pDropout of the layer before", ("ratio", "seed")),
    "Flatten": Operator(reshaping.flatten, "nothing: units are a row already", ("axis",)),
    "Reshape": Operator(reshaping.reshape, "nothing, where examples stay apart", ("shape", "allowzero")),
    **dict.fromkeys(
        ("Squeeze", "Unsqueeze"), Operator(reshaping.squeeze, "nothing: sizes of 1 go and come", ("axes",))
    ),
    "Transpose": Operator(reshaping.transpose, "nothing, where only sizes of 1 move", ("perm",)),
}
ARRAYS = ("Constant", "Shape", *folding.FOLDED)


def check_operators(nodes: Sequence[Node]) -> None:
    """Raise DataError that names nodes whose operators or attributes are not read, and those that are."""
    legal = sorted({*OPERATORS, *ARRAYS})
    unknown = [node for node in nodes if node.operator not in legal]
    if unknown:
        more = f"\nand {len(unknown) - MOST_NAMED} more" if len(unknown) > MOST_NAMED else ""
        lines = [f"{node.place}: not read{nearest(node.operator, legal)}" for node in unknown[:MOST_NAMED]]
        raise DataError("\n".join(lines) + f"{more}\nlegal: {', '.join(legal)}")
    read = {name for node in nodes for name in node.inputs}
    for node in nodes:
        if node.operator == "LogSoftmax" and read.intersection(node.outputs):
            raise node.wrong("becomes probabilities, which other nodes would read as logarithms, legal: at the end")
        if node.operator not in OPERATORS:
            continue
        known = OPERATORS[node.operator].attributes
        for name in node.attributes:
            if name not in known:
                raise node.wrong(f"attribute {name[:40]!r} is not read, legal: {', '.join(known) or 'none'}")


def read_node(build: Build, node: Node) -> None:
    """Add what a node becomes to the build."""
    given = [index for index, name in enumerate(node.inputs) if name]
    if node.operator in ("Constant", "Shape"):
        build.constants[node.outputs[0]] = (folding.constant if node.operator == "Constant" else folding.shape_of)(
            build, node
        )
    elif node.operator in folding.FOLDED and given and all(build.is_constant(node, index) for index in given):
        build.constants[node.outputs[0]] = folding.fold(build, node)
    elif node.operator in OPERATORS:
        build.values[node.outputs[0]] = OPERATORS[node.operator].read(build, node)
    else:
        raise node.wrong("is of a value that is computed, legal: of arrays of the graph")
