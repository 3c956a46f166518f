"""Our side of the CPU benchmark: nnlib's own training step and predictor."""

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
from nnlib.data.rows import Dense  # noqa: E402
from nnlib.data.sets import DataSet  # noqa: E402
from nnlib.model import batches  # noqa: E402
from nnlib.model.examples import examples_of  # noqa: E402
from nnlib.model.network import create  # noqa: E402
from nnlib.prediction import predictor  # noqa: E402
from nnlib.util.blas import find_kernels  # noqa: E402
from scripts.bench.common.nnlib_side import network_spec, problem_of, rows_of  # noqa: E402
from scripts.bench.common.workload import TOP, Work, activations, widths  # noqa: E402
from scripts.bench.cpu.serve import serve  # noqa: E402


def main() -> None:
    """Serve the work named on the command line."""
    work = Work(**json.loads(sys.argv[1]))
    with workers(THREADS) as each:
        if work.kind == TOP:
            serve(work, ranking(work, each), about=find_kernels())
        else:
            step, settle = training(work, each)
            serve(work, step, settle, find_kernels())


def training(work: Work, each: Each) -> tuple[Callable[[], float], Callable[[], None]]:
    """Return what trains on the next batch, and what ends an epoch."""
    network, examples = problem_of(work, widths(work)[1:-1])
    settings = TrainSettings(optimizer=work.optimizer, learning_rate=work.rate, precision=work.precision)
    engine = Cpu(each).engine(network, examples, settings)
    lows = itertools.cycle(range(0, work.batch * work.batches, work.batch))

    def step() -> float:
        low = next(lows)
        batch = batches.batch_of(network.spec, examples, np.arange(low, low + work.batch), network.dtype)
        with np.errstate(all="ignore"):
            engine.begin_epoch(0.0)
            engine.run(batch)
            return engine.total() / work.batch

    return step, engine.settle


def ranking(work: Work, each: Each) -> Callable[[], float]:
    """Return what ranks the items for a batch of users; their activations are the network's input."""
    users, weights = activations(work)
    seen = rows_of(work)
    data = {"input": DataSet("input", Dense(users)), "output": DataSet("output", seen)}
    spec = network_spec(work, data, ())
    network, examples = create(spec, np.random.default_rng(1)), examples_of(spec, data, "bench")
    network.stores[0][...] = weights
    lows = itertools.cycle(range(0, work.batch * work.batches, work.batch))

    def step() -> float:
        rows = np.arange(low := next(lows), low + work.batch)
        found = list(predictor.rank(network, examples.take(rows), 1, work.k, Cpu(each), each, seen.take(rows).take))
        return float(found[0].scores[0, 0])

    return step


if __name__ == "__main__":
    main()
