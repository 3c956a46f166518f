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
