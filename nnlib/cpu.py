"""Training and asking on the processors of this machine; see `compute`."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib import backend, metrics
from nnlib.batches import Batch, Examples, batch_of, inputs_of
from nnlib.compute import Evaluator, Failure, Floats, Longs
from nnlib.contract import TrainSettings
from nnlib.data import Csr
from nnlib.graph import Graph, finite
from nnlib.network import Network, broken_layer
from nnlib.optimizers import Optimizer, hyper_of, rates_of
from nnlib.ranking import top
from nnlib.step import Step
from nnlib.threads import Each, one_by_one


class Cpu:
    """The processors, of which `each` uses one or several; see `compute.Compute`."""

    def __init__(self, each: Each = one_by_one) -> None:
        self.name, self.each = backend.NAME, each
        self.versions: Mapping[str, str] = {}
        self.device: Mapping[str, str] = {}

    def engine(self, network: Network, examples: Examples, settings: TrainSettings) -> CpuEngine:
        """See `compute.Compute`."""
        return CpuEngine(network, examples, settings, self.each)

    def evaluator(self, network: Network, split: bool = False) -> Evaluator:
        """See `compute.Compute`."""
        return CpuEvaluator(network, self.each, split)


class CpuEvaluator:
    """See `compute.Evaluator`."""

    def __init__(self, network: Network, each: Each, split: bool = False) -> None:
        self.network, self._each = network, each
        self._graph = Graph(network, each if split else one_by_one)

    def mean_loss(self, examples: Examples) -> float:
        """See `compute.Evaluator`."""
        return metrics.mean_loss(self.network, examples, self._each)

    def top(self, examples: Examples, output: int, k: int, owned: Csr | None) -> tuple[NDArray[np.int64], Floats]:
        """See `compute.Evaluator`."""
        return top(self.sums(examples, output), k, owned)

    def sums(self, examples: Examples, output: int) -> Floats:
        """See `compute.Evaluator`."""
        return self._graph.output_sums(inputs_of(self.network.spec, examples, self.network.dtype), output)

    def values(self, examples: Examples, layer: int) -> Floats:
        """See `compute.Evaluator`."""
        with np.errstate(all="ignore"):
            inputs = inputs_of(self.network.spec, examples, self.network.dtype)
            return finite(self._graph.activations(inputs, layer))


class CpuEngine:
    """See `compute.Engine`; what came of a batch is known at once."""

    def __init__(self, network: Network, examples: Examples, settings: TrainSettings, each: Each) -> None:
        self._network, self._examples, self._each = network, examples, each
        self._optimizer = Optimizer(network, hyper_of(settings), rates_of(network, examples.count, settings), each)
        self._step = Step(network, self._optimizer, settings, each)
        self._failure: Failure | None = None
        self._total = 0.0

    @property
    def step(self) -> int:
        """How many steps were begun."""
        return self._optimizer.step

    def begin_epoch(self, total: float) -> None:
        """See `compute.Engine`."""
        self._total = total

    def batches(self, examples: Iterable[Longs]) -> Generator[Batch, None, None]:
        """See `compute.Engine`."""
        for rows in examples:
            yield batch_of(self._network.spec, self._examples, rows, self._network.dtype)

    def run(self, batch: Any) -> None:
        """See `compute.Engine`."""
        error = self._step.run(batch)
        self._total += error
        if not math.isfinite(error) and self._failure is None:
            self._failure = Failure(self.step, error, self._step.broken)

    def failed(self, wait: bool = False) -> Failure | None:  # noqa: ARG002 (nothing to wait for)
        """See `compute.Engine`."""
        return self._failure

    def total(self) -> float:
        """See `compute.Engine`."""
        return self._total

    def settle(self) -> None:
        """See `compute.Engine`."""
        self._optimizer.settle_all()

    def broken(self) -> str:
        """See `compute.Engine`."""
        finite = {name for name, array in self._network.arrays() if np.isfinite(array).all()}
        return broken_layer(self._network.spec, finite)

    def pull(self) -> Network:
        """See `compute.Engine`."""
        return self._network

    def states(self) -> Mapping[str, Floats]:
        """See `compute.Engine`; these are the arrays that are trained with."""
        return self._optimizer.arrays()

    def resume(self, step: int, states: Mapping[str, Floats]) -> None:
        """See `compute.Engine`."""
        for name, array in self._optimizer.arrays().items():
            array[...] = states[name]
        self._optimizer.resume(step)

    def evaluator(self) -> Evaluator:
        """See `compute.Engine`."""
        return CpuEvaluator(self._network, self._each)
