"""A small residual network as an ONNX graph, without torch: python -m scripts.bench.onnx.made FILE."""

from __future__ import annotations

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZE, CHANNELS, CLASSES = 32, 16, 10


def write(file: str) -> None:
    """Write the graph: two convolutions with batch normalization around a sum, and a head."""
    random = np.random.default_rng(1)
    arrays: list[onnx.TensorProto] = []

    def drawn(*shape: int, low: float = -1.0) -> str:
        values = random.uniform(low, 1.0, shape) / np.sqrt(np.prod(shape[1:]))
        arrays.append(numpy_helper.from_array(values.astype(np.float32), f"array{len(arrays)}"))
        return str(arrays[-1].name)

    def norm(of: str, out: str) -> onnx.NodeProto:
        numbers = [drawn(CHANNELS, low=low) for low in (0.5, -1.0, -1.0, 0.5)]
        return helper.make_node("BatchNormalization", [of, *numbers], [out])

    nodes = [
        helper.make_node("Conv", ["images", drawn(CHANNELS, 3, 3, 3)], ["a"], pads=[1] * 4),
        norm("a", "b"),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["c", drawn(CHANNELS, CHANNELS, 3, 3)], ["d"], pads=[1] * 4),
        norm("d", "e"),
        helper.make_node("Add", ["e", "c"], ["f"]),
        helper.make_node("Relu", ["f"], ["g"]),
        helper.make_node("GlobalAveragePool", ["g"], ["h"]),
        helper.make_node("Flatten", ["h"], ["i"]),
        helper.make_node("Gemm", ["i", drawn(CLASSES, CHANNELS), drawn(CLASSES)], ["logits"], transB=1),
    ]
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ("batch", 3, SIZE, SIZE))
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ("batch", CLASSES))
    graph = helper.make_graph(nodes, "made", [images], [logits], arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, file)


if __name__ == "__main__":
    write(sys.argv[1])
