"""Our side of train_cpu.py: nnlib's own training step and predictor."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

from nnlib.util.threads import Each, take_over_blas, workers

THREADS = take_over_blas()  # before NumPy

import numpy as np  # noqa: E402
from train_cpu_work import (  # noqa: E402
    AUTOENCODER,
    IMAGES,
    TOP,
    Work,
    activations,
    images,
    purchases,
    serve,
    work_of,
)

from nnlib.contract import TrainSettings  # noqa: E402
from nnlib.cpu.backend import Cpu  # noqa: E402
from nnlib.data.rows import Csr, Dense, one_hot  # noqa: E402
from nnlib.data.sets import DataSet  # noqa: E402
from nnlib.model import batches  # noqa: E402
from nnlib.model import examples as examples_module  # noqa: E402
from nnlib.model.examples import Examples  # noqa: E402
from nnlib.model.network import Network, create  # noqa: E402
from nnlib.spec.network import parse_network  # noqa: E402


def main() -> None:
    """Serve the work named on the command line."""
    work = work_of(sys.argv[1])
    with workers(THREADS) as each:
        if work.kind == TOP:
            serve(work, ranking(work, each))
        else:
            step, settle = training(work, each)
            serve(work, step, settle)


def training(work: Work, each: Each) -> tuple[Callable[[], float], Callable[[], None]]:
    """Return what trains on the next batch, and what ends an epoch."""
    data = {AUTOENCODER: _purchases, IMAGES: _images}[work.kind](work)
    hidden = [work.hidden] * 3 if work.kind == AUTOENCODER else [512, 512]
    network, examples = _network(work, data, hidden)
    settings = TrainSettings(optimizer=work.optimizer, learning_rate=work.rate)
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
    from nnlib.prediction import predictor

    users, weights = activations(work)
    seen = _rows(work)
    data = {"input": DataSet("input", Dense(users)), "output": DataSet("output", seen)}
    network, examples = _network(work, data, [])
    network.stores[0][...] = weights
    lows = itertools.cycle(range(0, work.batch * work.batches, work.batch))

    def step() -> float:
        rows = np.arange(low := next(lows), low + work.batch)
        found = list(predictor.rank(network, examples.take(rows), 1, work.k, Cpu(each), each, seen.take(rows).take))
        return float(found[0].scores[0, 0])

    return step


def _network(work: Work, data: dict[str, DataSet], hidden: list[int]) -> tuple[Network, Examples]:
    marginal = {"oneTarget": 1, "zeroTarget": work.zero_target, "oneScale": 1, "zeroScale": 1}
    raw: dict[str, Any] = {
        "Name": "bench",
        "ErrorFunction": "ScaledMarginalCrossEntropy" if work.zero_target else "CrossEntropy",
        "Layers": [
            {"Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": work.kind == AUTOENCODER},
            *({"Kind": "Hidden", "N": units, "Activation": "Relu"} for units in hidden),
            {
                "Kind": "Output",
                "N": "auto",
                "DataSet": "output",
                "Activation": "SoftMax" if work.kind == IMAGES else "Sigmoid",
            },
        ],
    }
    if work.zero_target:
        raw["ScaledMarginalCrossEntropy"] = marginal
    spec = examples_module.resolve(parse_network(raw, "bench"), data, "bench")
    return create(spec, np.random.default_rng(1)), examples_module.examples_of(spec, data, "bench")


def _rows(work: Work) -> Csr:
    found = purchases(work)
    starts = np.concatenate([[0], np.cumsum([len(indices) for _, indices in found])])
    indptr = [indptr[:-1] + start for (indptr, _), start in zip(found, starts, strict=False)]
    return Csr(np.concatenate([*indptr, starts[-1:]]), np.concatenate([indices for _, indices in found]), work.items)


def _purchases(work: Work) -> dict[str, DataSet]:
    rows = _rows(work)
    return {"input": DataSet("input", rows), "output": DataSet("output", rows)}


def _images(work: Work) -> dict[str, DataSet]:
    pixels, classes = (np.concatenate(part) for part in zip(*images(work), strict=True))
    return {"input": DataSet("input", Dense(pixels)), "output": DataSet("output", one_hot(classes, 10))}


if __name__ == "__main__":
    main()
