"""The trainings of the sharing benchmark: the retail study over all countries in wide ranges, every result kept."""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from nnlib.api.network import Network
from nnlib.api.trainer import Trainer
from nnlib.contract import TrainSettings
from nnlib.epoch_log import Epoch
from nnlib.errors import DivergedError
from nnlib.importing.regions import SideFiles, import_purchases
from regiondag.config.load import load_config
from regiondag.study.model import Region, Search
from regiondag.study.space import Point, value_at, with_defaults
from scripts.bench.common import processes
from scripts.bench.common.kept_runs import digest
from scripts.bench.sharing.stats import BATCH

EXAMPLE = processes.REPOSITORY / "workflows" / "examples" / "retail"
PROBE = "norway"  # a small country, whose training tells whether trainings are still the same
EVERYWHERE = "regions: {from: data/*.train.nc}\n"
# The example's ranges are those of somebody who tuned these networks before. In them chance decides: training with
# another seed changes a small country's metric as much as any other point does. These are a newcomer's.
RANGES = """\
  space:
    hidden: {int: [8, 512], log: true}
    denoising: {real: [0, 0.9]}
    dropout: {real: [0, 0.7]}
    learning_rate: {real: [1e-5, 1e-1], log: true}
    l2: {real: [1e-8, 1e-1], log: true}
"""
JUDGES = (8, 9, 10, 11)  # seeds of the trainings that say what a point is worth; trials have the example's 7
LARGEST = "united-kingdom"
# It has 5,335 customers, the next one 107. The example gives it 10 epochs of batch 256 in a space of its own; here it
# gets half of them, in the others' space, or it would take most of the time.
LARGEST_TRAIN = {"epochs": 5, "batch": 256, "stop_after": 3}
STUDY = "study.yaml"
TODAY = 20_000  # after all purchases, in days since 1970-01-01
SETTINGS = frozenset(field.name for field in fields(TrainSettings))


@dataclass(frozen=True)
class Trained:
    """What one trial gave: the metric on the validation part, None when it diverged, and its CPU seconds."""

    value: float | None
    seconds: float


def make_study(area: Path) -> Path:
    """Write the study over all countries that have enough purchases, with their data; return its path."""
    study = area / STUDY
    if not (area / "data").exists():
        area.mkdir(parents=True, exist_ok=True)
        with contextlib.redirect_stdout(sys.stderr):
            import_purchases(EXAMPLE / "purchases.csv.gz", area / "data", TODAY, side=SideFiles(EXAMPLE / "items.csv"))
    text = (EXAMPLE / "networks.yaml").read_text(encoding="utf-8")
    text = re.sub(r"^regions:\n(?:  .*\n)+", EVERYWHERE, text, flags=re.MULTILINE)
    study.write_text(re.sub(r"^  space:\n(?:    .*\n)+", RANGES, text, flags=re.MULTILINE), encoding="utf-8")
    (area / "network.json").write_bytes((EXAMPLE / "network.json").read_bytes())
    return study


def regions(study: Path, share: str, trials: int, only: Sequence[str] = ()) -> list[Region]:
    """Return the study's regions, each with a search of so many trials in batches of `BATCH`."""
    found = [_region(region, share, trials) for region in load_config(study).regions]
    return [region for region in found if not only or region.slug in only]


def _region(region: Region, share: str, trials: int) -> Region:
    search: Search = replace(region.search, sizes=(BATCH,) * (trials // BATCH), share=share)
    train = replace(region.train, **LARGEST_TRAIN) if region.slug == LARGEST else region.train  # type: ignore[arg-type]
    return replace(region, search=search, train=train)


class Kept:
    """Results of trials by country, settings and point, in a file of lines that several processes append to."""

    def __init__(self, area: Path) -> None:
        self.path = area / f"trials-{stamp(area / STUDY)}.jsonl"
        self.found: dict[str, Trained] = {}
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True) if self.path.exists() else []
        for line in lines:
            if line.endswith("\n"):  # else it is torn, or being written
                key, value, seconds = json.loads(line)
                self.found[key] = Trained(value, seconds)

    def trained(self, region: Region, point: Point) -> Trained:
        """Return what the trial gave, after running it if need be."""
        key = json.dumps([region.slug, asdict(region.train), dict(sorted(point.items()))])
        if key not in self.found:
            self.found[key] = found = train(region, point)
            line = (json.dumps([key, found.value, round(found.seconds, 3)]) + "\n").encode()
            with self.path.open("ab", buffering=0) as file:
                os.write(file.fileno(), line)  # one call: no line of another process comes between
        return self.found[key]

    def worth(self, region: Region, point: Point) -> float:
        """Return the mean metric of the point over other seeds than that of trials; a diverged one counts as 0."""
        judges = [replace(region, train=replace(region.train, seed=seed)) for seed in JUDGES]
        return statistics.fmean(self.trained(judge, point).value or 0.0 for judge in judges)


def train(region: Region, point: Point) -> Trained:
    """Train one network as a job of the study would, and return the metric of its best epoch."""
    begin = time.process_time()
    try:
        values = [epoch.value for epoch in _epochs(region, point) if epoch.value is not None]
        value = max(values, default=None)
    except DivergedError:
        value = None
    return Trained(value, time.process_time() - begin)


def _epochs(region: Region, point: Point) -> list[Epoch]:
    placeholders = {n: v for n, v in with_defaults(region.search.space, point).items() if n not in SETTINGS}
    settings: dict[str, Any] = asdict(region.train) | {n: v for n, v in point.items() if n in SETTINGS}
    assert region.network is not None  # noqa: S101 -- for the type checker
    trainer = Trainer(Network.from_json(region.network, placeholders), **settings, threads=1, device="cpu")
    trainer.fit(region.data["train"], valid=region.data["valid"], metric=region.metric.name)
    return trainer.history


@cache
def stamp(study: Path) -> str:
    """Return a digest of what the trials' values depend on: the example, and what one training of it gives."""
    [region] = regions(study, "off", BATCH, [PROBE])
    point = {parameter.name: value_at(parameter, 0.5) for parameter in region.search.space}
    epochs = [f"{epoch.loss:.6g} {epoch.value}" for epoch in _epochs(region, point)]
    files = [file.read_bytes() for file in sorted(EXAMPLE.glob("*")) if file.is_file()]
    return digest([*files, "\n".join(epochs).encode()])


def costs(kept: Mapping[str, Trained]) -> dict[str, float]:
    """Return the mean CPU seconds of a trial by country."""
    by_slug: dict[str, list[float]] = {}
    for key, found in kept.items():
        by_slug.setdefault(json.loads(key)[0], []).append(found.seconds)
    return {slug: sum(seconds) / len(seconds) for slug, seconds in sorted(by_slug.items())}
