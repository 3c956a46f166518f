"""A study of two regions whose champions serve, without a training: real models and data, runs by their names."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from nnlib.contract import Recipe, sha256_of
from nnlib.data.file import write_data
from nnlib.data.sets import Data, DataSet
from nnlib.families.fit import fit_recipe
from nnlib.families.model_file import write_recipe_model
from regiondag.registry.promote import promote_region
from regiondag.run.layout import RunFolder
from tests.nnlib.families.made_up import drawn
from tests.workflows.registry.registered import place_champion, spec_of

NIGHT, LATER = "20260101-033000", "20260102-033000"
REGIONS = {"berg": "Berg", "cote-d-ivoire": "Côte d'Ivoire"}
EASE = Recipe("ease", {"l2": 10.0}, 1)
NAMES = 'unit,item,description\n0,i0,"Red, big"\n1,i1,Blue\n'


def events_of(slug: str, seed: int = 0):
    """60 customers in the first region, 40 in the other; customer 3 of each has nothing."""
    count = 60 if slug == "berg" else 40
    return drawn(customers=count, seed=seed + len(slug), regions=(REGIONS[slug],))


def write_histories(path: Path, slug: str, seed: int = 0) -> Path:
    events = events_of(slug, seed)
    names = tuple(f"{slug[0]}{n}" for n in range(events.customers))
    data = DataSet("input", events.bought, events.items, days=events.days)
    write_data(path, Data((data,), names, REGIONS[slug], events.as_of))
    return path


def place_run(
    study: Path, night: str = NIGHT, *, floor: bool = True, champions: bool = True, seed: int = 0
) -> RunFolder:
    """Write a run whose champions have been promoted."""
    runs = study / "runs"
    run = RunFolder(runs / f"run-shop-{night}")
    sources = {}
    for slug, name in REGIONS.items():
        folder = run.region(slug)
        folder.path.mkdir(parents=True, exist_ok=True)
        (study / "data").mkdir(exist_ok=True)
        source = write_histories(study / "data" / f"{slug}.all.nc", slug, seed)
        folder.data("all").write_bytes(source.read_bytes())
        sources[f"regions/{slug}/data.all.nc"] = str(source)
        if not champions:
            continue
        place_champion(runs, night, slug, floor=floor)
        write_recipe_model(folder.champion_model, fit_recipe(EASE, events_of(slug, seed)))
        if floor:
            popular = fit_recipe(Recipe("popularity", {}, 1), events_of(slug, seed))
            write_recipe_model(folder.path / "trials" / "final" / "floor.nc", popular)
        facts = json.loads(folder.champion_metrics.read_text())
        facts |= {"sha256": sha256_of(folder.champion_model), "region": name}
        folder.champion_metrics.write_text(json.dumps(facts))
        promote_region(folder, dataclasses.replace(spec_of(slug), name=name))
    manifest = {"study": "shop", "run": str(run.path), "metric": "ndcg@20", "regions": REGIONS, "sha256": {}}
    run.manifest.write_text(json.dumps(manifest | {"sources": sources}))
    run.items.write_text(NAMES)
    return run


def place_study(folder: Path, **more: object) -> Path:
    """Write a study's folder with one run and its champions."""
    study = folder / "shop"
    study.mkdir()
    (study / "study.yaml").write_text("study: shop\n")
    place_run(study, **more)  # type: ignore[arg-type]
    return study
