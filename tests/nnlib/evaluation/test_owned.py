"""What an example owns is not ranked, unless it is the very target."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from nnlib import cli
from nnlib.api.network import Network
from nnlib.api.predictor import Predictor
from nnlib.api.trainer import Trainer
from nnlib.data import units
from nnlib.data.file import write_data
from nnlib.data.rows import Csr, from_rows
from nnlib.data.sets import Data, DataSet
from nnlib.data.units import Units
from nnlib.errors import DataError
from nnlib.evaluation import owned
from nnlib.model.file import read_model
from nnlib.prediction.exclusion import Numbered, exclude_inputs, same_rows, targets_are_inputs
from nnlib.prediction.predictor import prepare
from tests.nnlib.samples import ITEMS, clustered, random_rows

LAYERS = [
    {"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": True},
    {"Name": "Hidden", "Kind": "Hidden", "N": 12, "Activation": "Relu"},
    {"Name": "Out", "Kind": "Output", "N": "auto", "DataSet": "output", "Activation": "Sigmoid"},
]
NAMES = tuple(f"item{n}" for n in range(ITEMS))
PAGES = tuple(f"page{n}" for n in range(ITEMS))


@pytest.fixture
def bought() -> sparse.csr_array:
    rows = clustered(200, 1, 9).sets[0].rows
    assert isinstance(rows, Csr)
    return sparse.csr_array((np.ones(rows.nonzeros, np.float32), rows.indices, rows.indptr), shape=(200, ITEMS))


@pytest.mark.parametrize("one_set", [True, False])
def test_an_autoencoder_is_measured_on_its_inputs(bought, one_set):
    layers = [*LAYERS[:2], LAYERS[2] | ({"DataSet": "input"} if one_set else {})]
    trainer = Trainer(Network.from_json({"Layers": layers}), epochs=12, batch=32, learning_rate=0.02, threads=1)
    trained = trainer.fit(bought, valid=bought.copy(), metric="p@5")
    values = [epoch.value for epoch in trainer.history]
    assert len(values) == 12 and values[-1] > values[0] > 0
    items, _ = Predictor(trained, threads=1).top_k(bought, 5)  # predictions leave owned items out all the same
    assert not np.take_along_axis(bought.toarray(), np.maximum(items, 0), axis=1)[items >= 0].any()


def test_where_buying_again_counts_a_network_is_measured_on_what_was_had_and_recommends_it(
    tmp_path, monkeypatch, capsys
):
    """Each customer takes once more half of what he had: in training as afterwards that can be found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    Path("network.json").write_text(json.dumps({"Layers": LAYERS}))
    rows = clustered(200, 1, 9).sets[0].rows
    half = rows.keep(np.arange(rows.nonzeros) % 2 == 0)
    for name, mark in (("plain.nc", False), ("again.nc", True)):
        write_data(Path(name), Data((DataSet("input", rows), DataSet("output", half)), repeats=mark))
    found = {}
    for name in ("plain", "again"):
        more = "--epochs 6 --learning-rate 0.02 --metric p@5"
        assert run(f"train network.json {name}.nc --valid {name}.nc {more} --out {name}-model.nc") == 0
        capsys.readouterr()
        assert run(f"evaluate {name}-model.nc {name}.nc --at 5 --bootstrap 0 --json m.json") == 0
        found[name] = json.loads(Path("m.json").read_text())["metrics"]["p@5"]["value"]
        assert run(f"predict {name}-model.nc plain.nc -k 9 --out {name}.txt") == 0
        lists = Path(f"{name}.txt").read_text().splitlines()
        listed = [{int(pair.split(",")[0]) for pair in filter(None, line.split("\t")[1].split(":"))} for line in lists]
        shared = [
            len(some & set(row)) for some, row in zip(listed, np.split(rows.indices, rows.indptr[1:-1]), strict=True)
        ]
        assert (sum(shared) > 400) is (name == "again") and (name == "again" or not any(shared))
    assert found["plain"] == 0 and found["again"] > 0.1
    assert read_model(Path("again-model.nc")).repeats and not read_model(Path("plain-model.nc")).repeats
    with pytest.raises(DataError, match=r"again\.nc: what a customer has is ranked .* in plain\.nc it has no rank"):
        Trainer(Network.from_json({"Layers": LAYERS}), epochs=1).fit("plain.nc", valid="again.nc")


