"""The commands with the model of a recipe where they mostly have that of a network."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from nnlib.contract import Recipe
from nnlib.data.file import write_data
from nnlib.data.read_events import read_events, read_window
from nnlib.families.fit import fit_recipe
from nnlib.families.measure import measure
from nnlib.families.model_file import write_recipe_model
from nnlib.util import netcdf
from tests.nnlib.samples import clustered
from tests.nnlib.test_cli import TRAIN, folder, lines_of, nnlib, owned  # noqa: F401

MEMBERS = (Recipe("ease", {"l2": 10, "fit_half_life": 30.5}, 1), Recipe("popularity", {}, 1))
BLEND = Recipe("blend", {}, 1, MEMBERS, (1.0, 0.25))


@pytest.fixture(autouse=True)
def model(folder) -> Path:  # noqa: F811
    write_recipe_model(Path("model.nc"), fit_recipe(BLEND, read_events(Path("train.nc"))))
    return Path("model.nc")


def scores():
    model = fit_recipe(BLEND, read_events(Path("train.nc")))
    return model.scores(read_events(Path("valid.nc")), np.arange(60))


def test_predict(nnlib):  # noqa: F811
    code, out, err = nnlib("predict model.nc valid.nc -k 5 --score-format %.9g")
    assert (code, "60 examples in " in err) == (0, True)
    table, found = scores(), lines_of(out)
    assert list(found) == [f"valid {n}" for n in range(60)]
    for row, own, pairs in zip(table, owned("valid.nc"), found.values(), strict=True):
        best = [f"item{n}" for n in np.argsort(-row, kind="stable") if f"item{n}" not in own][:5]
        assert [item for item, _ in pairs] == best
        assert [score for _, score in pairs] == pytest.approx([row[int(item[4:])] for item in best], rel=1e-6)
    assert nnlib("predict model.nc valid.nc -k 5 --score-format %.9g --threads 3")[1] == out
    everything = lines_of(nnlib("predict model.nc valid.nc -k 1000 --exclude none")[1])
    assert {len(pairs) for pairs in everything.values()} == {40}
    assert nnlib("predict model.nc valid.nc --format values --out values.npy")[0] == 0
    assert np.load("values.npy").tobytes() == table.tobytes()
    assert nnlib("predict model.nc valid.nc -k 3 --out best.nc")[0] == 0
    assert netcdf.read(Path("best.nc")).variables["features"].values[7] == "item7"


def test_predict_filters_and_exclusions(nnlib):  # noqa: F811
    plain = lines_of(nnlib("predict model.nc valid.nc -k 40 --exclude none --score-format %.9g")[1])["valid 0"]
    [first, second, *_] = [item for item, _ in plain]
    Path("filter.txt").write_text(f"valid 0\t{first}:{second},0.5\n")
    found = dict(
        lines_of(nnlib("predict model.nc valid.nc -k 40 --exclude none --filter filter.txt --score-format %.9g")[1])[
            "valid 0"
        ]
    )
    assert found[first] == 0
    assert found[second] == pytest.approx(plain[1][1] / 2)
    Path("sold.txt").write_text(f"valid 0\t{first},3:{second}\n")
    sold = lines_of(nnlib("predict model.nc valid.nc -k 40 --exclude sold.txt --score-format %.9g")[1])
    assert sold["valid 0"] == plain[2:]
    other = lines_of(nnlib("predict model.nc valid.nc -k 40 --exclude valid.nc")[1])
    assert {len(pairs) for pairs in other.values()} == {31}


def marked():
    """The model, and data to validate with, as of a shop in which buying again counts."""
    events = dataclasses.replace(read_events(Path("train.nc")), repeats=True)
    write_recipe_model(Path("marked.nc"), fit_recipe(BLEND, events))
    data = dataclasses.replace(clustered(60, 2, 6), samples=tuple(f"valid {n}" for n in range(60)), repeats=True)
    write_data(Path("again.nc"), data)


def test_where_buying_again_counts_predict_keeps_what_customers_have(nnlib):  # noqa: F811
    marked()
    everything = nnlib("predict model.nc valid.nc -k 5 --exclude none")[1]
    assert nnlib("predict marked.nc valid.nc -k 5")[1] == everything
    plain = nnlib("predict model.nc valid.nc -k 5")[1]
    assert nnlib("predict marked.nc valid.nc -k 5 --exclude input")[1] == plain != everything
    assert nnlib("inspect marked.nc")[1].splitlines()[0].endswith(", recommends what customers have, too (repeats)")
    assert nnlib("diff model.nc marked.nc")[:2] == (1, "repeats: False | True\n")


def test_evaluate_ranks_what_the_data_say(nnlib):  # noqa: F811
    marked()
    found, said = {}, {}
    for name in ("model.nc valid.nc", "marked.nc again.nc", "model.nc again.nc", "marked.nc valid.nc"):
        for more in ("", " --exclude none", " --exclude input"):
            _, found[name + more], said[name + more] = nnlib(f"evaluate {name} --at 5 --bootstrap 0{more}")
    kept, left_out = found["model.nc valid.nc --exclude none"], found["model.nc valid.nc"]
    assert kept != left_out
    assert {found["marked.nc again.nc"], found["model.nc again.nc"]} == {kept}
    assert {found["marked.nc valid.nc"], found["marked.nc again.nc --exclude input"]} == {left_out}
    words = ", as the data say; in what the model recommends it "
    assert f"what an example has is ranked{words}has no rank" in said["model.nc again.nc"]
    assert f"what an example has has no rank{words}is ranked" in said["marked.nc valid.nc"]
    assert sum(words in text for text in said.values()) == 2


def turned(data):
    """The same data with the items in the opposite order, but for item 7, which has another name."""
    sets = []
    for one in data.sets:
        names = tuple("new" if name == "item7" else name for name in reversed(one.features))
        rows = dataclasses.replace(one.rows, indices=(39 - one.rows.indices).astype(np.int32)).sets()
        sets.append(dataclasses.replace(one, rows=rows, features=names))
    return dataclasses.replace(data, sets=tuple(sets))


def test_items_are_found_by_name(nnlib):  # noqa: F811
    data = clustered(60, 2, 6)
    write_data(Path("plain.nc"), data)
    write_data(Path("turned.nc"), turned(data))
    one, other = (
        lines_of(nnlib(f"predict model.nc {name}.nc -k 40 --exclude none")[1]) for name in ("plain", "turned")
    )
    for sample, own in enumerate(owned("plain.nc")):
        if "item7" not in own:
            assert dict(one[str(sample)]) == pytest.approx(dict(other[str(sample)]), abs=2e-3)
    one, other = (
        json.loads(Path(f"{name}.json").read_text())
        for name in ("plain", "turned")
        if not nnlib(f"evaluate model.nc {name}.nc --json {name}.json")[0]
    )
    assert one["examples"] == other["examples"]
    assert 0.5 < other["metrics"]["recall@5"]["value"] < one["metrics"]["recall@5"]["value"]  # item7 is never found


def test_evaluate(nnlib):  # noqa: F811
    code, out, _ = nnlib("evaluate model.nc valid.nc --at 3,10 --json metrics.json --bootstrap 100")
    assert code == 0
    assert out.startswith("60 examples with targets, 0 without\n")
    found = json.loads(Path("metrics.json").read_text())
    model = fit_recipe(BLEND, read_events(Path("train.nc")))
    wanted = measure(model, read_window(Path("valid.nc")), ["ndcg@3", "p@10"])
    for name, values in wanted.items():
        assert found["metrics"][name]["value"] == pytest.approx(values.mean(), rel=1e-6)
        assert found["metrics"][name]["low"] <= found["metrics"][name]["value"]
    assert len(found["metrics"]) == 10
    assert nnlib("evaluate model.nc valid.nc --at 3,10 --bootstrap 100 --threads 4")[1] == out
    everything = json.loads(
        nnlib("evaluate model.nc valid.nc --at 3 --exclude none --json all.json") and Path("all.json").read_text()
    )
    assert everything["metrics"]["p@3"]["value"] < found["metrics"]["p@3"]["value"]
    assert nnlib("evaluate model.nc valid.nc --at 3 --exclude valid.nc --json none.json")[0] == 0
    assert json.loads(Path("none.json").read_text())["metrics"]["p@3"]["value"] == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("predict model.nc valid.nc --output-layer Output", "--output-layer: this model is no network"),
        ("predict model.nc valid.nc --device gpu", "--device gpu: this model is no network and runs on the CPU"),
        ("predict model.nc valid.nc train.nc", "2 data files, legal for a model that is no network: one"),
        ("predict model.nc network.json", "network.json: not a readable NetCDF file"),
        (
            "predict model.nc strange.nc",
            "none of the 40 items of the data is known to the model; they are named such as",
        ),
        ("evaluate model.nc strange.nc", "none of the 40 items of the data is known to the model"),
        ("evaluate model.nc valid.nc --baseline popularity=train.nc", "--baseline: for networks, legal here: none"),
        ("evaluate model.nc empty.nc", "no example has a target"),
        (
            "embed model.nc valid.nc --layer Hidden1 --out x.npy",
            "model.nc: is the model of a recipe, legal here: that of a",
        ),
        ("diff model.nc train.nc", "model.nc is the model of a recipe, train.nc is data; legal: two of a kind"),
    ],
)
def test_what_makes_no_sense_is_refused(nnlib, line, message):  # noqa: F811
    data = clustered(10, 2, 6)
    strange = tuple(dataclasses.replace(one, features=tuple(f"x{n}" for n in range(40))) for one in data.sets)
    write_data(Path("strange.nc"), dataclasses.replace(data, sets=strange))
    history, targets = data.sets
    nothing = dataclasses.replace(targets.rows, indptr=np.zeros(11, np.int64), indices=targets.rows.indices[:0])
    write_data(Path("empty.nc"), dataclasses.replace(data, sets=(history, dataclasses.replace(targets, rows=nothing))))
    code, _, err = nnlib(line)
    assert code == 4
    assert message in err
    assert "Traceback" not in err


def test_inspect(nnlib):  # noqa: F811
    lines = nnlib("inspect model.nc")[1].splitlines()
    assert lines[:5] == [
        "model of a recipe, blend",
        "  1 times ease: l2 10, fit_half_life 30.5, ask_half_life 80, own_weight 1, bias 0, bias_scale raw, seed 1",
        "  0.25 times popularity: half_life 10, own 0.5, seed 1",
        "  40 items, such as 'item0'",
        '  1 regions, such as "Côte d\'Ivoire"',
    ]
    assert "  member0_inverse: 40 x 40 float32" in lines
    history = dataclasses.replace(read_events(Path("train.nc")), as_of=15300)
    write_recipe_model(Path("dated.nc"), fit_recipe(MEMBERS[1], history))
    assert nnlib("inspect dated.nc")[1].startswith(
        "model of a recipe, popularity, has seen what was before 2011-11-22\n"
    )


def test_diff(nnlib):  # noqa: F811
    assert nnlib("diff model.nc model.nc")[:2] == (0, "")
    other = dataclasses.replace(BLEND, members=(Recipe("ease", {"l2": 20}, 1), MEMBERS[1]))
    write_recipe_model(Path("other.nc"), fit_recipe(other, read_events(Path("train.nc"))))
    code, out, _ = nnlib("diff model.nc other.nc")
    assert code == 1
    assert out.startswith('recipe: {"family": "blend"')
    assert "array member0_inverse: 400 of 1600 numbers differ, by up to " in out
    assert "popularity" not in out.splitlines()[1]
