"""The data of all regions as one, and what `generate` says of where trainings start."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nnlib.contract import sha256_of
from nnlib.data.file import read_data
from regiondag.cli import main
from regiondag.errors import ConfigError
from regiondag.node.pre import prepare_trial
from regiondag.run.layout import NodeName, RunFolder
from regiondag.run.region_spec import read_spec
from tests.workflows.conftest import NETWORK, STUDY, WIDTH, write_region, write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.node.test_pre_and_post import trial_of

POOLED = STUDY + "init: pooled\n"


@pytest.fixture
def study(tmp_path):
    """Two regions that share eight of their twelve items."""
    file = write_study(tmp_path, POOLED)
    write_region(tmp_path / "data", "uk", 5, [f"item {n}" for n in range(WIDTH)])
    write_region(tmp_path / "data", "germany", 3, [f"item {n + 4}" for n in range(WIDTH)])
    return file


def test_the_data_of_all_regions_are_merged_by_the_names_of_items(study, tmp_path):
    run = create(study, tmp_path / "runs")
    folder = run.region("pooled")
    digests = json.loads(run.manifest.read_text())["sha256"]
    for part in ("train", "valid", "test"):
        data = read_data(folder.data(part))
        for data_set in data.sets:
            assert data_set.features == tuple(f"item {n}" for n in range(16))
            assert data_set.examples == 8
        digest = sha256_of(folder.data(part))
        assert digests[f"regions/pooled/data.{part}.nc"] == read_spec(folder.spec).sha256[f"data.{part}.nc"] == digest
    [inputs, _] = read_data(folder.data("train")).sets
    own = [(user + i) % WIDTH for user in range(5) for i in range(3)]
    others = [(user + i) % WIDTH + 4 for user in range(3) for i in range(3)]
    assert np.array_equal(np.sort(inputs.rows.indices), np.sort([*own, *others]))
    assert not folder.data("final").exists()


def test_the_pooled_region_is_one_as_any_other(study, tmp_path):
    run = create(study, tmp_path / "runs")
    node = NodeName("pooled", 0)
    assert prepare_trial(run.region("pooled"), node)
    trial = trial_of(run.region("pooled"), node)
    assert (trial.init, trial.train_files, trial.valid_file) == (None, ("data.train.nc",), "data.valid.nc")
    assert read_spec(run.region("pooled").spec).final_parts == ("train",)
    assert json.loads(run.manifest.read_text())["regions"]["pooled"] == "pooled"
    assert (run.region("pooled").dag).exists()


def test_data_that_cannot_be_put_together_leave_no_run(study, tmp_path):
    write_region(tmp_path / "data", "germany")  # without names, and of the same width
    with pytest.raises(ConfigError, match=r"the data of all regions cannot be put together: .*train\.nc"):
        create(study, tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_network_that_is_too_narrow_for_all_items(study, tmp_path):
    layers = [{**layer, "N": WIDTH} if layer["N"] == "auto" else layer for layer in NETWORK["Layers"]]
    (tmp_path / "network.json").write_text(json.dumps({**NETWORK, "Layers": layers}))
    with pytest.raises(ConfigError) as caught:
        create(study, tmp_path / "runs")
    assert "region 'pooled': data.train.nc: data set 'input' has 16 units, layer 'Input'" in caught.value.problems[0]
    assert list((tmp_path / "runs").iterdir()) == []


def generated(study, capsys, *options):
    assert main(["generate", str(study), *options]) == 0
    told = capsys.readouterr()
    return RunFolder(study.parent / "runs" / told.out.strip()), told.err


def test_generate_says_what_starts_from_what(study, capsys):
    assert main(["validate", str(study)]) == 0
    assert "3 regions, 12 trials, 8 data files" in capsys.readouterr().out
    _, told = generated(study, capsys)
    assert told.startswith("trainings start from a model of all regions together: United Kingdom, Germany\n")
    assert "trainings" not in generated(study, capsys, "--quiet")[1]


def test_generate_takes_the_region_with_the_most_examples_for_the_neighbour(study, capsys):
    study.write_text(STUDY + "init: neighbour\n")
    run, told = generated(study, capsys)
    assert "trainings start from the champion of United Kingdom: Germany\n" in told
    assert "PARENT united-kingdom_final CHILD germany_t0000 germany_t0001\n" in run.study_dag.read_text()


def test_generate_says_who_has_no_champion_yet(study, capsys):
    study.write_text(STUDY + "init: champion\n")
    assert "trainings start from random: no champion yet: United Kingdom, Germany\n" in generated(study, capsys)[1]
