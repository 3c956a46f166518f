"""One network in a process of its own: the estimate of its step, and the step itself."""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

from nnlib.util.threads import take_over_blas, workers

THREADS = take_over_blas()  # before NumPy

import numpy as np  # noqa: E402

from nnlib.contract import TrainSettings  # noqa: E402
from nnlib.cpu.backend import Cpu  # noqa: E402
from nnlib.data.rows import Dense, from_rows, one_hot  # noqa: E402
from nnlib.data.sets import DataSet  # noqa: E402
from nnlib.devices import CPU  # noqa: E402
from nnlib.inspection.network_plan import plan_network  # noqa: E402
from nnlib.model.examples import Examples, examples_of  # noqa: E402
from nnlib.model.network import create  # noqa: E402
from nnlib.spec.types import NetworkSpec  # noqa: E402
from scripts.bench.common.nnlib_side import spec_between  # noqa: E402
from scripts.bench.cpu.turns import busy, is_quiet  # noqa: E402

BATCHES, WARM = 8, 3


@dataclass(frozen=True)
class Case:
    """A network: units of its inputs, hidden layers and, where they are others, targets; entries a row, 0: dense."""

    name: str
    items: int
    hidden: tuple[int, ...]
    entries: int = 0
    targets: int = 0
    activation: str = "Sigmoid"
    optimizer: str = "adam"
    batch: int = 256
    steps: int = 9

    @property
    def shape(self) -> str:
        """The units of all layers."""
        return "-".join(f"{units:,}" for units in (self.items, *self.hidden, self.targets or self.items))


def main() -> None:
    """Print the milliseconds of the case that is named on the command line."""
    raw = json.loads(sys.argv[1])
    case = Case(**{**raw, "hidden": tuple(raw["hidden"])})
    spec, examples = make(case)
    settings = TrainSettings(optimizer=case.optimizer, batch=case.batch)
    plan = plan_network(spec, examples, settings, THREADS, CPU)
    measured = measure(case, spec, examples, settings)
    print(json.dumps({"estimate": 1e3 * plan.step_seconds, "measured": measured}))


def make(case: Case) -> tuple[NetworkSpec, Examples]:
    """Return a network and its data; items are as popular as Zipf's law has it."""
    random, count = np.random.default_rng(1), case.batch * BATCHES
    if case.entries:
        share = np.cumsum(1 / np.arange(1, case.items + 1))
        drawn = np.searchsorted(share, random.random((count, case.entries)) * share[-1])
        rows: Any = from_rows([np.unique(row).tolist() for row in drawn], case.items)
        targets = rows
    else:
        rows = Dense(random.random((count, case.items), np.float32))
        targets = one_hot(random.integers(0, case.targets, count), case.targets)
    data = {"input": DataSet("input", rows), "output": DataSet("output", targets)}
    spec = spec_between(data, case.hidden, case.activation, sparse=bool(case.entries))
    return spec, examples_of(spec, data, "bench")


def measure(case: Case, spec: NetworkSpec, examples: Examples, settings: TrainSettings) -> float | None:
    """Return the milliseconds of a step with the preparation of its batch: the median, on one thread of CPU time.

    None on several threads where other programs kept the machine busy.
    """
    clock = time.process_time if THREADS == 1 else time.perf_counter
    began, spent, before = time.perf_counter(), time.process_time(), busy()
    with workers(THREADS) as each:
        engine = Cpu(each).engine(create(spec, np.random.default_rng(1)), examples, settings)
        engine.begin_epoch(0.0)
        lows = range(0, examples.count, case.batch)
        batches = engine.batches(np.arange(low, low + case.batch) for low in itertools.cycle(lows))
        found = []
        for number in range(WARM + case.steps):
            started = clock()
            with np.errstate(all="ignore"):
                engine.run(next(batches))
            if number >= WARM:
                found.append(1e3 * (clock() - started))
        batches.close()
    quiet = is_quiet(before, time.process_time() - spent, time.perf_counter() - began)
    return statistics.median(found) if THREADS == 1 or quiet else None


if __name__ == "__main__":
    main()
