"""Studies are found by folder or file, and so are their runs."""

import json
from pathlib import Path

import pytest

from regiondag.errors import RegiondagError, UsageError
from regiondag.run.study_folder import find_run, find_study


def make_study(folder: Path, name: str = "shop") -> Path:
    folder.mkdir(parents=True)
    (folder / "study.yaml").write_text(f"study: {name}\n")
    return folder


def make_run(folder: Path, study: str) -> None:
    folder.mkdir(parents=True)
    manifest = {"study": study, "run": str(folder), "metric": "ndcg@20", "regions": {}, "sha256": {}}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_study_is_meant_by_its_folder_and_by_its_file(tmp_path):
    folder = make_study(tmp_path / "shop")
    assert find_study(folder) == find_study(folder / "study.yaml")
    assert find_study(folder).name == "shop"


def test_runs_are_listed_from_the_newest_and_those_of_others_left_out(tmp_path):
    folder = make_study(tmp_path / "shop")
    for name, study in (("run-shop-1", "shop"), ("run-shop-2", "shop"), ("run-other-3", "other")):
        make_run(folder / "runs" / name, study)
    assert [run.path.name for run in find_study(folder).list_runs()] == ["run-shop-2", "run-shop-1"]
    assert find_study(folder).newest_run().path.name == "run-shop-2"
    assert find_study(folder, tmp_path / "elsewhere").list_runs() == []


def test_a_study_without_a_run_says_what_makes_one(tmp_path):
    with pytest.raises(RegiondagError, match=r"no run .* first: regiondag generate"):
        find_study(make_study(tmp_path / "shop")).newest_run()


def test_what_is_no_study_names_those_that_are_near(tmp_path, monkeypatch):
    make_study(tmp_path / "shop")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"shp: no study there; .*; studies here: shop$"):
        find_study(Path("shp"))


def test_a_run_is_meant_by_its_directory_and_by_its_study(tmp_path):
    folder = make_study(tmp_path / "shop")
    for name in ("run-shop-1", "run-shop-2"):
        make_run(folder / "runs" / name, "shop")
    newest = (folder / "runs" / "run-shop-2").resolve()
    assert find_run(folder).path == find_run(folder / "study.yaml").path == newest
    assert find_run(folder / "runs" / "run-shop-1").path == newest.with_name("run-shop-1")


def test_what_is_neither_is_left_to_who_reads_its_manifest(tmp_path):
    assert find_run(tmp_path / "nothing").path == tmp_path.resolve() / "nothing"
    with pytest.raises(RegiondagError, match="no run in"):
        find_run(make_study(tmp_path / "shop"))


def test_a_study_that_is_named_from_where_it_lies_has_runs_with_whole_paths(tmp_path, monkeypatch):
    """HTCondor's programs are started in another folder."""
    made = make_study(tmp_path / "shop") / "runs/run-shop-1"
    make_run(made, "shop")
    monkeypatch.chdir(tmp_path)
    assert find_run(Path("shop")).path == made.resolve()
