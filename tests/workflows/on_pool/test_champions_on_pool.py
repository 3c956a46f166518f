"""Three nights on a real HTCondor pool: what is promoted, rolled back, pinned and removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nnlib.contract import recipe_of
from regiondag.cli import main
from regiondag.registry.journal import read_steps
from regiondag.registry.read import Registry, open_registry
from regiondag.run.champions import earlier_runs
from regiondag.run.layout import RunFolder
from regiondag.run.region_spec import read_spec
from tests.workflows.on_pool.test_families import SLUGS, SMALL
from tests.workflows.on_pool.test_study import finish
from tests.workflows.shop import POOLED, write_shop, write_table

pytestmark = pytest.mark.condor

REGIONS = {"Avon": 60, "Berg": 40, "Cove": 6}


def process_night(pool, study: Path) -> RunFolder:
    assert main(["update", str(study), "--submit", "--quiet"]) == 0
    run = earlier_runs(study.parent / "runs", "shop")[0]
    assert finish(pool, run).exit_code == 0
    return run


def serving(registry: Registry) -> dict[str, str]:
    """Return by region the run that made what serves; its files are looked into."""
    found = {slug: registry.current(slug) for slug in registry.slugs()}
    return {slug: champion.run for slug, champion in found.items() if champion}


def test_three_nights(pool, run_area, capsys):
    study = write_shop(run_area, SMALL, regions=REGIONS)
    registry = open_registry(study.parent / "runs", "shop")
    everywhere = (*SLUGS, POOLED)
    first = process_night(pool, study)
    assert serving(registry) == dict.fromkeys(everywhere, first.path.name)
    write_table(study.parent / "shop.csv", seed=2, liked=0.6, regions=REGIONS)  # whom nobody would recommend much
    second = process_night(pool, study)
    assert serving(registry) == dict.fromkeys(everywhere, second.path.name)
    assert {step.event for step in read_steps(registry.journal)} == {"promoted"}
    recipes = [one.facts["recipe"]["family"] for one in registry.versions(POOLED)]
    assert recipes == ["popularity", "blend"]
    capsys.readouterr()
    assert main(["champions", "diff", str(study), "berg", "--json"]) == 0
    changed = {one["fact"] for one in json.loads(capsys.readouterr().out)["facts"] if one["changed"]}
    assert {"recipe", "run", "data.test.nc", "model"} <= changed

    assert main(["champions", "rollback", str(study), "--all"]) == 0
    assert serving(registry) == dict.fromkeys(everywhere, first.path.name)
    assert main(["champions", "pin", str(study), "Berg"]) == 0
    write_table(study.parent / "shop.csv", seed=3, liked=0.6, regions=REGIONS)
    third = process_night(pool, study)
    assert read_spec(third.region(POOLED).spec).incumbent == recipe_of(registry.versions(POOLED)[2].facts["recipe"])
    berg = first.path.name
    assert serving(registry) == {**dict.fromkeys(everywhere, third.path.name), "berg": berg}
    assert [one.run for one in registry.versions("berg")] == [run.path.name for run in (third, second, first)]
    assert registry.current("berg").pinned

    capsys.readouterr()
    assert main(["clean", str(study), "--keep", "1", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["frees"] > 0
    assert [run.path for run in earlier_runs(study.parent / "runs", "shop")] == [third.path, first.path]
    assert serving(registry) == {**dict.fromkeys(everywhere, third.path.name), "berg": berg}
    assert main(["champions", "list", str(study)]) == 0
    shown = capsys.readouterr()
    assert "shop: 3 regions, 1 pinned" in shown.out and shown.err == ""
