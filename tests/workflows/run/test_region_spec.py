"""What PRE and POST know of a region."""

from __future__ import annotations

import json

import pytest

from nnlib.contract import Metric, TrainSettings
from regiondag.errors import RegiondagError
from regiondag.run.region_spec import RegionSpec, read_spec, spec_to_json
from regiondag.study.model import Init, JobRequest, Search
from regiondag.study.space import Choice, Integer

SEARCH = Search("bayes", (Choice("c", (1, "x")), Integer("n", 1, 5, when=(("c", (1,)),))), (2, 1), ("n < 4",))


def spec(**search) -> RegionSpec:
    return RegionSpec(
        *("study", "Malta", "malta", Metric(), TrainSettings()), Search("bayes", (), (3,), **search), ("final",), {}
    )


def test_what_is_written_is_read(tmp_path):
    whole = RegionSpec(
        *("study", "Malta é", "malta", Metric("loss", minimize=True), TrainSettings(epochs=3), SEARCH),
        *(("train", "valid"), {"data.train.nc": "a" * 64}, 4, ({"c": 1, "n": 2},), Init("neighbour", "germany")),
        *(("n",), JobRequest(gpus=2), 3600),
    )
    path = tmp_path / "region.json"
    path.write_text(spec_to_json(whole), encoding="utf-8")
    assert read_spec(path) == whole


def test_what_an_older_version_left_out_has_its_default(tmp_path):
    path = tmp_path / "region.json"
    raw = json.loads(spec_to_json(spec()))
    for name in ("position", "first", "start", "shape", "job", "deadline"):
        del raw[name]
    path.write_text(json.dumps(raw))
    assert read_spec(path) == spec()
    assert (read_spec(path).position, read_spec(path).deadline) == (0, 0)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"study": 1}'])
def test_what_is_no_region(tmp_path, text):
    path = tmp_path / "region.json"
    path.write_text(text)
    words = {"{}": "it lacks 'study'", '{"study": 1}': "it lacks 'name'"}.get(text, "it is damaged")
    with pytest.raises(RegiondagError, match=rf"region\.json: cannot be read as a region of this version: {words}"):
        read_spec(path)
