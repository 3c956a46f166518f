"""Trains a network on the processors of this machine. Twin: gpu/engine.py."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.contract import TrainSettings
from nnlib.cpu.backward import backward
from nnlib.cpu.evaluator import CpuEvaluator
from nnlib.cpu.forward import Forward, Values
from nnlib.cpu.gradients import Gradients
from nnlib.cpu.optimizer import Optimizer
from nnlib.cpu.sparse_products import touched_by
from nnlib.engines import Evaluator, StepFailure
from nnlib.model.batches import DROPOUT, Batch, add_noise, batch_of, generator_for
from nnlib.model.examples import Examples
from nnlib.model.network import Layout, Network, block_starts, is_lazy, is_sparse_input, name_broken_layer
from nnlib.optim.hyper import hyper_of, rates_of
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import Each


class CpuEngine:
    """See `engines.Engine`; what came of a batch is known at once."""

    def __init__(self, network: Network, examples: Examples, settings: TrainSettings, each: Each) -> None:
        self._network, self._examples, self._each = network, examples, each
        self._optimizer = Optimizer(network, hyper_of(settings), rates_of(network, examples.count, settings), each)
        self._forward, self._settings = Forward(network, each), settings
        self._gradients = Gradients(network) if settings.clip or _needs_whole_gradients(network) else None
        self._failure: StepFailure | None = None
        self._total = 0.0

    @property
    def step(self) -> int:
        """How many steps were begun."""
        return self._optimizer.step

    def begin_epoch(self, total: float) -> None:
        """See `engines.Engine`."""
        self._total = total

    def batches(self, examples: Iterable[Longs]) -> Generator[Batch, None, None]:
        """See `engines.Engine`."""
        for rows in examples:
            yield batch_of(self._network.spec, self._examples, rows, self._network.dtype)

    def run(self, batch: Any) -> None:
        """See `engines.Engine`."""
        optimizer, spec = self._optimizer, self._network.spec
        optimizer.begin()
        batch = add_noise(spec, batch, self._settings.seed, optimizer.step)
        values = self._forward.run(batch.inputs, self._keep, True, self._settle(batch))
        error = backward(self._forward, values, batch.targets, self._gradients or optimizer)
        if self._gradients is not None:
            self._gradients.give(optimizer, self._settings.clip)
        optimizer.finish()
        self._total += error
        if not math.isfinite(error) and self._failure is None:
            self._failure = StepFailure(self.step, error, self._first_broken(values))

    def failed(self, wait: bool = False) -> StepFailure | None:  # noqa: ARG002 (nothing to wait for)
        """See `engines.Engine`."""
        return self._failure

    def total(self) -> float:
        """See `engines.Engine`."""
        return self._total

    def settle(self) -> None:
        """See `engines.Engine`."""
        self._optimizer.settle_all()

    def broken(self) -> str:
        """See `engines.Engine`."""
        finite = {name for name, array in self._network.arrays() if np.isfinite(array).all()}
        return name_broken_layer(self._network.spec, finite)

    def pull(self) -> Network:
        """See `engines.Engine`."""
        return self._network

    def states(self) -> Mapping[str, Floats]:
        """See `engines.Engine`; these are the arrays that are trained with."""
        return self._optimizer.arrays()

    def resume(self, step: int, states: Mapping[str, Floats]) -> None:
        """See `engines.Engine`."""
        for name, array in self._optimizer.arrays().items():
            array[...] = states[name]
        self._optimizer.resume(step)

    def evaluator(self) -> Evaluator:
        """See `engines.Engine`."""
        return CpuEvaluator(self._network, self._each)

    def _first_broken(self, values: Values) -> str:
        for node in self._forward.nodes:
            out = values.out.get(node.number)
            if out is None or not np.isfinite(out.data if sparse.issparse(out) else out).all():
                return f", layer {node.layer.name} gives numbers that are not finite"
        return ""

    def _keep(self, layer: int, shape: tuple[int, int]) -> NDArray[np.bool_]:
        layers = self._forward.network.spec.layers
        random = generator_for(self._settings.seed, DROPOUT, self._optimizer.step * len(layers) + layer)
        return np.asarray(random.random(shape, np.float32) >= layers[layer].dropout)

    def _settle(self, batch: Batch) -> Values:
        """Bring the weights that the batch will read up to date; return what is known of its sparse inputs."""
        values = Values()
        for node in self._forward.nodes:
            for edge in node.edges:
                if not sparse.issparse(batch.inputs.get(edge.source)):
                    continue
                if edge.source not in values.touched:
                    values.touched[edge.source] = touched_by(batch.inputs[edge.source])
                rows = values.touched[edge.source].rows
                if self._forward.layouts[edge.number] is Layout.BLOCKED:
                    tables = [self._forward.table(edge, low).start for low in block_starts(node.units)]
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
