"""Which networks have logistic regression to beat, by what their data hold."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from nnlib.contract import Recipe
from nnlib.data.file import DataSummary, SetSummary, check_data_file, write_data
from nnlib.data.read_events import read_events
from nnlib.data.rows import Dense, from_rows
from nnlib.data.sets import Data, DataSet
from regiondag.cli import main
from regiondag.config.load import load_config
from regiondag.generate.floor import MOST_WORK, find_floor
from regiondag.generate.output_bound import bound_region
from tests.workflows.conftest import NETWORK, STUDY, write_study

LOGISTIC = Recipe("logistic")
GB = 1 << 30


def region_of(folder, text=STUDY, inputs="input", output="output", **more):
    """Return a region whose network reads the data set `inputs` and answers `output`."""
    first, hidden, last = NETWORK["Layers"]
    first = {name: value for name, value in first.items() if name != "Sparse"} | {"DataSet": inputs}
    study = write_study(folder, text)
    (folder / "network.json").write_text(json.dumps(NETWORK | {"Layers": [first, hidden, last | {"DataSet": output}]}))
    region = load_config(study).regions[0]
    return replace(region, job=replace(region.job, **{"memory": GB, **more}))


def summary_of(examples=100, width=12, classes=3, kind="dense uint8", targets="sparse boolean"):
    sets = SetSummary("input", examples, width, 1, kind), SetSummary("output", examples, classes, examples, targets)
    return DataSummary(sets, "")


def found(region, *summaries):
    return find_floor(region, dict(zip(region.data.values(), summaries, strict=False)))


def test_it_is_that_of_dense_inputs_with_sparse_targets(tmp_path):
    region = region_of(tmp_path)
    assert found(region, summary_of(), summary_of(20)) == LOGISTIC
    assert found(region, summary_of(kind="dense float32")) == LOGISTIC
    assert found(region, summary_of(), summary_of(kind="sparse boolean")) is None
    assert found(region, summary_of(targets="dense float32")) is None
    assert found(region, summary_of(targets="sparse analog")) is None
    assert found(region) is None  # nothing is known of its files


def test_no_network_is_read_where_there_are_no_dense_inputs(tmp_path):
    region = replace(region_of(tmp_path), network=tmp_path / "gone.json")
    assert found(region, summary_of(kind="sparse boolean")) is None
    with pytest.raises(FileNotFoundError):
        found(region, summary_of())


@pytest.mark.parametrize(
    "text",
    [
        STUDY.replace("metric: ndcg@5", "minimize: loss"),
        STUDY.replace("network: network.json", "network: network.json\nfamilies: [network, ease]"),
    ],
)
def test_it_is_not_where_a_loss_decides_or_families_are_searched(tmp_path, text):
    assert found(region_of(tmp_path, text), summary_of()) is None


def test_it_is_not_where_it_would_take_minutes_or_the_job_s_memory(tmp_path):
    region = region_of(tmp_path, memory=2 * GB)
    pictures = summary_of(50_000, 3072, 10)
    assert found(region, pictures) == LOGISTIC
    assert found(region, summary_of(int(MOST_WORK / 3072 / 20) + 1, 3072, 10)) is None
    assert found(region, summary_of(2000, 150_528, 1000)) is None
    assert found(region_of(tmp_path, memory=GB // 2), pictures) is None
    assert (
        found(region, replace(pictures, sets=(replace(pictures.sets[0], kind="dense float64"), pictures.sets[1])))
        is None
    )
    assert found(replace(region, final=replace(region.job, memory=GB // 2)), pictures) is None


@pytest.mark.parametrize(
    ("sets", "reads", "expected"),
    [
        (("input", "output"), ("input", "output"), LOGISTIC),
        (("pixels", "output"), ("pixels", "output"), LOGISTIC),
        (("input", "signs"), ("input", "signs"), LOGISTIC),
        (("pixels", "signs"), ("pixels", "signs"), None),
        (("input", "output", "signs"), ("input", "output"), LOGISTIC),
        (("input", "output", "signs"), ("input", "signs"), None),
        (("input", "pixels", "output"), ("pixels", "output"), None),
    ],
)
def test_the_data_sets_are_those_that_a_job_fits_it_to(tmp_path, sets, reads, expected):
    """By real files: what a network reads and answers is what `read_events` takes."""
    region = region_of(tmp_path, STUDY, *reads)
    values = {
        name: from_rows([[n % 3] for n in range(6)], 3) if name in ("output", "signs") else Dense(np.eye(6, dtype="u1"))
        for name in sets
    }
    file = next(iter(region.data.values()))
    write_data(file, Data(tuple(DataSet(name, rows) for name, rows in values.items())))
    assert find_floor(region, {file: check_data_file(file)}) == expected
    taken = read_events(file, inputs=True)
    assert expected is None or (taken.inputs is not None and taken.bought.width == 3)


def test_validate_names_the_regions(tmp_path, capsys):
    region = region_of(tmp_path)
    for part, file in region.data.items():
        count = {"train": 8, "valid": 6}.get(part, 9)
        rows = Dense(np.eye(count, 12, dtype="u1")), from_rows([[n % 3] for n in range(count)], 3)
        write_data(file, Data(tuple(DataSet(name, one) for name, one in zip(("input", "output"), rows, strict=True))))
    assert main(["validate", str(tmp_path / "study.yaml"), "--explain"]) == 0
    assert "logistic regression is what networks have to beat in: United Kingdom\n" in capsys.readouterr().err
    write_study(tmp_path)
    assert main(["validate", str(tmp_path / "study.yaml"), "--explain"]) == 0
    assert "logistic" not in capsys.readouterr().err


def test_a_job_may_bring_its_model(tmp_path):
    """Whose weights are more than all that popularity keeps."""
    region = region_of(tmp_path)
    data = dict.fromkeys(region.data.values(), summary_of(100, 100_000, 10))
    without = replace(region, job=replace(region.job, memory=1 << 20))
    most = [bound_region(one, data, floor=find_floor(one, data)) for one in (region, without)]
    more = most[0] - most[1]
    assert more >= 2 * 4 * 100_000 * 10
