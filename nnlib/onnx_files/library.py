"""The one module that imports onnx: bytes become its messages, nodes and weights become bytes."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nnlib.errors import MachineError
from nnlib.util.process import install_line

OPSET, IR_VERSION = 17, 8  # what ONNX Runtime has read since 2022
Shape = tuple[int | str, ...]  # a text stands for any number


@dataclass(slots=True, eq=False)
class Builder:
    """Nodes, weights, inputs and outputs so far; nodes and weights have names of their own."""

    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    inputs: dict[str, Shape] = field(default_factory=dict)
    outputs: dict[str, Shape] = field(default_factory=dict)
    layer: str = ""  # whose nodes are added
    places: Counter[str] = field(default_factory=Counter)  # how often a layer has an operator
    taken: frozenset[str] = frozenset()  # names that no node or weight may have, as inputs or outputs will

    def weight(self, values: ArrayLike) -> str:
        """Keep numbers of the graph; return their name."""
        return self._keep(np.asarray(values, np.float32))

    def whole_numbers(self, *values: int) -> str:
        """Keep a list of whole numbers, such as a shape; return its name."""
        return self._keep(np.array(values, np.int64))

    def _keep(self, values: Any) -> str:
        from onnx import numpy_helper

        name = self._free(f"w{len(self.weights)}")
        self.weights.append(numpy_helper.from_array(np.asarray(values, order="C"), name))
        return name

    def add(self, operator: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """Add a node; return the name of what it gives."""
        from onnx import helper

        name = out or self._free(f"n{len(self.nodes)}")
        place = f"{self.layer}/{operator}" if self.layer else ""
        number = self.places[place]
        self.places[place] += 1
        place += f"_{number}" if place and number else ""
        self.nodes.append(helper.make_node(operator, list(inputs), [name], place or None, **attributes))
        return name

    def _free(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        return name

    def serialize(self, name: str, facts: Mapping[str, str] | None = None) -> bytes:
        """Return the graph as a file's bytes, checked by onnx; `facts` are kept beside it."""
        import onnx
        from onnx import helper

        inputs, outputs = (
            [helper.make_tensor_value_info(at, onnx.TensorProto.FLOAT, shape) for at, shape in ends.items()]
            for ends in (self.inputs, self.outputs)
        )
        # Checked with weights that are inputs, too: of large ones it would make copies.
        open_ends = [helper.make_tensor_value_info(one.name, one.data_type, one.dims) for one in self.weights]
        graph = helper.make_graph(self.nodes, name, [*inputs, *open_ends], outputs)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="regiondag")
        made.ir_version = IR_VERSION
        helper.set_model_props(made, dict(facts or {}))
        onnx.checker.check_model(made)
        del made.graph.input[len(inputs) :]
        while self.weights:
            made.graph.initializer.append(self.weights.pop())
        content: bytes = made.SerializeToString()
        return content


def require_onnx() -> None:
    """Raise MachineError with what to type where onnx is not installed."""
    if importlib.util.find_spec("onnx") is None:
        raise MachineError(f"ONNX files need onnx; to install it: {install_line('onnx')}")


def parse(content: bytes) -> Any:
    """Return the ModelProto that bytes hold; ValueError where they hold none."""
    import onnx

    try:
        return onnx.ModelProto.FromString(content)
    except MemoryError:
        raise
    except Exception as error:  # protobuf has errors of its own, which are no module of ours to import
        raise ValueError(str(error)) from error
