"""One batch through a network and into its optimizer, on the processors of this machine."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.contract import TrainSettings
from nnlib.cpu.backward import backward
from nnlib.cpu.forward import Forward, Values
from nnlib.cpu.gradients import Gradients
from nnlib.cpu.optimizer import Optimizer
from nnlib.cpu.sink import Sink
from nnlib.cpu.sparse_products import touched_by
from nnlib.model.batches import DROPOUT, Batch, add_noise, generator_for
from nnlib.model.network import Layout, Network, block_starts, is_lazy, is_sparse_input
from nnlib.util.threads import Each


class Step:
    """One batch after the other through a network and into its optimizer."""

    def __init__(self, network: Network, optimizer: Optimizer, settings: TrainSettings, each: Each) -> None:
        self.forward = Forward(network, each)
        self.broken = ""  # the layer whose outputs were the first that are not finite, after an error that is not
        self._optimizer, self._settings = optimizer, settings
        self._gradients = Gradients(network) if settings.clip or _needs_whole_gradients(network) else None

    def run(self, batch: Batch) -> float:
        """Train on a batch; return its error, summed over the examples."""
        optimizer, spec = self._optimizer, self.forward.network.spec
        optimizer.begin()
        batch = add_noise(spec, batch, self._settings.seed, optimizer.step)
        values = self.forward.run(batch.inputs, self._keep, True, self._settle(batch))
        sink: Sink = self._gradients or optimizer
        error = backward(self.forward, values, batch.targets, sink)
        if self._gradients is not None:
            self._gradients.give(optimizer, self._settings.clip)
        optimizer.finish()
        if not math.isfinite(error):
            self.broken = self._first_broken(values)
        return error

    def _first_broken(self, values: Values) -> str:
        for node in self.forward.nodes:
            out = values.out.get(node.number)
            if out is None or not np.isfinite(out.data if sparse.issparse(out) else out).all():
                return f", layer {node.layer.name} gives numbers that are not finite"
        return ""

    def _keep(self, layer: int, shape: tuple[int, int]) -> NDArray[np.bool_]:
        layers = self.forward.network.spec.layers
        random = generator_for(self._settings.seed, DROPOUT, self._optimizer.step * len(layers) + layer)
        return np.asarray(random.random(shape, np.float32) >= layers[layer].dropout)

    def _settle(self, batch: Batch) -> Values:
        """Bring the weights that the batch will read up to date; return what is known of its sparse inputs."""
        values = Values()
        for node in self.forward.nodes:
            for edge in node.edges:
                if not sparse.issparse(batch.inputs.get(edge.source)):
                    continue
                if edge.source not in values.touched:
                    values.touched[edge.source] = touched_by(batch.inputs[edge.source])
                rows = values.touched[edge.source].rows
                if self.forward.layouts[edge.number] is Layout.BLOCKED:
                    tables = [self.forward.table(edge, low).start for low in block_starts(node.units)]
                    rows = np.concatenate([rows + start for start in tables])
                self._optimizer.settle(edge.owner, rows)
        return values


def _needs_whole_gradients(network: Network) -> bool:
    """Whether weights are shared, or those of a sparse input cannot be updated row by row."""
    spec = network.spec
    return any(
        edge.owner != edge.number or (is_sparse_input(spec.layers[edge.source]) and not is_lazy(spec, edge))
        for edge in spec.edges
    )
