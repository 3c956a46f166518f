"""Champions in a registry without a training: runs by their names, models by their texts."""

from __future__ import annotations

import json
from pathlib import Path

from nnlib.contract import Metric, TrainSettings, sha256_of
from regiondag.registry.promote import promote_region
from regiondag.registry.read import Champion, Registry, open_registry
from regiondag.run.layout import NodeName, RegionFolder, RunFolder
from regiondag.run.region_spec import RegionSpec
from regiondag.study.model import Search

NIGHTS = ("20260101-033000", "20260102-033000", "20260103-033000", "20260104-033000")
RECIPE = {"family": "ease", "hyperparameters": {"l2": 100.0}, "seed": 1, "members": [], "weights": []}


def spec_of(slug: str, name: str = "", rows: bool = False) -> RegionSpec:
    more = {"rows": {"valid": {"berg": (0, 3)}}} if rows else {}
    search = Search("random", (), (1,))
    data = {"data.all.nc": "d" * 64, "network.json": "e" * 64}
    return RegionSpec(
        "shop", name or slug.title(), slug, Metric("ndcg@20"), TrainSettings(), search, ("all",), data, **more
    )


def place_champion(runs: Path, night: str, slug: str, model: str = "", floor: bool = True) -> RegionFolder:
    """Write what POST leaves of a region that has ended."""
    folder = RunFolder(runs / f"run-shop-{night}").region(slug)
    final = folder.trial(NodeName(slug, None))
    final.mkdir(parents=True, exist_ok=True)
    folder.champion_model.parent.mkdir(exist_ok=True)
    folder.champion_model.unlink(missing_ok=True)
    folder.champion_model.write_text(model or f"{slug} {night}")
    if floor:
        (final / "floor.nc").write_text(f"floor {night}")
    facts = {
        "study": "shop",
        "region": slug.title(),
        "run": folder.run.path.name,
        "sha256": sha256_of(folder.champion_model),
        "metric": {"name": "ndcg@20", "minimize": False},
        "test": {"ndcg@20": 0.2},
        "intervals": {"ndcg@20": [0.1, 0.3]},
        "compared": {"floor": {"ndcg@20": 0.15}},
        "customers": 120,
        "recipe": RECIPE,
        "fitted_until": 20454,
        "inputs": {"data.all.nc": "d" * 64},
        "hyperparameters": {},
    }
    folder.champion_metrics.write_text(json.dumps(facts))
    return folder


def promote(runs: Path, night: str, slug: str = "berg", **more: object) -> Champion:
    return promote_region(place_champion(runs, night, slug, **more), spec_of(slug))  # type: ignore[arg-type]


def registry_of(runs: Path) -> Registry:
    return open_registry(runs, "shop")


def serving(runs: Path, slug: str = "berg") -> str | None:
    current = registry_of(runs).current(slug)
    return current.version if current else None