def test_a_trained_network_leaves_nothing_out_of_its_own_accord_where_buying_again_counts(bought):
    rows = clustered(200, 1, 9).sets[0].rows
    data = Data((DataSet("input", rows), DataSet("output", rows)), repeats=True)
    trained = Trainer(Network.from_json({"Layers": LAYERS}), epochs=1, batch=32, threads=1).fit(data)
    predictor = Predictor(trained, threads=1)
    everything, auto, own = (predictor.top_k(bought, 5, exclude)[0] for exclude in (None, "auto", "inputs"))
    assert np.array_equal(auto, everything) and not np.array_equal(own, everything)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((40, NAMES), (40, NAMES), True),
        ((40, ()), (40, NAMES), True),
        ((40, ()), (40, ()), True),
        ((40, PAGES), (40, NAMES), False),
        ((41, ()), (40, ()), False),
        ((4, ()), (40, NAMES), False),
    ],
)
def test_what_are_the_same_items(one, other, same):
    assert units.same_items(Units(*one), Units(*other)) is same


def test_when_what_is_owned_are_the_targets(monkeypatch):
    monkeypatch.setattr(owned, "BLOCK", 7)
    rows = random_rows(50, 20, 1)
    again = from_rows([[5, 1], *([] for _ in range(49))], 20)
    unsorted = from_rows([[1, 5, 1], *([] for _ in range(49))], 20)
    last = np.arange(50)
    last[49] = 0
    for one, other, same in (
        (rows, rows.take(np.arange(50)), True),
        (rows, rows.take(last), False),
        (rows, rows.take(np.arange(49)), False),
        (again, unsorted, True),
    ):
        assert owned.are_targets(DataSet("input", one), DataSet("output", other)) is same
    assert not owned.are_targets(DataSet("input", rows), DataSet("output", rows, index=last))


def run(line):
    return cli.main(line.split())


def test_evaluate_measures_targets_that_are_the_inputs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    Path("network.json").write_text(json.dumps({"Layers": LAYERS}))
    rows = clustered(200, 1, 9).sets[0].rows
    write_data(Path("data.nc"), Data((DataSet("input", rows), DataSet("output", rows))))
    assert run("train network.json data.nc --epochs 3 --learning-rate 0.02 --out model.nc") == 0
    assert run("evaluate model.nc data.nc --at 5 --bootstrap 0 --json m.json") == 0
    assert "the targets are the inputs" in capsys.readouterr().err
    assert json.loads(Path("m.json").read_text())["metrics"]["p@5"]["value"] > 0.1
    assert run("evaluate model.nc data.nc --exclude input") == 4
    assert "every target would be left out, legal: none, or a file" in capsys.readouterr().err


def test_other_targets_than_the_inputs_are_no_inputs(bought):
    trainer = Trainer(Network.from_json({"Layers": LAYERS}), epochs=1, batch=32, threads=1)
    model = Predictor(trainer.fit(bought), threads=1)._model
    rows, other = (clustered(200, seed, 9).sets[0].rows for seed in (1, 2))
    for targets, same in ((rows, True), (other, False), (None, False)):
        sets = {"input": DataSet("input", rows)} | ({"output": DataSet("output", targets)} if targets else {})
        ready = prepare(model, sets, "data", supervised=targets is not None)
        assert targets_are_inputs(model, ready, 2) is same
        assert exclude_inputs(model, ready, 2) is not None


def test_a_matrix_gives_its_rows_and_must_have_the_shape():
    rows = from_rows([[0, 2], [1], []], 3)
    found = same_rows(rows, Numbered(3), Numbered(3))(np.array([2, 0]))
    assert found is not None and found.indptr.tolist() == [0, 0, 2] and found.indices.tolist() == [0, 2]
    with pytest.raises(DataError, match="a matrix of 3 rows and 3 columns, legal: 4 and 3"):
        same_rows(rows, Numbered(4), Numbered(3))
