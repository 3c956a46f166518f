"""What a job may bring back by default: never less than what real jobs bring, and `disk` where it is not known."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from nnlib.contract import MODEL_OUTPUTS, Recipe
from nnlib.data.file import check_data_file
from regiondag.cli import main
from regiondag.config.load_checked import load_checked
from regiondag.generate.output_bound import SAID, bound_region, describe_bounds
from regiondag.run.layout import NodeName
from regiondag.run.region_spec import read_spec
from regiondag.run.study_folder import find_run
from regiondag.study.init import Init
from regiondag.study.model import POOLED, Program
from tests.workflows.conftest import NETWORK, STUDY, write_study
from tests.workflows.shop import STUDY as SHOP
from tests.workflows.shop import play_final, play_search, write_shop

pytestmark = pytest.mark.slow

LARGE = STUDY.replace("disk: 100MB", "disk: 10GB")
KERNELS = {
    "Name": "C", "Kind": "Hidden", "Type": "Convolutional", "N": 4, "Kernel": ["$hidden", 3], "KernelStride": [1, 1]
}  # fmt: skip


def regions_of(folder, text=LARGE, network=NETWORK):
    """Return the study's regions by name, each with what its data files hold."""
    study = write_study(folder, text)
    (folder / "network.json").write_text(json.dumps(network))
    checked = load_checked(study)
    return {r.name: (r, {file: checked.summaries[file] for file in r.data.values()}) for r in checked.config.regions}


def brought(folder, node):
    """Return the bytes of all that a job has left for the manager."""
    files = (folder.trial(node) / name for name in MODEL_OUTPUTS.of_final)
    return sum(file.stat().st_size for file in files if file.exists())


def test_trials_of_a_network_and_its_final_training_bring_less(trained, tmp_path):
    region, data = regions_of(tmp_path)["Germany"]
    most = bound_region(region, data) - SAID
    folder = trained.region("germany")
    sizes = [brought(folder, NodeName("germany", number)) for number in (0, 1, 2, 3, None)]
    assert 0 < max(sizes) <= most
    parameters = 12 * 8 + 8 + 8 * 12 + 12  # with the largest layer that is searched
    assert most >= 2 * 6 * 4 * parameters, "a model, and five arrays as large in its checkpoint"


def test_trials_of_families_and_the_final_training_bring_less(tmp_path, capsys):
    study = write_shop(tmp_path, SHOP.replace("disk: 100MB", "disk: 10GB"))
    assert main(["generate", str(study)]) == 0
    run = find_run(Path(capsys.readouterr().out.strip()))
    folder = run.region(POOLED)
    job = read_spec(folder.spec).job
    assert SAID < job.max_output < 10 << 30
    play_search(run)
    assert play_final(folder, NodeName(POOLED, None))
    numbers = [int(path.name) for path in folder.path.glob("trials/[0-9]*")]
    sizes = [brought(folder, NodeName(POOLED, number)) for number in (*numbers, None)]
    assert 0 < max(sizes) <= job.max_output - SAID
    for slug in ("avon", POOLED):  # a region that has its own choice trains on what serves all
        for file in filter(Path.exists, run.region(slug).submit_files):
            text = file.read_text()
            assert re.search(rf"^max_transfer_output_mb = {job.max_output // (1 << 20)}$", text, re.MULTILINE)
        assert read_spec(run.region(slug).spec).job.max_output == job.max_output


def test_what_the_study_says_counts_and_never_more_than_the_disk(tmp_path, capsys):
    for job, most in (("disk: 100MB", None), ("disk: 10GB, max_output: 7GB", 7 << 30)):
        folder = tmp_path / job[-3:]
        folder.mkdir()
        study = write_study(folder, STUDY.replace("disk: 100MB", job))
        assert main(["generate", str(study)]) == 0
        run = find_run(Path(capsys.readouterr().out.strip()))
        assert read_spec(run.region("germany").spec).job.max_output == most


def test_validate_says_it_to_who_asks(tmp_path, capsys):
    assert main(["validate", str(write_study(tmp_path, LARGE))]) == 0
    assert capsys.readouterr().err == ""
    assert main(["validate", "--explain", str(write_study(tmp_path, LARGE))]) == 0
    assert re.search(r"^job.max_output: by default 1\d\dMB: twice what models", capsys.readouterr().err, re.MULTILINE)
    checked = load_checked(write_study(tmp_path, STUDY))
    assert describe_bounds(checked.config, checked.summaries).startswith("job.max_output: by default as job.disk")


def test_what_is_not_known_stays_as_the_disk(tmp_path):
    region, data = regions_of(tmp_path)["Germany"]
    assert bound_region(region, data) is not None
    assert bound_region(replace(region, init=Init("pooled", POOLED)), data) is None, "whose shape a model decides"
    assert bound_region(replace(region, program=Program(("true",))), data) is None
    assert bound_region(region, {}) is None
    assert bound_region(replace(region, search=replace(region.search, space=())), data) is None, "$hidden has no value"
    fixed = {
        **NETWORK,
        "Layers": [{**layer, "N": 4} if layer["Kind"] == "Hidden" else layer for layer in NETWORK["Layers"]],
    }
    region.network.write_text(json.dumps(fixed))
    assert bound_region(replace(region, init=Init("pooled", POOLED)), data) is not None, "there is one shape alone"
    region.network.write_text(json.dumps({**NETWORK, "Layers": [NETWORK["Layers"][0], KERNELS, NETWORK["Layers"][2]]}))
    assert bound_region(region, data) is None, "a larger kernel may leave fewer weights behind it"


def test_a_recipe_in_office_is_counted_whatever_the_space_is(tmp_path):
    region, data = regions_of(tmp_path)["Germany"]
    before = bound_region(region, data)
    office = Recipe("elsa", {"dims": 10_000})
    assert bound_region(region, data, office=[office, Recipe("network")]) - before >= 2 * 4 * 10_000 * 12


def test_files_that_disagree_on_what_there_is_bound_no_network(tmp_path):
    region, data = regions_of(tmp_path)["Germany"]
    [first, *others] = data
    wider = replace(data[first], sets=tuple(replace(one, width=one.width + 1) for one in data[first].sets))
    assert bound_region(region, {first: wider, **{file: check_data_file(file) for file in others}}) is None
