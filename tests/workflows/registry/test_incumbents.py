"""What the next night has to beat is what serves: by the registry, else by the newest run."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest

from nnlib.contract import Recipe, recipe_of
from nnlib.data.events import Events
from nnlib.data.rows import from_rows
from nnlib.families.model_file import read_recipe_model
from regiondag.cli import main
from regiondag.registry.incumbents import find_in_office
from regiondag.registry.promote import roll_back
from regiondag.registry.read import open_registry
from regiondag.run.champions import find_incumbents
from regiondag.run.layout import RunFolder
from regiondag.run.region_spec import read_spec
from tests.workflows import shop
from tests.workflows.registry.registered import NIGHTS, place_champion, promote, registry_of
from tests.workflows.shop import POOLED, SLUGS


def earlier(runs):
    return [RunFolder(path) for path in sorted(runs.glob("run-*"), reverse=True)]


def test_what_was_rolled_back_to_is_what_has_to_be_beaten(tmp_path):
    for night in NIGHTS[:2]:
        promote(tmp_path, night)
    said = []
    roll_back(registry_of(tmp_path), {"berg": NIGHTS[0]})
    found = find_in_office(tmp_path, "shop", ["berg", "tal"], earlier(tmp_path), said.append)
    assert set(found) == {"berg"} and said == []
    assert found["berg"].model.read_text() == f"berg {NIGHTS[0]}" and found["berg"].metrics.name == "champion.json"
    shutil.rmtree(tmp_path / f"run-shop-{NIGHTS[0]}")  # its run may go
    assert find_in_office(tmp_path, "shop", ["berg"], [], said.append) == found


def test_without_a_version_the_newest_runs_champion_does(tmp_path):
    place_champion(tmp_path, NIGHTS[0], "berg")
    runs = earlier(tmp_path)
    assert find_in_office(tmp_path, "shop", ["berg"], runs, print) == find_incumbents(runs, ["berg"]) != {}


def test_a_damaged_version_is_told_and_the_newest_runs_champion_does(tmp_path):
    champion = promote(tmp_path, NIGHTS[0])
    champion.model.unlink()
    said = []
    runs = earlier(tmp_path)
    assert find_in_office(tmp_path, "shop", ["berg"], runs, said.append) == find_incumbents(runs, ["berg"]) != {}
    assert len(said) == 1 and "model.nc" in said[0] and "goes on from its newest run's champion" in said[0]


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    """A study of families whose first run has ended."""
    run = shop.generate(shop.write_shop(tmp_path_factory.mktemp("shop")))
    shop.play(run)
    return run


def test_every_region_and_what_stands_for_all_are_registered(night):
    registry = open_registry(night.path.parent, "shop")
    assert registry.slugs() == sorted([POOLED, *SLUGS]) and set(registry.regions()) == set(SLUGS)
    for slug in registry.slugs():
        champion = registry.current(slug)
        assert champion.model.samefile(night.region(slug).champion_model)
        assert champion.floor.samefile(night.region(POOLED).champion_floor) or champion.slug == POOLED
        assert champion.facts["bytes"] == champion.model.stat().st_size


def test_a_region_that_was_rolled_back_tries_its_recipe_again_though_all_others_have_another(night, capsys):
    """The older common choice is this region's own now; one whom the floor serves has none."""
    registry, other = open_registry(night.path.parent, "shop"), Recipe("ease", {"l2": 77.0})
    raw = {"family": "ease", "hyperparameters": {"l2": 77.0}, "seed": 1, "members": [], "weights": []}
    for slug, kind in (("berg", "common"), ("avon", "floor")):
        path = registry.current(slug).folder / "champion.json"
        facts = json.loads(path.read_text())
        path.write_text(json.dumps(facts | {"recipe": raw, "decision": facts["decision"] | {"kind": kind}}))
    capsys.readouterr()
    assert main(["generate", str(night.path.parents[1] / "study.yaml"), "--quiet"]) == 0
    run = RunFolder(night.path.parent / capsys.readouterr().out.strip().rpartition("/")[2])
    spec = read_spec(run.region(POOLED).spec)
    assert spec.own == {"berg": other} and spec.incumbent == recipe_of(registry.current(POOLED).facts["recipe"])


def test_a_champion_as_onnx_scores_what_ours_does(night, tmp_path, capsys):
    runtime = pytest.importorskip("onnxruntime")
    study, champion = night.path.parents[1], open_registry(night.path.parent, "shop").current("avon")
    assert main(["champions", "export", str(study), "Avon", "--to", str(tmp_path / "avon"), "--format", "onnx"]) == 0
    assert {path.name for path in (tmp_path / "avon").iterdir()} == {
        *("README.md", "SHA256SUMS", "champion.json", "items.json", "model.onnx")
    }
    model, session = read_recipe_model(champion.model), runtime.InferenceSession(str(tmp_path / "avon/model.onnx"))
    assert json.loads((tmp_path / "avon/items.json").read_text()) == list(model.items)
    width = len(model.items)
    asked = Events(from_rows([[0, 2], [5]], width), model.items, np.zeros(2, np.int32), ("Avon",))
    histories = asked.aged_from_last(1.0).toarray()
    [scores] = session.run(["scores"], {one.name: histories for one in session.get_inputs()})
    np.testing.assert_allclose(scores, model.scores(asked, np.arange(2)), rtol=1e-3, atol=1e-4)
    assert "2^(-age / 80)" in (tmp_path / "avon/README.md").read_text()


def test_without_onnx_it_is_said_what_to_install(night, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    study = night.path.parents[1]
    assert main(["champions", "export", str(study), "Avon", "--to", str(tmp_path / "avon"), "--format", "onnx"]) == 1
    said = capsys.readouterr().err
    assert "--format onnx needs onnx; to install it: " in said and "[onnx]" in said and not (tmp_path / "avon").exists()
