"""What PRE and POST know of a region."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nnlib.contract import Metric, Recipe, TrainSettings
from regiondag.errors import RegiondagError
from regiondag.run.region_spec import RegionSpec, read_spec, spec_to_json
from regiondag.study.families import first_points, space_of
from regiondag.study.model import Init, JobRequest, Search
from regiondag.study.space import Choice, Integer, Real

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
        floor=Recipe("logistic", {"l2": 3.0}),
    )
    path = tmp_path / "region.json"
    path.write_text(spec_to_json(whole), encoding="utf-8")
    assert read_spec(path) == whole
    more = replace(whole, final=JobRequest(gpus=8, fewest_gpus=2, require_gpus="Capability >= 8.0"))
    path.write_text(spec_to_json(more), encoding="utf-8")
    assert read_spec(path) == more


def test_what_an_older_version_left_out_has_its_default(tmp_path):
    path = tmp_path / "region.json"
    raw = json.loads(spec_to_json(spec()))
    for name in ("position", "first", "start", "shape", "job", "deadline", "floor"):
        del raw[name]
    path.write_text(json.dumps(raw))
    assert read_spec(path) == spec()
    assert (read_spec(path).position, read_spec(path).deadline, read_spec(path).floor) == (0, 0, None)


def test_what_is_written_of_families_is_read(tmp_path):
    member = Recipe("ease", {"l2": 300.0, "own_weight": 3, "bias_scale": "log"}, 7)
    blend = Recipe("blend", {}, 7, (member, Recipe("popularity", {"own": 0.5}, 7)), (1.0, 0.25))
    families = space_of(["popularity", "ease"], (Real("ease_l2", 5.0, 6.0),))
    whole = replace(
        spec(stop="noise", blends=True),
        search=Search("bayes", families, (4, 4), stop="noise", blends=True),
        first=first_points(["popularity", "ease"], space_of(["popularity", "ease"])),
        final_parts=("final", "all"),
        regions=("avon", "berg"),
        min_customers=25,
        incumbent=blend,
        window=20_000,
        rows={"valid": {"avon": (0, 3), "berg": (3, 9)}, "test": {"berg": (0, 5)}},
    )
    path = tmp_path / "region.json"
    path.write_text(spec_to_json(whole), encoding="utf-8")
    assert read_spec(path) == whole
    served = replace(spec(), served_by="pooled")
    path.write_text(spec_to_json(served))
    assert read_spec(path) == served


@pytest.mark.parametrize("incumbent", [{"family": "ease"}, {"family": 3, "hyperparameters": {}, "seed": 1}, "ease"])
def test_a_damaged_recipe_is_no_region(tmp_path, incumbent):
    path = tmp_path / "region.json"
    path.write_text(json.dumps(json.loads(spec_to_json(spec())) | {"incumbent": incumbent}))
    with pytest.raises(RegiondagError, match=r"region\.json: cannot be read as a region of this version"):
        read_spec(path)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"study": 1}'])
def test_what_is_no_region(tmp_path, text):
    path = tmp_path / "region.json"
    path.write_text(text)
    words = {"{}": "it lacks 'study'", '{"study": 1}': "it lacks 'name'"}.get(text, "it is damaged")
    with pytest.raises(RegiondagError, match=rf"region\.json: cannot be read as a region of this version: {words}"):
        read_spec(path)
