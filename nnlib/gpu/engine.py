"""Trains a network on a GPU. Twin: cpu/engine.py."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

import numpy as np

from nnlib.contract import TrainSettings
from nnlib.data.blockwise import BATCH
from nnlib.engines import Evaluator, StepFailure
from nnlib.gpu.backward import Backward
from nnlib.gpu.evaluator import GpuEvaluator
from nnlib.gpu.feed import Words, prepare_ahead
from nnlib.gpu.forward import DeviceBatch
from nnlib.gpu.optimizer import Optimizer
from nnlib.gpu.output import ADDED, FAILED, FAILURE, Losses
from nnlib.gpu.packing import Packing
from nnlib.gpu.runtime import Runtime
from nnlib.gpu.session import Session
from nnlib.model.batches import batches_of
from nnlib.model.examples import Examples
from nnlib.model.network import Network, name_broken_layer
from nnlib.optim.hyper import hyper_of, rates_of
from nnlib.util.arrays import Floats, Longs

LOOKED = 16  # steps after which the errors are looked at

PackedBatch = tuple[Words, int]  # a batch and how many examples it has


class GpuEngine:
    """Steps are launched and go on by themselves; what came of them is looked at now and then, without waiting."""

    def __init__(
        self, runtime: Runtime, network: Network, examples: Examples, settings: TrainSettings, threads: int
    ) -> None:
        """Copy the network to the GPU; `threads` prepare batches."""
        self._runtime, self._examples, self._threads = runtime, examples, threads
        size, hyper = min(settings.batch, examples.count), hyper_of(settings)
        most = max(size, BATCH)  # that are also evaluated at a time
        tf32 = settings.precision.lower() == "tf32"
        self._session = Session(runtime, network, most, hyper.rule, settings.seed, tf32)
        self._packing = Packing(network.spec, examples.sets, size)
        steps, rates = settings.epochs * len(batches_of(examples.count, settings.batch)), rates_of
        forward = self._session.forward
        self._losses = Losses(forward, size)
        self._optimizer = Optimizer(forward, hyper, rates(network, examples.count, settings), steps, settings.clip)
        self._backward = Backward(forward, self._losses, self._optimizer)
        self._evaluator = GpuEvaluator(self._session, threads)
        self._status, self._looked = runtime.pinned(8), runtime.event()
        self._looking = False
        self.step = 0

    def begin_epoch(self, total: float) -> None:
        """See `engines.Engine`."""
        status = np.zeros(4)
        status[ADDED] = total
        self._runtime.upload(self._losses.status, status)
        self._looking = False

    def batches(self, examples: Iterable[Longs]) -> Generator[PackedBatch, None, None]:
        """See `engines.Engine`; a few are prepared ahead of time."""
        return prepare_ahead(self._prepare, examples, self._threads)

    def _prepare(self, rows: Longs) -> PackedBatch:
        return self._packing.pack(self._examples, rows, learn=True), len(rows)

    def run(self, batch: Any) -> None:
        """See `engines.Engine`."""
        words, size = batch
        self.step += 1
        self._session.run("train", words, self._packing, size, self._work, train=True)
        if self.step % LOOKED == 0 and not self._looking:
            self._runtime.begin_download(self._status, self._losses.status)
            self._looked.record(self._runtime.compute)
            self._looking = True

    def _work(self, batch: DeviceBatch) -> None:
        self._runtime.launch("begin_step", (1,), self._session.forward.step)
        self._optimizer.settle(batch)
        self._session.forward.run(batch)
        self._backward.run(batch)
        self._optimizer.finish()

    def failed(self, wait: bool = False) -> StepFailure | None:
        """See `engines.Engine`."""
        if wait:
            return _failure(self._runtime.download(self._losses.status))
        if self._looking and self._looked.done:
            self._looking = False
            return _failure(self._status.view(np.float64))
        return None

    def total(self) -> float:
        """See `engines.Engine`."""
        return float(self._runtime.download(self._losses.status)[ADDED])

    def settle(self) -> None:
        """See `engines.Engine`."""
        self._optimizer.settle_all()

    def broken(self) -> str:
        """See `engines.Engine`."""
        return name_broken_layer(self._session.graph.network.spec, self._session.finite())

    def pull(self) -> Network:
        """See `engines.Engine`."""
        return self._session.parameters.pull()

    def states(self) -> Mapping[str, Floats]:
        """See `engines.Engine`."""
        return self._session.parameters.pull_states()

    def resume(self, step: int, states: Mapping[str, Floats]) -> None:
        """See `engines.Engine`."""
        self.step = step
        self._session.parameters.push()
        self._session.parameters.push_states(step, states)
        self._runtime.upload(self._session.forward.step, np.array([step]))

    def evaluator(self) -> Evaluator:
        """See `engines.Engine`."""
        return self._evaluator


def _failure(status: Floats) -> StepFailure | None:
    step = int(status[FAILED])
    return StepFailure(step, float(status[FAILURE])) if step else None
