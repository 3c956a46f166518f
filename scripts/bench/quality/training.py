"""What each setting of a training gives a network on the retail example: NDCG@20 on the test part, and the default's.

    python -m scripts.bench.quality.training

For each setting the learning rate is chosen on the validation part with one seed; then networks of other seeds are
trained and tested once. Differences to the default of the same seed have 95 % intervals of Student's t.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy import stats

import nnlib
from nnlib.cli import main as nnlib_main
from nnlib.contract import Metric
from nnlib.data.sources import open_files
from nnlib.devices import processors
from nnlib.training.validation import DataPart, Validator, objective_of
from nnlib.util.threads import map_in_turn
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.quality.runs import EXAMPLE, TABLE

RESULTS = "training"
METRIC = "ndcg@20"
NETWORK = {"hidden": 128, "dropout": 0.2, "denoising": 0.3}
ALWAYS = {"epochs": 60, "stop_after": 5, "threads": 1}
RATES = (0.001, 0.002, 0.004)
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "cosine": {"schedule": "cosine", "warmup": 1.0, "epochs": 30},
    "onecycle": {"schedule": "onecycle", "epochs": 30},
    "step": {"schedule": "step", "decay_epochs": 10},
    "plateau": {"schedule": "plateau", "stop_after": 8},
    "ema .99": {"ema": 0.99},
}
OTHER_BATCHES = (64, 1024)  # at the default's rate
SCALES = ("none", "sqrt", "linear")


@dataclass(frozen=True)
class Sizes:
    """How much is trained."""

    seeds: int = 6
    rates: Sequence[float] = RATES
    epochs: int = 0  # of every training; 0: as the settings have it


QUICK = Sizes(seeds=2, rates=RATES[:1], epochs=1)


def import_example(folder: Path, *arguments: str) -> None:
    """Import the example's table into a folder."""
    if nnlib_main(["import", str(EXAMPLE / TABLE), *arguments, "--out", str(folder), "--quiet"]) != 0:
        raise NotMeasuredError("the example's table could not be imported")


class Trainings:
    """Networks on one import of the example's table, all countries as one region."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        import_example(folder, "--one-region", "all")
        self._folder, self._sizes = folder, sizes
        self._chosen: dict[str, float] = {}  # learning rates
        self._default: list[float] = []

    def train(self, seed: int, settings: Mapping[str, Any]) -> tuple[nnlib.Network, float, int]:
        """Return a network, its metric on the validation part, and its best epoch."""
        changes = {"epochs": self._sizes.epochs} if self._sizes.epochs else {}
        network = nnlib.Network.from_json(EXAMPLE / "network.json", NETWORK)
        trainer = nnlib.Trainer(network, **{**ALWAYS, **settings, **changes, "seed": seed})
        found = trainer.fit(self._folder / "all.train.nc", valid=self._folder / "all.valid.nc", metric=METRIC)
        best = max(trainer.history, key=lambda epoch: epoch.value or 0.0)
        return found, best.value or 0.0, best.epoch

    def rate_for(self, name: str) -> float:
        """Return the learning rate that is best for a setting."""
        if name not in self._chosen:
            self._chosen[name] = self.best_rate(SETTINGS[name])
        return self._chosen[name]

    def best_rate(self, settings: Mapping[str, Any]) -> float:
        """Return the learning rate that is best for settings on the validation part, with one seed."""
        tried = {rate: self.train(0, {**settings, "learning_rate": rate})[1] for rate in self._sizes.rates}
        return max(tried, key=lambda rate: tried[rate])

    def test(self, settings: Mapping[str, Any]) -> tuple[list[float], float]:
        """Return the metric on the test part by seed, and the mean best epoch."""
        found = [self.train(seed, settings) for seed in range(1, self._sizes.seeds + 1)]
        asked = open_files([self._folder / "all.test.nc"])
        part = DataPart(asked.file, asked.sets, asked.region, asked.repeats)
        values = []
        for network, _, _ in found:
            validator = Validator(objective_of(Metric(METRIC)), network.spec, part, map_in_turn)
            values.append(validator.value(processors().evaluator(network._require_model().network)))
        return values, float(np.mean([epoch for _, _, epoch in found]))

    def default(self) -> list[float]:
        """Return the metric of the default by seed."""
        if not self._default:
            self._default = self.test({"learning_rate": self.rate_for("default")})[0]
        return self._default


def interval(differences: np.ndarray) -> tuple[float, float, float]:
    """Return lower end, mean and upper end of a mean's 95 % interval."""
    mean, error = float(differences.mean()), float(stats.sem(differences)) if len(differences) > 1 else float("nan")
    reach = float(stats.t.ppf(0.975, max(1, len(differences) - 1))) * error
    return mean - reach, mean, mean + reach


class Settings(Bench[Sizes]):
    """The settings beside the default."""

    def __init__(self, area: Path, sizes: Sizes) -> None:
        super().__init__(area, sizes)
        self._trainings = Trainings(area, sizes)

    def settings(self) -> Iterator[Row]:
        """Yield a row for each setting at its best rate."""
        for name, settings in list(SETTINGS.items())[1:]:
            yield self._row(name, {**settings, "learning_rate": self._trainings.rate_for(name)})

    def batches(self) -> Iterator[Row]:
        """Yield what other batches give at the default's rate, scaled or not."""
        for batch in OTHER_BATCHES:
            for scale in SCALES:
                changes = {"batch": batch, "scale_rate": scale, "learning_rate": self._trainings.rate_for("default")}
                yield self._row(f"batch {batch}, scale_rate {scale}", changes)

    def _row(self, name: str, settings: Mapping[str, Any]) -> Row:
        """Return a setting beside the default."""
        values, epoch = self._trainings.test(settings)
        low, middle, high = interval(np.array(values) - np.array(self._trainings.default()))
        rate = f"learning rate {settings['learning_rate']:g}, best epoch {epoch:.0f}"
        note = f"{middle:+.4f} [{low:+.4f}, {high:+.4f}], {rate}"
        title = f"{METRIC}, {name}: {note}"
        return Row(title, float(np.mean(values)), float(np.mean(self._trainings.default())), "", higher=True)


if __name__ == "__main__":
    sys.exit(main(RESULTS, Settings, Sizes(), QUICK))
