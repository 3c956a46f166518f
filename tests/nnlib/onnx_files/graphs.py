"""Small ONNX graphs, on which three must agree: ONNX Runtime, the imported network, and it exported again."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, save

from nnlib.cpu.forward import Forward
from nnlib.model.file import Model, read_model, write_model
from nnlib.model.graph import Graph
from nnlib.onnx_files.read import ImportOptions, import_network
from nnlib.onnx_files.write import write_onnx
from nnlib.spec.network import parse_network
from nnlib.spec.types import LayerKind
from nnlib.spec.write_json import network_to_json

EXAMPLES = 3


@dataclass
class Small:
    """A graph that is put together node by node; every array is drawn."""

    shape: tuple[int, ...] = (4, 6, 5)  # of an example
    opset: int = 20
    nodes: list[Any] = field(default_factory=list)
    arrays: list[Any] = field(default_factory=list)
    inputs: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))

    def __post_init__(self):
        self.inputs = self.inputs or {"x": ("batch", *self.shape)}

    def array(self, values, name="", dtype=np.float32):
        name = name or f"a{len(self.arrays)}"
        self.arrays.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def drawn(self, *shape, low=None, name=""):
        values = self.random.standard_normal(shape) / max(1, prod(shape[1:])) ** 0.5
        return self.array(values if low is None else low + np.abs(values), name)

    def add(self, operator, *inputs, out="", **attributes):
        out = out or f"n{len(self.nodes)}"
        inputs = [one if isinstance(one, str) else self.array(one) for one in inputs]
        self.nodes.append(helper.make_node(operator, inputs, [out], name=f"/{out}/{operator}", **attributes))
        return out

    def conv(self, x, below, above, *kernel, groups=1, bias=True, **attributes):
        arrays = [self.drawn(above, below // groups, *kernel), *([self.drawn(above)] if bias else [])]
        return self.add("Conv", x, *arrays, group=groups, **attributes)

    def norm(self, x, channels, **attributes):
        arrays = [self.drawn(channels, low=0.5), self.drawn(channels), self.drawn(channels)]
        return self.add("BatchNormalization", x, *arrays, self.drawn(channels, low=0.3), **attributes)

    def head(self, x, below, above=3):
        return self.add("Gemm", self.add("Flatten", x), self.drawn(above, below), self.drawn(above), transB=1)

    def model(self, *outputs):
        float32 = TensorProto.FLOAT
        ends = [helper.make_tensor_value_info(name, float32, shape) for name, shape in self.inputs.items()]
        given = [helper.make_tensor_value_info(name, float32, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "small", ends, given, self.arrays)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        made.ir_version = 9
        return made

    def save(self, path: Path, *outputs, **more):
        save(self.model(*outputs), str(path), **more)
        return path


def ask(path, inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = [one.name for one in session.get_inputs()]
    return session.run(None, dict(zip(wanted, inputs, strict=True)))


def draw(small: Small) -> list[Any]:
    random = np.random.default_rng(8)
    return [random.standard_normal((EXAMPLES, *shape[1:])).astype(np.float32) for shape in small.inputs.values()]


def ours(network, inputs):
    """Return what each Output gives, flat."""
    forward = Forward(network)
    numbers = [n for n, layer in enumerate(network.spec.layers) if layer.kind is LayerKind.INPUT]
    given = {n: one.reshape(len(one), -1) for n, one in zip(numbers, inputs, strict=True)}
    outputs = [n for n, layer in enumerate(network.spec.layers) if layer.kind is LayerKind.OUTPUT]
    return [forward.activations(given, n) for n in outputs]


def agree(small: Small, folder: Path, *outputs, logarithms=False, tolerance=2e-6):
    """Import a graph, write it as a model and as a graph again; compare all three. Return the network."""
    path = small.save(folder / "small.onnx", *outputs)
    inputs = draw(small)
    wanted = [np.exp(one) if logarithms else one for one in ask(path, inputs)]
    imported = import_network(path, ImportOptions())
    write_model(folder / "small.nc", Model(imported.network))
    network = read_model(folder / "small.nc").network
    parsed = parse_network(network_to_json(imported.tuned), "small.json")
    assert [one.name for one in parsed.layers] == [one.name for one in network.spec.layers]
    assert len(Graph(network).outputs) == len(outputs)
    write_onnx(folder / "small.nc", "", folder / "again.onnx")
    for found in (ours(network, inputs), ask(folder / "again.onnx", inputs)):
        for one, other in zip(wanted, found, strict=True):
            scale = max(1.0, np.abs(one).max())
            np.testing.assert_allclose(other.reshape(one.shape), one, rtol=0, atol=tolerance * scale)
    return network
