"""Our side: one rank of a training, or a process that trains alone; on processors or on a GPU."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnlib.util.threads import take_over_blas

THREADS = take_over_blas()  # before NumPy

import numpy as np  # noqa: E402

from nnlib.contract import TrainSettings  # noqa: E402
from nnlib.devices import open_device  # noqa: E402
from nnlib.engines import LocalBackend  # noqa: E402
from nnlib.model.examples import Examples, examples_of  # noqa: E402
from nnlib.model.network import Network  # noqa: E402
from nnlib.parallel.host import Host  # noqa: E402
from nnlib.shards.cut import Cut  # noqa: E402
from nnlib.shards.plan import plan_of  # noqa: E402
from nnlib.shards.tree import shards_of  # noqa: E402
from scripts.bench.common import nnlib_side  # noqa: E402
from scripts.bench.common.nnlib_pictures import picture_network  # noqa: E402
from scripts.bench.common.pictures import PICTURES  # noqa: E402
from scripts.bench.common.workload import STEP, serve, widths  # noqa: E402
from scripts.bench.level3.work import EVALUATE, SAVE, SPARSE, Ranked, read  # noqa: E402
from scripts.bench.wide.data import Wide  # noqa: E402
from scripts.bench.wide.problem import problem_of  # noqa: E402


def main() -> None:
    """Serve the work named on the command line."""
    work = read(sys.argv[1])
    with open_device(work.device, THREADS) as (backend, _):
        rank = Rank(work, backend)
        rank.run(work.warm)
        serve({"loss": rank.loss()}, {STEP: rank.measure, SAVE: rank.save, EVALUATE: rank.evaluate})


def problem(work: Ranked) -> tuple[Network, Examples]:
    """Return the whole network, and all examples, alike on every rank."""
    if work.kind == SPARSE:
        return problem_of(Wide(work.items, hidden=work.hidden, batch=work.batch, batches=work.batches))
    if work.kind in PICTURES:
        data = nnlib_side.data_sets(work)
        network = picture_network(work, data)
        return network, examples_of(network.spec, data, "bench")
    return nnlib_side.problem_of(work, widths(work)[1:-1])


def settings_of(work: Ranked) -> TrainSettings:
    """Return how all ranks train."""
    return TrainSettings(optimizer=work.optimizer, learning_rate=work.rate, batch=work.batch, parallel=work.parallel)


def cut_of(work: Ranked, network: Network) -> Cut:
    """Return what the rank has of a network."""
    return Cut(plan_of(network.spec, work.batch, work.parallel), network.spec, shards_of(work.rank, work.ranks))


class Rank:
    """A training on batches in turn, each with its preparation."""

    def __init__(self, work: Ranked, backend: LocalBackend) -> None:
        network, examples = problem(work)
        self._work, self._examples, self._together = work, examples, None
        if work.ranks == 1:
            self._engine = backend.engine(network, examples, settings_of(work))
        else:
            host = Host(work.rank, work.ranks, os.open(work.meeting, os.O_RDWR))
            self._together = backend.join(host)
            cut = cut_of(work, network)
            self._engine = backend.part(cut.network(network), examples, settings_of(work), cut, self._together)
        self._engine.begin_epoch(0.0)
        lows = range(0, examples.count, work.batch)
        self._batches = self._engine.batches(np.arange(low, low + work.batch) for low in itertools.cycle(lows))

    def run(self, steps: int) -> None:
        """Train on so many batches, and wait for all of them."""
        with np.errstate(all="ignore"):
            for _ in range(steps):
                self._engine.run(next(self._batches))
        if failure := self._engine.failed(wait=True):
            raise RuntimeError(f"step {failure.step}: {failure}")

    def loss(self) -> float:
        """Return the mean error of all batches so far."""
        return self._engine.total() / (self._work.batch * self._engine.step)

    def measure(self) -> Mapping[str, Any]:
        """Return the milliseconds of a step, those of processors without waiting for others; and the bytes sent."""
        before, wall, cpu = self._counts(), time.perf_counter(), time.process_time()
        self.run(self._work.steps)
        wall, cpu, after = time.perf_counter() - wall, time.process_time() - cpu, self._counts()
        waited, sent = (last - first for first, last in zip(before, after, strict=True))
        steps = self._work.steps
        times = {"wall": wall, "cpu": cpu - waited, "all_cpu": cpu}
        return {name: 1e3 * seconds / steps for name, seconds in times.items()} | {"sent": sent / steps}

    def evaluate(self) -> Mapping[str, Any]:
        """Return the mean loss of all examples, and the milliseconds that it took, as `measure` has them."""
        (waited, _), wall, cpu = self._counts(), time.perf_counter(), time.process_time()
        loss = self._engine.evaluator().mean_loss(self._examples)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        times = {"wall": wall, "cpu": cpu - (self._counts()[0] - waited), "all_cpu": cpu}
        return {name: 1e3 * seconds for name, seconds in times.items()} | {"sent": 0.0, "loss": loss}

    def _counts(self) -> tuple[float, float]:
        """Return the seconds of processor time spent waiting, and the bytes of sums and statistics sent."""
        sent: Mapping[str, int] = getattr(self._together, "sent", {})
        return getattr(self._together, "waited", 0.0), float(sent.get("sum", 0) + sent.get("gather", 0))

    def save(self) -> Mapping[str, Any]:
        """Write what this rank has of the parameters and of the optimizer's state."""
        self._engine.settle()
        arrays: dict[str, Any] = {**dict(self._engine.pull().arrays()), **self._engine.states()}
        np.savez(Path(self._work.kept) / f"{self._work.rank}.npz", **arrays)
        return {"steps": self._engine.step}


if __name__ == "__main__":
    main()
