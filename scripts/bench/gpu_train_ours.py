"""Our side of gpu_train.py: nnlib's engine on a GPU."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
from gpu_work import (
    CHECKED,
    MB,
    MEMORY,
    PREPARE,
    STEP,
    Answer,
    GpuWork,
    serve,
    timed,
    weights,
    widths,
    work_of,
)
from train_cpu_work import AUTOENCODER, images, purchases

from nnlib.contract import TrainSettings
from nnlib.data.rows import Csr, Dense, one_hot
from nnlib.data.sets import DataSet
from nnlib.engines import Backend
from nnlib.model import examples as examples_module
from nnlib.model.network import Network, assemble
from nnlib.spec.network import parse_network

THREADS = min(8, os.cpu_count() or 1)  # that prepare batches
MOST_STEPS = 20_000  # the learning rates of all of them are on the GPU from the start


def main() -> None:
    """Serve the work named on the command line."""
    import cupy

    from nnlib.gpu.backend import Gpu

    with Gpu.open(THREADS) as gpu:
        served(work_of(sys.argv[1]), gpu, cupy.get_default_memory_pool().total_bytes)


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
        data = _purchases(work) if work.kind == AUTOENCODER else _images(work)
        network = network_of(work, data)
        examples = examples_module.examples_of(network.spec, data, "bench")
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

    def prepare_and_step(self) -> Answer:
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
        precision="tf32" if work.tf32 else "float32",
    )


def network_of(work: GpuWork, data: dict[str, DataSet]) -> Network:
    """Return the network that all sides start with."""
    sparse = work.kind == AUTOENCODER
    last = {"Activation": "Sigmoid" if sparse else "SoftMax"}
    raw: dict[str, Any] = {
        "Name": "bench",
        "ErrorFunction": "CrossEntropy",
        "Layers": [
            {"Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": sparse},
            *({"Kind": "Hidden", "N": units, "Activation": "Relu"} for units in widths(work)[1:-1]),
            {"Kind": "Output", "N": "auto", "DataSet": "output"} | last,
        ],
    }
    spec = examples_module.resolve(parse_network(raw, "bench"), data, "bench")
    biases = [np.zeros(units, np.float32) for units in widths(work)[1:]]
    return assemble(spec, dict(enumerate(weights(work))), biases, {})


def _purchases(work: GpuWork) -> dict[str, DataSet]:
    found = purchases(work)
    starts = np.concatenate([[0], np.cumsum([len(indices) for _, indices in found])])
    indptr = [indptr[:-1] + start for (indptr, _), start in zip(found, starts, strict=False)]
    indices = np.concatenate([indices for _, indices in found])
    rows = Csr(np.concatenate([*indptr, starts[-1:]]), indices, work.items)
    return {"input": DataSet("input", rows), "output": DataSet("output", rows)}


def _images(work: GpuWork) -> dict[str, DataSet]:
    pixels, classes = (np.concatenate(part) for part in zip(*images(work), strict=True))
    return {"input": DataSet("input", Dense(pixels)), "output": DataSet("output", one_hot(classes, 10))}


if __name__ == "__main__":
    main()
