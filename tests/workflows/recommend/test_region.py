"""Which champion, which histories, which names."""

from __future__ import annotations

import os
import shutil

import pytest

from nnlib.prediction.recommender import STRANGER, open_recommender
from regiondag.errors import RegiondagError
from regiondag.recommend import open_region
from regiondag.recommend.region import Served
from regiondag.registry.promote import roll_back
from regiondag.registry.read import open_registry
from tests.workflows.recommend.made_up import LATER, NIGHT, REGIONS, place_run, place_study, write_histories


@pytest.fixture
def study(tmp_path):
    return place_study(tmp_path)


def test_the_current_champion_answers_with_names(study):
    region = open_region(study / "runs", "shop", "berg")
    run = study / "runs" / f"run-shop-{NIGHT}" / "regions" / "berg"
    other = open_recommender(run / "champion" / "model.nc", run / "data.all.nc", run / "trials" / "final" / "floor.nc")
    assert region.recommend(["b0", "b3", "nobody"], because=2) == other.recommend(["b0", "b3", "nobody"], because=2)
    assert region.descriptions == {"i0": "Red, big", "i1": "Blue"}
    assert region.recommend(["nobody"])[0].by == STRANGER


def test_without_a_floor_popularity_is_counted(tmp_path):
    (tmp_path / "other").mkdir()
    with_floor, without = place_study(tmp_path), place_study(tmp_path / "other", floor=False)
    answers = [open_region(one / "runs", "shop", "berg").recommend(["nobody"]) for one in (with_floor, without)]
    assert answers[0] == answers[1]


def test_a_rollback_is_followed(study):
    place_run(study, LATER, seed=5)
    registry = open_registry(study / "runs", "shop")
    versions = [one.version for one in registry.versions("berg")]
    assert versions == [LATER, NIGHT]
    new = open_region(study / "runs", "shop", "berg").recommend(["b0"])
    roll_back(registry, {"berg": NIGHT})
    old = open_region(study / "runs", "shop", "berg").recommend(["b0"])
    assert old != new
    assert Served(study / "runs", "shop").find("berg").champion.version == NIGHT


def test_histories_are_of_the_newest_run_that_has_the_region(study):
    later = place_run(study, LATER, champions=False, seed=5)
    for source in (study / "data").iterdir():
        source.unlink()
    served = Served(study / "runs", "shop")
    assert served.find_data("berg") == later.region("berg").data("all")
    shutil.rmtree(later.region("berg").path)
    assert served.find_data("berg").parts[-4] == f"run-shop-{NIGHT}"
    assert served.find_data("cote-d-ivoire").parts[-4] == f"run-shop-{LATER}"


def test_data_that_were_made_anew_since_the_run_are_taken(study):
    copy = study / "runs" / f"run-shop-{NIGHT}" / "regions" / "berg" / "data.all.nc"
    source = write_histories(study / "data" / "berg.all.nc", "berg", seed=9)
    os.utime(copy, (1e9, 1e9))
    assert Served(study / "runs", "shop").find_data("berg") == source
    source.unlink()
    assert Served(study / "runs", "shop").find_data("berg") == copy


def test_what_is_missing_is_said(study, tmp_path):
    with pytest.raises(RegiondagError, match=r"the study 'other' has no champion in .* yet; first: regiondag run"):
        _ = Served(study / "runs", "other").regions
    with pytest.raises(RegiondagError, match="the region 'nowhere' of the study 'shop' has no champion yet"):
        open_region(study / "runs", "shop", "nowhere")
    for run in (study / "runs").glob("run-*"):
        shutil.rmtree(run)
    with pytest.raises(RegiondagError, match="has data of the region 'berg' any more"):
        open_region(study / "runs", "shop", "berg")


def test_damaged_files_are_said(study):
    data = study / "runs" / f"run-shop-{NIGHT}" / "regions" / "berg" / "data.all.nc"
    data.write_bytes(b"x")
    with pytest.raises(RegiondagError, match=r"region 'Berg': .*data.all.nc"):
        open_region(study / "runs", "shop", "berg")
    model = open_registry(study / "runs", "shop").versions("berg")[0].model
    model.chmod(0o644)
    model.write_bytes(model.read_bytes()[:-1] + b"x")
    with pytest.raises(RegiondagError, match="damaged, its SHA-256 is"):
        open_region(study / "runs", "shop", "berg")


def test_regions_are_those_of_the_registry(study):
    assert dict(Served(study / "runs", "shop").regions) == REGIONS
