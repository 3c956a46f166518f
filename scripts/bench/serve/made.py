"""Regions to serve: a study's folder with one champion, and its data."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from nnlib.contract import Metric, Recipe, TrainSettings, sha256_of
from nnlib.data.events import Events
from nnlib.data.file import write_data
from nnlib.data.read_events import read_events
from nnlib.data.rows import Csr, offsets_of
from nnlib.data.sets import Data, DataSet
from nnlib.families.fit import fit_recipe
from nnlib.families.model_file import write_recipe_model
from regiondag.registry.promote import promote_region
from regiondag.run.layout import RunFolder
from regiondag.run.region_spec import RegionSpec
from regiondag.study.model import Search

SLUG = "bench"
# The champion of the example study's regions.
RETAIL = Recipe("blend", {}, 1, (
    Recipe("days", {"ahead_half_life": 20.0, "ask_half_life": 10000.0, "fit_half_life": 60.0, "l2": 1000.0}, 1),
    Recipe("graph", {"ask_half_life": 80.0, "customer_exponent": 0.4, "fit_half_life": 40.0, "item_exponent": 0.4,
                     "low_pass": 0.1, "sharpen": 0.0, "vectors": 64}, 1),
    Recipe("ials", {"alpha": 0.3, "ask_half_life": 80.0, "dims": 64, "fit_half_life": 10000.0, "l2": 0.003, "nu": 1.0,
                    "sweeps": 6}, 1),
), (1.5, 1.5, 0.5))  # fmt: skip
LARGE = Recipe("ials", {"dims": 64, "sweeps": 1}, 1)
EACH = 40  # purchases of a customer, in the mean


def draw_events(customers: int, items: int, seed: int = 7) -> Events:
    """Return purchases at random, some items much more popular than others."""
    random = np.random.default_rng(seed)
    lengths = 1 + random.poisson(EACH - 1, customers)
    likely = 1 / np.arange(10, items + 10)
    units = random.choice(items, lengths.sum(), p=likely / likely.sum()).astype(np.int32)
    keys = np.unique(np.repeat(np.arange(customers), lengths) * items + units)
    rows = Csr(offsets_of(np.bincount(keys // items, minlength=customers)), (keys % items).astype(np.int32), items)
    days = random.integers(15_000, 15_300, rows.nonzeros).astype(np.int32)
    names = tuple(f"i{n}" for n in range(items))
    return Events(rows, names, np.zeros(customers, np.int32), (SLUG,), days, 15_300)


def make_study(folder: Path, data: Path | None, customers: int = 0, items: int = 0) -> None:
    """Write a study whose only region has what the retail champions are, on `data`, or a larger one on made-up data."""
    region = RunFolder(folder / "runs" / "run-bench-20260101-000000").region(SLUG)
    region.champion_model.parent.mkdir(parents=True)
    (folder / "study.yaml").write_text("study: bench\n")
    histories = region.data("all")
    if data:
        histories.write_bytes(data.read_bytes())
    else:
        events = draw_events(customers, items)
        names = tuple(f"c{n}" for n in range(customers))
        sets = (DataSet("input", events.bought, events.items, days=events.days),)
        write_data(histories, Data(sets, names, SLUG, events.as_of))
    write_recipe_model(region.champion_model, fit_recipe(RETAIL if data else LARGE, read_events(histories)))
    facts = {"study": "bench", "region": SLUG, "run": region.run.path.name, "sha256": sha256_of(region.champion_model)}
    region.champion_metrics.write_text(json.dumps(facts))
    manifest = {"study": "bench", "run": str(region.run.path), "metric": "ndcg@20", "regions": {SLUG: SLUG}}
    region.run.manifest.write_text(json.dumps(manifest | {"sha256": {}}))
    search = Search("random", (), (1,))
    promote_region(region, RegionSpec("bench", SLUG, SLUG, Metric("ndcg@20"), TrainSettings(), search, ("all",), {}))


if __name__ == "__main__":
    where, path, *sizes = sys.argv[1:]
    make_study(Path(where), Path(path) if path else None, *map(int, sizes))
