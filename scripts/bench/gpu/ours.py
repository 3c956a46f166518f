"""Our side of the GPU's training: nnlib's engine on a GPU."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np

from nnlib.contract import TrainSettings
from nnlib.data.sets import DataSet
from nnlib.engines import Backend
from nnlib.model.examples import examples_of
from nnlib.model.network import Network, assemble
from scripts.bench.common.nnlib_pictures import picture_network
from scripts.bench.common.nnlib_side import data_sets, network_spec
from scripts.bench.common.pictures import PICTURES
from scripts.bench.common.workload import MEMORY, PREPARE, STEP, serve, weights, widths
from scripts.bench.gpu.work import CHECKED, MB, GpuWork, timed

THREADS = min(8, os.cpu_count() or 1)  # that prepare batches
MOST_STEPS = 20_000  # the learning rates of all of them are on the GPU from the start


def main() -> None:
    """Serve the work named on the command line."""
    import cupy

    from nnlib.gpu.backend import Gpu

    with Gpu.open(THREADS) as gpu:
        served(GpuWork(**json.loads(sys.argv[1])), gpu, cupy.get_default_memory_pool().total_bytes)


def served(work: GpuWork, compute: Backend, taken: Callable[[], int]) -> None:
    """Serve a work; `taken` says how many bytes of the GPU are taken, which are never given back."""
    training = Training(work, compute)
    losses = training.losses()
    timed(training.step, training.settle, work.warm)
    serve(
        {"losses": losses},
        {
            STEP: lambda: {"ms": timed(training.step, training.settle, work.steps)},
            PREPARE: training.prepare_and_step,
            MEMORY: lambda: {"mb": taken() / MB},
        },
    )


class Training:
    """A training on batches that are prepared once, in turn."""

    def __init__(self, work: GpuWork, compute: Backend) -> None:
        data = data_sets(work)
        network = network_of(work, data)
        examples = examples_of(network.spec, data, "bench")
        self._work, self._engine = work, compute.engine(network, examples, settings_of(work))
        self._places = [np.arange(work.batch) + low for low in range(0, work.batch * work.batches, work.batch)]
        self._batches = itertools.cycle(list(self._engine.batches(self._places)))

    def losses(self) -> list[float]:
        """Train on the first batches and return the mean error of each."""
        found = []
        for _ in range(CHECKED):
            self._engine.begin_epoch(0.0)
            self.step()
            found.append(self._engine.total() / self._work.batch)
        return found

    def step(self) -> None:
        """Train on the next batch."""
        self._run(next(self._batches))

    def settle(self) -> None:
        """Wait for the GPU."""
        failure = self._engine.failed(wait=True)
        if failure is not None:
            raise RuntimeError(f"loss of step {failure.step} is {failure.error}")

    def prepare_and_step(self) -> dict[str, float]:
        """Return the milliseconds of a step whose batch must be prepared first."""
        rows = itertools.islice(itertools.cycle(self._places), self._work.steps)
        with closing(self._engine.batches(rows)) as made:
            return {"ms": timed(lambda: self._run(next(made)), self.settle, self._work.steps)}

    def _run(self, batch: Any) -> None:
        if self._engine.step >= MOST_STEPS:
            raise RuntimeError(f"there are learning rates for {MOST_STEPS} steps only")
        self._engine.run(batch)


def settings_of(work: GpuWork) -> TrainSettings:
    """Return how it is trained; epochs enough for all steps."""
    return TrainSettings(
        epochs=-(-MOST_STEPS // work.batches),
        batch=work.batch,
        optimizer=work.optimizer,
        learning_rate=work.rate,
        precision=work.precision,
    )


def network_of(work: GpuWork, data: dict[str, DataSet]) -> Network:
    """Return the network that all sides start with."""
    if work.kind in PICTURES:
        return picture_network(work, data)
    units = widths(work)
    biases = [np.zeros(width, np.float32) for width in units[1:]]
    return assemble(network_spec(work, data, units[1:-1]), dict(enumerate(weights(work))), biases, {})


if __name__ == "__main__":
    main()
