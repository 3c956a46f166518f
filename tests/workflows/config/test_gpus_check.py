"""Studies that ask for more GPUs than a training could use."""

from __future__ import annotations

import json
import re

import pytest

from nnlib.data.file import DataSummary, SetSummary
from nnlib.inspection.scaling import MACHINES, Matrix, Work, predict_efficiency
from regiondag.cli import main
from regiondag.config.gpus_check import find_few_cores, find_poorly_used
from regiondag.config.load import load_config
from tests.workflows.conftest import STUDY, write_study


@pytest.fixture
def notes(tmp_path):
    """Return what is said of a study whose regions have so many items, 10 of them an example."""

    def find(text: str, *items: int) -> list[str]:
        config = load_config(write_study(tmp_path, text))
        data = {
            file: DataSummary(tuple(SetSummary(name, 1000, count, 10_000) for name in ("input", "output")), "")
            for region, count in zip(config.regions, items, strict=True)
            for file in region.data.values()
        }
        return find_poorly_used(config.regions, data)

    return find


def asking(job: str, *more: str) -> str:
    return "".join([STUDY.replace("job: {", f"job: {{{job}, "), *more]).replace("batch: 4", "batch: 256")


def test_a_network_of_which_nothing_is_cut(notes):
    text = (
        "job.gpus: 4: United Kingdom and 1 more: nothing of the network is cut (nnlib inspect says why), so that each "
        "GPU does all the work; trials side by side use GPUs whole: gpus: 1 and a larger search.parallel"
    )
    assert notes(asking("gpus: 4"), 12, 8191) == [text]
    assert notes(asking("gpus: 1"), 12, 12) == []


def test_batches_that_could_be_cut_are_pointed_out(tmp_path):
    """An image network, whose batches `auto` cuts, and `none` does not."""
    study = write_study(tmp_path, asking("gpus: 4").replace("train: {", "train: {parallel: none, "))
    network = json.loads((tmp_path / "network.json").read_text())
    image = {"Name": "Input", "Kind": "Input", "N": [32, 32, 64], "DataSet": "input"}
    conv = {"Name": "Hidden", "Kind": "Hidden", "Type": "Convolutional", "N": 256, "Kernel": [3, 3]}
    network["Layers"][:2] = [image, conv]
    (tmp_path / "network.json").write_text(json.dumps(network))
    study.write_text(study.read_text().replace("    hidden: {int: [2, 8], log: true}\n", ""))
    config = load_config(study)
    sets = SetSummary("input", 1000, 65_536, 65_536_000, "dense numbers"), SetSummary("output", 1000, 10, 1000)
    data = {file: DataSummary(sets, "") for region in config.regions for file in region.data.values()}
    [text] = find_poorly_used(config.regions, data)
    found = re.search(r"train.parallel: examples would cut its batches, predicted ([0-9.]+) times as fast;", text)
    assert found is not None and 2 < float(found[1]) < 4
    for parallel in ("examples", "auto"):
        study.write_text(re.sub("parallel: [a-z]+,", f"parallel: {parallel},", study.read_text()))
        assert find_poorly_used(load_config(study).regions, data) == []


def test_what_is_predicted_with_the_largest_settings(notes):
    """8 hidden units at most, Adam: of 10,000 items most of a step is what no GPU shortens."""
    [text] = notes(asking("gpus: 4"), 10_000, 40_000_000)
    work = Work((Matrix(10_000, 8, True, True, 2560.0, 640.0), Matrix(8, 10_000, True, output=True)), 256, 2)
    known = predict_efficiency(MACHINES[0], work, 4)
    assert text == (
        f"job.gpus: 4: United Kingdom: a training is predicted to be {4 * known:.2f} times as fast as on one GPU, an "
        f"efficiency of {known:.2f} (H100, NVLink; a model, not measured); trials side by side use GPUs whole: gpus: 1 "
        "and a larger search.parallel"
    )


def test_the_last_training_is_looked_at_by_itself(notes):
    [text] = notes(asking("gpus: 1", "final: {gpus: {min: 2, max: 8}}\n"), 40_000_000, 150_000)
    assert text.startswith("final.gpus: 8: Germany: a training is predicted to be ")
    assert text.endswith("; at most 4 GPUs are worth it")


def test_validate_says_it(tmp_path, capsys):
    study = write_study(tmp_path, asking("gpus: 2"))
    assert main(["validate", str(study)]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("all good\n")
    few, poor = err.splitlines()
    assert few == "job.cpus: 1: 2 GPUs have a process each, which prepares its batches, too; give cpus: 2 or more"
    assert poor.startswith("job.gpus: 2: United Kingdom and 1 more: nothing of")


def test_cores_that_are_not_said_are_enough(tmp_path):
    assert find_few_cores(load_config(write_study(tmp_path, asking("gpus: 8").replace("cpus: 1, ", ""))).regions) == []
