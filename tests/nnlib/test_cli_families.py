"""The commands with the model of a recipe where they mostly have that of a network."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from nnlib.contract import Recipe
from nnlib.data.file import write_data
from nnlib.data.read_events import read_events, read_window
from nnlib.data.rows import Dense, from_rows
from nnlib.data.sets import Data, DataSet
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


SIGNS = ("up", "down", "left")


def write_pictures(path: str, seed: int = 1, classes: bool = True, inputs: int = 9):
    """Write bytes of which one is bright for each sign, and their signs."""
    random = np.random.default_rng(seed)
    answers = random.integers(0, 3, 60)
    values = random.integers(0, 160, (60, inputs), np.uint8)
    values[np.arange(60), answers] += 90
    sets = DataSet("input", Dense(values)), DataSet("output", from_rows([[int(one)] for one in answers], 3), SIGNS)
    write_data(Path(path), Data(sets[: 1 + classes], tuple(f"picture {n}" for n in range(60)), "North"))
    return answers


def logistic(l2: float = 1.0):
    """Return the model of pictures, and write it."""
    write_pictures("pictures.nc")
    model = fit_recipe(Recipe("logistic", {"l2": l2}), read_events(Path("pictures.nc"), inputs=True))
    write_recipe_model(Path("signs.nc"), model)
    return model


@pytest.mark.parametrize("classes", [True, False], ids=["with classes", "pictures alone"])
def test_predict_by_dense_inputs(nnlib, classes):  # noqa: F811
    model, _ = logistic(), write_pictures("new.nc", 2)
    table = model.scores(read_events(Path("new.nc"), inputs=True), np.arange(60))
    write_pictures("new.nc", 2, classes)
    code, out, _ = nnlib("predict signs.nc new.nc -k 3 --score-format %.9g")
    assert code == 0
    for row, (name, pairs) in zip(table, lines_of(out).items(), strict=True):
        assert [item for item, _ in pairs] == [SIGNS[n] for n in np.argsort(-row, kind="stable")], name
        assert [score for _, score in pairs] == pytest.approx(sorted(row.tolist(), reverse=True), rel=1e-6)
    assert nnlib("predict signs.nc new.nc --format values --out values.npy --threads 2")[0] == 0
    assert np.load("values.npy").tobytes() == table.tobytes()
    assert table.sum(axis=1) == pytest.approx(np.ones(60), abs=1e-5)


def test_evaluate_by_dense_inputs_ranks_all_classes(nnlib):  # noqa: F811
    model, answers = logistic(), write_pictures("new.nc", 2)
    assert nnlib("evaluate signs.nc new.nc --at 1,2 --bootstrap 0 --json found.json")[0] == 0
    named = model.scores(read_events(Path("new.nc"), inputs=True), np.arange(60)).argmax(axis=1)
    found = json.loads(Path("found.json").read_text())
    assert found["metrics"]["p@1"]["value"] == pytest.approx((named == answers).mean()) and found["with_targets"] == 60
    write_recipe_model(Path("often.nc"), fit_recipe(Recipe("popularity"), read_events(Path("pictures.nc"))))
    assert nnlib("evaluate often.nc new.nc --at 1 --bootstrap 0 --json often.json")[0] == 0
    most = np.bincount(write_pictures("pictures.nc"), minlength=3).argmax()
    often = json.loads(Path("often.json").read_text())["metrics"]["p@1"]["value"]
    assert often == pytest.approx((answers == most).mean())


def test_a_model_of_popularity_names_the_classes_of_pictures_and_leaves_none_out(nnlib):  # noqa: F811
    """What is asked about has its class in the file: it was left out as if it were had."""
    answers = write_pictures("pictures.nc")
    write_recipe_model(Path("often.nc"), fit_recipe(Recipe("popularity"), read_events(Path("pictures.nc"))))
    found = lines_of(nnlib("predict often.nc pictures.nc -k 3")[1])
    order = [SIGNS[n] for n in np.argsort(-np.bincount(answers, minlength=3), kind="stable")]
    assert {tuple(item for item, _ in pairs) for pairs in found.values()} == {tuple(order)}


def test_inspect_and_diff_a_model_of_dense_inputs(nnlib):  # noqa: F811
    logistic()
    Path("signs.nc").rename("weak.nc")
    logistic(l2=2.0)
    out = nnlib("inspect signs.nc")[1]
    assert "logistic: l2 2, seed 1" in out and "weights_of_inputs: 9 x 3 float32" in out
    code, out, _ = nnlib("diff weak.nc signs.nc")
    assert code == 1 and '"l2": 1.0' in out and "array weights_of_inputs: " in out
    assert nnlib("diff signs.nc signs.nc")[0] == 0


def test_what_does_not_fit_a_model_of_dense_inputs_is_said(nnlib):  # noqa: F811
    logistic()
    for command in ("predict", "evaluate"):
        code, _, err = nnlib(f"{command} signs.nc valid.nc")
        assert code == 4 and "none of the 40 items of the data is known to the model" in err
        write_pictures("wide.nc", inputs=10)
        code, _, err = nnlib(f"{command} signs.nc wide.nc")
        assert code == 4 and "logistic: examples of 10 inputs, legal: 9, as it learned" in err
