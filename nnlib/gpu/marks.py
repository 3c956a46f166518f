"""Where kernels of a training step note what is not finite: which step was the first, of each layer and each array."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from nnlib.engines import StepFailure
from nnlib.gpu.parameters import Parameters
from nnlib.gpu.runtime import Array
from nnlib.model.graph import Graph
from nnlib.model.network import name_broken_layer, name_broken_values


class Marks:
    """Steps, from 1, in which the values of layers and then arrays of parameters were first not finite; 0: never.

    Layers whose activation takes whole rows (SoftMax) have no mark: what breaks there is marked one layer further on.
    """

    def __init__(self, parameters: Parameters, graph: Graph) -> None:
        self._graph, layers = graph, len(graph.network.spec.layers)
        names = [name for name, _, _ in parameters.flat_order] + [f"weights{owner}" for owner in parameters.tables]
        self._places = {name: layers + n for n, name in enumerate(names)}
        self.array = parameters.runtime.zeros(layers + len(names), np.int32)

    def of_layer(self, number: int) -> Array:
        """Return the mark of a layer's values."""
        return self.array[number : number + 1]

    def of_parts(self, first: str) -> Array:
        """Return the marks of an array of parameters and those that come after it in `Parameters.flat_order`."""
        return self.array[self._places[first] :]

    def failure(self, seen: NDArray[np.int32], step: int, error: float) -> StepFailure | None:
        """Return the first failure: `seen` is what was in `array`, `step` the first that had a loss which is none."""
        steps = [*seen[seen > 0].tolist(), *([step] if step else [])]
        if not steps:
            return None
        first = min(steps)
        error = error if step == first else 0.0
        nodes = [node for node in self._graph.nodes if seen[node.number] == first]
        if not nodes and not math.isfinite(error):
            nodes = list(self._graph.outputs)
        if nodes:
            return StepFailure(first, error, name_broken_values(nodes[0].layer.name))
        broken = {name for name, place in self._places.items() if seen[place] == first}
        names = {name for name, _ in self._graph.network.arrays()}
        return StepFailure(first, error, name_broken_layer(self._graph.network.spec, names - broken))
