"""Training and asking on the processors of this machine; see `engines.Engine`."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping
from typing import Any

import numpy as np

from nnlib.contract import TrainSettings
from nnlib.cpu.evaluator import CpuEvaluator
from nnlib.cpu.optimizer import Optimizer
from nnlib.cpu.step import Step
from nnlib.engines import Evaluator, StepFailure
from nnlib.model.batches import Batch, batch_of
from nnlib.model.examples import Examples
from nnlib.model.network import Network, broken_layer
from nnlib.optim.hyper import hyper_of, rates_of
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import Each


class CpuEngine:
    """See `engines.Engine`; what came of a batch is known at once."""

    def __init__(self, network: Network, examples: Examples, settings: TrainSettings, each: Each) -> None:
        self._network, self._examples, self._each = network, examples, each
        self._optimizer = Optimizer(network, hyper_of(settings), rates_of(network, examples.count, settings), each)
        self._step = Step(network, self._optimizer, settings, each)
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
        error = self._step.run(batch)
        self._total += error
        if not math.isfinite(error) and self._failure is None:
            self._failure = StepFailure(self.step, error, self._step.broken)

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
        return broken_layer(self._network.spec, finite)

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
