"""Our side: nnlib's own training step, with the preparation of its batch."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable

from nnlib.util.threads import Each, take_over_blas, workers

THREADS = take_over_blas()  # before NumPy

import numpy as np  # noqa: E402

from nnlib.contract import TrainSettings  # noqa: E402
from nnlib.cpu.backend import Cpu  # noqa: E402
from scripts.bench.wide.data import Wide  # noqa: E402
from scripts.bench.wide.problem import problem_of  # noqa: E402
from scripts.bench.wide.serve import serve  # noqa: E402


def main() -> None:
    """Serve the work named on the command line."""
    work = Wide(**json.loads(sys.argv[1]))
    with workers(THREADS) as each:
        serve(work, *training(work, each))


def training(work: Wide, each: Each) -> tuple[Callable[[], float], Callable[[], object]]:
    """Return what trains on the next batch, and what ends an epoch as training does."""
    network, examples = problem_of(work)
    settings = TrainSettings(optimizer=work.optimizer, learning_rate=work.rate, momentum=0.9, batch=work.batch)
    engine = Cpu(each).engine(network, examples, settings)
    engine.begin_epoch(0.0)
    lows = range(0, examples.count, work.batch)
    batches = engine.batches(np.arange(low, low + work.batch) for low in itertools.cycle(lows))
    before = 0.0

    def step() -> float:
        nonlocal before
        with np.errstate(all="ignore"):
            engine.run(next(batches))
        error, before = engine.total() - before, engine.total()
        return error / work.batch

    def end_epoch() -> str:
        engine.settle()
        return engine.broken()

    return step, end_epoch


if __name__ == "__main__":
    main()
