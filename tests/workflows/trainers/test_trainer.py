"""What the rest of a study asks of whoever trains a region: of networks and of programs alike."""

from __future__ import annotations

import pytest

from regiondag.config.load import load_config
from regiondag.run.layout import RegionFolder
from regiondag.run.manifest import read_manifest
from regiondag.trainers.trainer import programs_of, trainer_of
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_write_run import create

OF_PROGRAM = (
    STUDY.replace(", data: data/uk.nc", "")
    .replace(", data: data/germany.nc", "")
    .replace(
        "network: network.json\nmetric: ndcg@5\n",
        "trainer: {command: [cat, network.json], files: [network.json], metric: {name: auc}}\n",
    )
    .replace(", batch: 4", "")
)
JOBS = {
    STUDY: ["network.json", "data.train.nc", "data.valid.nc"],
    OF_PROGRAM: ["program.zip"],
}


@pytest.mark.parametrize(("text", "inputs"), JOBS.items(), ids=["network", "program"])
def test_a_run_has_what_its_trainer_says_that_jobs_get(tmp_path, text, inputs):
    study = write_study(tmp_path, text)
    run = create(study, tmp_path / "runs")
    folder = run.region("germany")
    trainer = trainer_of(load_config(study).regions[1])
    jobs = trainer.inputs(folder, ("train", "valid"))
    assert [path.name for path in jobs] == inputs and all(path.is_file() for path in jobs)
    taken = [*trainer.copies(folder), *trainer.write(RegionFolder(tmp_path))]
    assert {path.name for path in jobs} <= {path.name for path in taken}
    assert str(trainer.kind.outputs.model) in str(folder.champion_model)
    digests = {name.rpartition("/")[2]: one for name, one in read_manifest(run).sha256.items() if "germany" in name}
    assert trainer.is_unchanged(digests)
    (tmp_path / "network.json").write_text("{}")  # it is a file of the program, too
    assert not trainer.is_unchanged(digests)


def test_programs_are_found_among_networks(tmp_path):
    own = (
        "{name: UK, trainer: {command: [cat], files: [network.json], metric: {name: auc}}, "
        "search: {space: {rate: {real: [0, 1]}}}}"
    )
    text = STUDY.replace("{name: United Kingdom, data: data/uk.nc}", own)
    regions = load_config(write_study(tmp_path, text)).regions
    assert list(programs_of(regions)) == ["uk"]
    assert [trainer_of(region).of_data_sets for region in regions] == [False, True]
