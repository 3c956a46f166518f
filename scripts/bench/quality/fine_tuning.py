"""What small countries of the retail example gain by starting from a large one's network: NDCG@20 on the test part.

    python -m scripts.bench.quality.fine_tuning

The body is the United Kingdom's network. For each way a learning rate is chosen on the validation parts with one seed;
then networks of other seeds, each from a body of its own, are trained and tested once. A value is the mean over the
customers of all small countries; differences to trainings from nothing with the same seed have 95 % intervals of
Student's t.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import nnlib
from nnlib.contract import Metric
from nnlib.data.sources import open_files
from nnlib.devices import processors
from nnlib.spec.network import read_json
from nnlib.training.validation import DataPart, Validator, objective_of
from nnlib.util.threads import map_in_turn
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.quality.runs import EXAMPLE
from scripts.bench.quality.training import METRIC, NETWORK, Sizes, import_example, interval

RESULTS = "fine_tuning"
LARGE, SMALL = "united-kingdom", ("germany", "france", "spain", "belgium", "portugal")
NAMES = ("United Kingdom", "Germany", "France", "Spain", "Belgium", "Portugal")
BODY = {"epochs": 30, "batch": 256, "stop_after": 3, "learning_rate": 0.004, "threads": 1}
SETTINGS = {"epochs": 30, "batch": 16, "stop_after": 8, "threads": 1}
RATES = (0.0003, 0.001, 0.003, 0.01)
WAYS: Mapping[str, Mapping[str, Any]] = {  # what the network's FineTuning says
    "all layers learn": {},
    "hidden frozen": {"Freeze": "Hidden"},
    "hidden frozen, output drawn anew": {"Freeze": "Hidden", "Replace": "Output"},
    "hidden frozen until epoch 5": {"Freeze": "Hidden", "UnfreezeAt": 5},
    "hidden at a tenth of the rate": {"Rates": {"Hidden": 0.1}},
}
NOTHING, AS_IT_IS = "from nothing", "the body as it is"
FULL = Sizes(rates=RATES)
QUICK = Sizes(seeds=2, rates=RATES[1:2], epochs=2)


class Trainings:
    """Networks of the small countries on one import of the example's table."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        import_example(folder, "--regions", *NAMES)
        self._folder, self._sizes = folder, sizes
        self._raw = read_json(EXAMPLE / "network.json")
        self.body, self.values = cache(self.body), cache(self.values)  # type: ignore[method-assign]

    def train(self, region: str, settings: Mapping[str, Any], tuning: Any = None, init: Any = None) -> nnlib.Network:
        """Return the network of a region's best epoch."""
        changes = {"epochs": self._sizes.epochs} if self._sizes.epochs else {}
        network = nnlib.Network.from_json(self._raw | {"FineTuning": tuning or {}}, NETWORK)
        trainer = nnlib.Trainer(network, **{**settings, **changes})
        valid = self._folder / f"{region}.valid.nc"
        return trainer.fit(self._folder / f"{region}.train.nc", valid=valid, metric=METRIC, init=init)

    def body(self, seed: int) -> nnlib.Network:
        """Return the large country's network."""
        return self.train(LARGE, BODY | {"seed": seed})

    def small(self, region: str, way: str, rate: float, seed: int) -> nnlib.Network:
        """Return a small country's network."""
        if way == AS_IT_IS:
            return self.body(seed)
        init = None if way == NOTHING else self.body(seed)
        return self.train(region, SETTINGS | {"learning_rate": rate, "seed": seed}, WAYS.get(way), init)

    def mean(self, way: str, rate: float, seed: int, part: str) -> float:
        """Return the mean of the metric over the customers of all small countries."""
        values, customers = [], []
        for region in SMALL:
            asked = open_files([self._folder / f"{region}.{part}.nc"])
            held_out = DataPart(asked.file, asked.sets, asked.region, asked.repeats)
            network = self.small(region, way, rate, seed)._require_model().network
            validator = Validator(objective_of(Metric(METRIC)), network.spec, held_out, map_in_turn)
            values.append(validator.value(processors().evaluator(network)))
            customers.append(next(iter(asked.sets.values())).examples)
        return float(np.average(values, weights=customers))

    def values(self, way: str) -> tuple[float, Sequence[float]]:
        """Return the learning rate that is best for a way, and the metric on the test parts by seed."""
        tried = {rate: self.mean(way, rate, 0, "valid") for rate in (self._sizes.rates if way != AS_IT_IS else (0.0,))}
        rate = max(tried, key=lambda rate: tried[rate])
        return rate, [self.mean(way, rate, seed, "test") for seed in range(1, self._sizes.seeds + 1)]


class FineTuning(Bench[Sizes]):
    """The ways to start."""

    def ways(self) -> Iterator[Row]:
        """Yield a row for each way to start, beside trainings from nothing."""
        trainings = Trainings(self.area, self.sizes)
        base, plain = trainings.values(NOTHING)
        for way in (AS_IT_IS, *WAYS):
            rate, values = trainings.values(way)
            low, middle, high = interval(np.array(values) - np.array(plain))
            rates = f", learning rate {rate:g}" if rate else ""
            title = f"{METRIC}, {way}: {middle:+.4f} [{low:+.4f}, {high:+.4f}]{rates} (from nothing {base:g})"
            yield Row(title, float(np.mean(values)), float(np.mean(plain)), "", higher=True)


if __name__ == "__main__":
    sys.exit(main(RESULTS, FineTuning, FULL, QUICK))
