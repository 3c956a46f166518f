"""Trains a network on a GPU. Twin: cpu/engine.py."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.contract import TrainSettings
from nnlib.engines import Evaluator, StepFailure
from nnlib.gpu.backward import Backward
from nnlib.gpu.evaluator import GpuEvaluator
from nnlib.gpu.feed import prepare_ahead
from nnlib.gpu.forward import DeviceBatch
from nnlib.gpu.maps.layers import count_asked
from nnlib.gpu.optimizer import Optimizer
from nnlib.gpu.output import ADDED, FAILED, FAILURE, Losses, ShardLosses
from nnlib.gpu.packing import Packing
from nnlib.gpu.runtime import Runtime
from nnlib.gpu.session import Session
from nnlib.gpu.shards.exchange import Exchange
from nnlib.model.augmentation import augment
from nnlib.model.batches import Part, part_of, updates_before, updates_of
from nnlib.model.examples import Examples
from nnlib.model.network import Network, name_broken_layer
from nnlib.optim.hyper import hyper_of, pacings_of, rates_of, slowed
from nnlib.shards.collectives import Collectives
from nnlib.shards.cut import Cut
from nnlib.shards.errors import Errors
from nnlib.shards.tree import SHARDS
from nnlib.util.arrays import Floats, Longs

LOSSES = 1024  # steps whose errors by shard are kept, until they are asked for
LOOKED = 16  # steps after which the errors are looked at


class GpuEngine:
    """Steps are launched and go on by themselves; what came of them is looked at now and then, without waiting."""

    def __init__(
        self,
        runtime: Runtime,
        network: Network,
        examples: Examples,
        settings: TrainSettings,
        threads: int,
        cut: Cut | None,
        together: Collectives,
        sharing: Collectives | None = None,
    ) -> None:
        """Copy the network to the GPU; `threads` prepare batches.

        With a `cut` the network is a rank's part of one, of whole examples, and `together` joins the ranks. `sharing`
        are ranks that have the whole network, and share the examples of a batch, see `shards.by_examples`.
        """
        self._runtime, self._examples, self._threads, self._settings = runtime, examples, threads, settings
        self._spec = network.spec
        size, hyper = min(settings.batch, examples.count), hyper_of(settings)
        size = math.ceil(size / SHARDS) if sharing else size
        most = max(size, count_asked(network.spec))  # that are also evaluated at a time
        several = settings.accumulate > 1
        numbers = hyper.rule, settings.seed, settings.precision, not several
        shards = sharing.own if sharing else None
        self._session = Session(runtime, network, most, *numbers, cut=cut, together=together, shards=shards)
        one, _ = augment(network.spec, examples, np.arange(1), settings.seed, 0)  # of the kinds that steps see
        self._packing = Packing(network.spec, one.sets, size, cut)
        steps = settings.epochs * updates_of(examples.count, settings)
        self._rate, forward = rates_of(network, examples.count, settings), self._session.forward
        self._losses = (
            ShardLosses(forward, size, LOSSES, sharing.own) if sharing else Losses(forward, size, LOSSES if cut else 1)
        )
        pacings = pacings_of(network, examples.count, settings)
        exchange = Exchange(runtime, sharing) if sharing else None
        self._optimizer = Optimizer(forward, hyper, self._rate, steps, settings.clip, several, pacings, exchange)
        self._backward = Backward(forward, self._losses, self._optimizer)
        self._evaluator = GpuEvaluator(self._session, threads)
        assert forward.marks is not None, "a forward pass for training has them"
        self._marks = forward.marks
        self._status, self._seen = runtime.pinned(8), runtime.pinned(self._marks.array.size)
        self._looked = runtime.event()
        self._looking = False
        # Of an epoch of a training that is cut, up to batch `counted`.
        self._errors = Errors(sharing or together) if cut or sharing else None
        self._counted = self.step = 0

    def slow_down(self, factor: float) -> None:
        """See `engines.Engine`."""
        self._optimizer.follow(slowed(self._rate, factor))

    def begin_epoch(self, total: float) -> None:
        """See `engines.Engine`."""
        status = np.zeros(4)
        status[ADDED] = total
        if self._errors is not None:
            self._errors.begin(total)
        self._counted = self.step
        self._runtime.upload(self._losses.status, status)
        self._looking = False

    def batches(self, examples: Iterable[Longs]) -> Generator[Any, None, None]:
        """See `engines.Engine`; a few are prepared ahead of time."""
        return prepare_ahead(self._prepare, enumerate(examples, self.step + 1), self._threads)

    def _prepare(self, numbered: tuple[int, Longs]) -> Any:
        """Return a numbered batch as `_compute` takes it."""
        step, rows = numbered
        examples, rows = augment(self._spec, self._examples, rows, self._settings.seed, step)
        return self._packing.pack(examples, rows, learn=True), len(rows)

    def run(self, batch: Any) -> None:
        """See `engines.Engine`."""
        if self._errors is not None and self.step - self._counted == LOSSES:
            self.total()  # there is room for no more; all ranks are here at the same step
        self.step += 1
        self._compute(batch, part_of(self._examples.count, self._settings, self.step))
        if self.step % LOOKED == 0 and not self._looking:
            self._runtime.begin_download(self._status, self._losses.status)
            self._runtime.begin_download(self._seen, self._marks.array)
            self._looked.record(self._runtime.compute)
            self._looking = True

    def _compute(self, batch: Any, part: Part) -> None:
        words, size = batch
        self._session.run(part, words, self._packing, size, partial(self._work, part), train=True)

    def _begin(self, part: Part) -> None:
        self._runtime.launch("begin_step", (1,), self._session.forward.step)
        self._optimizer.start(part)

    def _work(self, part: Part, batch: DeviceBatch) -> None:
        self._begin(part)
        self._optimizer.settle(batch)
        self._session.forward.run(batch)
        self._backward.run(batch)
        self._optimizer.finish()

    def failed(self, wait: bool = False) -> StepFailure | None:
        """See `engines.Engine`."""
        if wait:
            return self._failure(self._runtime.download(self._losses.status), self._runtime.download(self._marks.array))
        if self._looking and self._looked.done:
            self._looking = False
            return self._failure(self._status.view(np.float64), self._seen)
        return None

    def _failure(self, status: Floats, seen: NDArray[np.int32]) -> StepFailure | None:
        return self._marks.failure(seen, int(status[FAILED]), float(status[FAILURE]))

    def total(self) -> float:
        """See `engines.Engine`."""
        if self._errors is None:
            return float(self._runtime.download(self._losses.status)[ADDED])
        if self.step > self._counted:
            self._losses.add_to(self._errors, np.arange(self._counted, self.step))
        self._counted = self.step
        return self._errors.total()

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
        self.step = self._counted = step
        self._session.parameters.push()
        self._runtime.upload(self._session.forward.step, np.array([step]))
        updates = updates_before(self._examples.count, self._settings, step)
        self._session.parameters.push_states(updates, states)
        self._runtime.upload(self._optimizer.step, np.array([updates]))

    def evaluator(self) -> Evaluator:
        """See `engines.Engine`."""
        return self._evaluator
