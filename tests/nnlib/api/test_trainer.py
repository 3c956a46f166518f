"""The library as people use it: arrays, files and dicts in, networks, items and scores out."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import nnlib
from nnlib.api.network import Network
from nnlib.api.predictor import Predictor
from nnlib.api.trainer import Trainer
from nnlib.contract import TrainSettings
from nnlib.data.file import write_data
from nnlib.data.sets import Data, DataSet
from nnlib.errors import DataError, DivergedError, NnlibError
from nnlib.training.checkpoint import Checkpoints
from nnlib.training.fit import FolderCheckpoints
from nnlib.training.loop import Training
from tests.nnlib.samples import ITEMS, clustered

pytestmark = pytest.mark.slow

RAW: dict[str, Any] = {
    "Name": "small",
    "Layers": [
        {"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": True},
        {"Name": "Hidden", "Kind": "Hidden", "N": "$hidden", "Activation": "Relu"},
        {"Name": "Out", "Kind": "Output", "N": "auto", "DataSet": "output", "Activation": "Sigmoid"},
    ],
}
QUICK: dict[str, Any] = {"epochs": 6, "batch": 32, "learning_rate": 0.02, "threads": 1}


def small(**layers: Any) -> Network:
    return Network.from_json(RAW, {"hidden": 12})


def csr(data_set: DataSet) -> Any:
    rows: Any = data_set.rows
    values = np.ones(rows.nonzeros, np.float32)
    return sparse.csr_array((values, rows.indices, rows.indptr), shape=(rows.examples, rows.width))


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    return tuple(csr(data_set) for data_set in clustered(200, 1, 6).sets)


@pytest.fixture(scope="module")
def held() -> tuple[Any, Any]:
    return tuple(csr(data_set) for data_set in clustered(60, 2, 6).sets)


@pytest.fixture(scope="module")
def trained(data, held) -> Network:
    return Trainer(small(), **QUICK).fit(*data, valid=held, metric="p@3")


def test_importing_is_light():
    code = (
        "import sys, nnlib; heavy = {'numpy', 'scipy', 'netCDF4', 'rich'} & set(sys.modules); assert not heavy, heavy;"
        "assert set(nnlib.__all__) <= set(dir(nnlib)); from nnlib import Network; assert 'numpy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        nnlib.Nothing  # noqa: B018


@pytest.mark.parametrize("name", nnlib.__all__)
def test_public_names_are_there_and_documented(name):
    assert getattr(nnlib, name).__doc__ or name == "__version__"


def test_train_rank_and_recommend(data, held, trained):
    items, scores = Predictor(trained, threads=1).top_k(held[0], k=3)
    assert items.shape == scores.shape == (60, 3)
    assert (items.dtype, scores.dtype) == (np.int64, np.float32)
    hits = np.take_along_axis(held[1].todense() > 0, items, axis=1).mean()
    assert hits > 0.5
    assert not np.take_along_axis(held[0].todense() > 0, items, axis=1).any()  # owned items are left out


def test_the_same_from_every_kind_of_input(tmp_path, data):
    train = clustered(200, 1, 6)
    write_data(tmp_path / "both.nc", Data(train.sets))
    for data_set in train.sets:
        write_data(tmp_path / f"{data_set.name}.nc", Data((data_set,)))
    dense = [matrix.todense() for matrix in data]
    inputs, targets = train.sets
    ways: list[tuple[Any, Any]] = [
        (tmp_path / "both.nc", None),
        (str(tmp_path / "both.nc"), None),
        (tmp_path / "input.nc", tmp_path / "output.nc"),
        ([tmp_path / "input.nc", tmp_path / "output.nc"], None),
        ({"input": data[0], "output": data[1]}, None),
        ({"input": tmp_path / "input.nc"}, {"output": data[1]}),
        (Data(train.sets), None),
        (inputs, targets),
        (data[0].tocoo(), data[1].tocsc()),
        (data[0], dense[1]),
        (dense[0], dense[1]),
    ]
    networks = [Trainer(small(), **QUICK).fit(*way) for way in ways]
    for network in networks[:-2]:
        np.testing.assert_array_equal(network.weights("In", "Hidden"), networks[0].weights("In", "Hidden"))
    for network in networks[-2:]:
        np.testing.assert_allclose(network.weights("In", "Hidden"), networks[0].weights("In", "Hidden"), atol=1e-4)
    assert networks[0].features("Out") == train.sets[1].features
    assert networks[-1].features("Out") == ()


def test_an_autoencoder_has_its_inputs_as_targets(data):
    one = Trainer(small(), **QUICK).fit(data[0])
    other = Trainer(small(), **QUICK).fit(data[0], data[0])
    np.testing.assert_array_equal(one.weights("Hidden", "Out"), other.weights("Hidden", "Out"))


def test_history_and_the_best_epoch(data, held):
    trainer = Trainer(small(), **QUICK | {"epochs": 30, "learning_rate": 0.1, "stop_after": 2})
    network = trainer.fit(*data, valid=held, metric="loss")
    values = [epoch.value for epoch in trainer.history]
    best = int(np.argmin(values)) + 1
    assert trainer.history[-1].epoch == best + 2 < 30
    short = Trainer(small(), **QUICK | {"epochs": best, "learning_rate": 0.1}).fit(*data)
    np.testing.assert_array_equal(short.weights("In", "Hidden"), network.weights("In", "Hidden"))


def test_save_load_predict(tmp_path, data, held, trained):
    trained.save(tmp_path / "model.nc")
    loaded = Network.load(tmp_path / "model.nc")
    for one, other in zip(
        Predictor(trained).top_k(held[0], 40, None), Predictor(loaded).top_k(held[0], 40, None), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(
        Predictor(trained).embed(held[0], "Hidden"), Predictor(loaded).embed(held[0], "Hidden")
    )
    np.testing.assert_array_equal(loaded.biases("Hidden", "Out"), trained.biases("Hidden", "Out"))
    assert repr(loaded) == "<nnlib.Network In 40 - Hidden 12 - Out 40>"
    assert repr(small()) == "<nnlib.Network In auto - Hidden 12 - Out auto, not trained>"


def test_training_goes_on_from_a_trained_network(data, trained):
    before = trained.weights("In", "Hidden")
    more = Trainer(trained, **QUICK | {"epochs": 1, "learning_rate": 1e-4}).fit(*data)
    after = more.weights("In", "Hidden")
    assert 0 < np.abs(after - before).max() < 0.01
    np.testing.assert_array_equal(trained.weights("In", "Hidden"), before)  # the one given stays as it is


def test_other_units_than_the_network_was_trained_on_are_refused(data):
    train = clustered(50, 1, 6)
    network = Trainer(small(), **QUICK | {"epochs": 1}).fit(Data(train.sets))
    names = tuple(reversed(train.sets[0].features))
    other = Data(tuple(dataclasses.replace(data_set, features=names) for data_set in train.sets))
    with pytest.raises(DataError, match='other units than layer "In" was trained on'):
        Trainer(network, **QUICK).fit(other)


def test_outputs_of_classes_and_of_a_regression():
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 2)).astype(np.float32)
    kind = (x[:, 0] > 0) * 2 + (x[:, 1] > 0)
    raw = {
        "Layers": [
            {"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "x"},
            {"Name": "Hidden", "Kind": "Hidden", "N": 16, "Activation": "Tanh"},
            {"Name": "Out", "Kind": "Output", "N": "auto", "DataSet": "y", "Activation": "SoftMax"},
        ]
    }
    settings = {**QUICK, "epochs": 60}
    for targets in (np.eye(4)[kind], sparse.csr_array(np.eye(4)[kind])):
        network = Trainer(Network.from_json(raw), **settings).fit(x, targets)
        values = Predictor(network).outputs(x)
        np.testing.assert_allclose(values.sum(axis=1), 1, rtol=1e-5)
        assert (values.argmax(axis=1) == kind).mean() > 0.95
        items, scores = Predictor(network).top_k(x, k=9)
        assert items.shape == (400, 4)
        np.testing.assert_array_equal(items[:, 0], values.argmax(axis=1))
        np.testing.assert_allclose(scores[:, 0], values.max(axis=1), rtol=1e-6)
    raw["ErrorFunction"] = "L2"
    raw["Layers"][2]["Activation"] = "Linear"
    y = np.stack([x[:, 0] * x[:, 1], x[:, 0] - 2], axis=1)
    found = Predictor(Trainer(Network.from_json(raw), **settings).fit(x, y, valid=(x, y), metric="loss")).outputs(x)
    assert np.sqrt(((found - y) ** 2).mean()) < 0.2


def test_several_inputs_and_outputs(data):
    raw = {
        "Layers": [
            {"Name": "A", "Kind": "Input", "N": "auto", "DataSet": "a"},
            {"Name": "B", "Kind": "Input", "N": "auto", "DataSet": "b"},
            {"Name": "Hidden", "Kind": "Hidden", "N": 8, "Source": ["A", "B"], "Activation": "Relu"},
            {"Name": "C", "Kind": "Output", "N": "auto", "DataSet": "c", "Source": "Hidden"},
            {"Name": "D", "Kind": "Output", "N": "auto", "DataSet": "d", "Source": "Hidden"},
        ]
    }
    age = np.linspace(0, 1, 200)[:, None]
    inputs, targets = {"a": data[0], "b": age}, {"c": data[1], "d": (age > 0.5).astype(float)}
    network = Trainer(Network.from_json(raw), **QUICK).fit(inputs, targets)
    predictor = Predictor(network)
    assert predictor.outputs(inputs, "D").shape == (200, 1)
    assert predictor.top_k(inputs, 5)[0].shape == (200, 5)
    with pytest.raises(DataError, match='inputs: one data set where the network takes 2, legal: a dict of "a", "b"'):
        predictor.outputs(data[0])
    with pytest.raises(DataError, match='no layer takes a data set "e", legal: "a", "b", "c", "d"'):
        predictor.outputs({"a": data[0], "e": age})
    with pytest.raises(DataError, match='no data set "b", which the model takes'):
        predictor.outputs({"a": data[0]})


def test_exclusions(data, trained):
    predictor = Predictor(trained, threads=1)
    everything = predictor.top_k(data[0], 40, None)[0]
    assert (np.sort(everything, axis=1) == np.arange(40)).all()
    own = predictor.top_k(data[0], 40, "inputs")
    matrix = predictor.top_k(data[0], 40, data[0])
    np.testing.assert_array_equal(own[0], matrix[0])
    assert (own[0] == -1).sum() == data[0].nnz == np.isneginf(own[1]).sum()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"k": 0}, "k: 0 is not legal, legal: a whole number from 1"),
        ({"k": 2.5}, "k: 2.5 is not legal"),
        ({"exclude": "input"}, 'exclude: "input" is not legal, legal: auto, inputs, None, a sparse matrix'),
        ({"exclude": np.ones((200, 40))}, "exclude: ndarray is not legal"),
        ({"exclude": sparse.csr_array((200, 39))}, "exclude: a matrix of 200 rows and 39 columns, legal: 200 and 40"),
        ({"layer": "Hidden"}, 'layer: "Hidden" is no Output layer of this network, legal: "Out"'),
    ],
)
def test_wrong_arguments_of_top_k(data, trained, keys, message):
    with pytest.raises(NnlibError) as caught:
        Predictor(trained).top_k(data[0], **keys)
    assert message in str(caught.value)


def test_inputs_that_are_other_items_cannot_be_left_out(data):
    network = Trainer(small(), **QUICK | {"epochs": 1}).fit(data[0], data[1][:, :30])
    assert Predictor(network).top_k(data[0], 30)[0].min() >= 0
    with pytest.raises(NnlibError, match='no sparse Input layer has the same items as "Out", legal: None'):
        Predictor(network).top_k(data[0], 30, "inputs")


def test_settings_are_those_of_the_contract():
    given = inspect.signature(Trainer).parameters
    for field in dataclasses.fields(TrainSettings):
        assert given[field.name].default == field.default, field.name
        assert given[field.name].annotation == field.type


@pytest.mark.parametrize(
    ("keys", "messages"),
    [
        ({"epochs": 0, "optimizer": "adma"}, ["epochs: 0 is not legal", "optimizer: 'adma'", 'did you mean "adam"']),
        ({"threads": 0}, ["threads: 0 is not legal, legal: a whole number from 1"]),
        ({"compat": "dsstne"}, ["compat: the network was read without it"]),
    ],
)
def test_wrong_settings(keys, messages):
    with pytest.raises(NnlibError) as caught:
        Trainer(small(), **keys)
    assert all(message in str(caught.value) for message in messages), str(caught.value)


def test_numbers_of_numpy_are_numbers(data):
    network = Network.from_json(RAW, {"hidden": np.int64(7)})
    settings = QUICK | {"epochs": np.int32(1), "learning_rate": np.float32(0.01)}
    assert Trainer(network, **settings).fit(*data).spec.layers[1].units == 7


def test_wrong_networks(tmp_path):
    with pytest.raises(NnlibError, match='"\\$hidden" has no value'):
        Network.from_json(RAW)
    with pytest.raises(NnlibError, match="hyperparameter 'hiden' is used nowhere"):
        Network.from_json(RAW, {"hidden": 3, "hiden": 4})
    with pytest.raises(NnlibError, match="compat: 'tensorflow' is not legal"):
        Network.from_json(RAW, {"hidden": 3}, compat="tensorflow")
    with pytest.raises(NnlibError, match='Lyers: unknown key, did you mean "Layers"'):
        Network.from_json({"Lyers": []})
    with pytest.raises(FileNotFoundError):
        Network.from_json(tmp_path / "none.json")
    (tmp_path / "n.json").write_text("{")
    with pytest.raises(NnlibError, match=r"n.json:1:2: not JSON"):
        Network.from_json(str(tmp_path / "n.json"))
    with pytest.raises(NnlibError, match="no weights yet; train it with Trainer"):
        small().save(tmp_path / "m.nc")
    with pytest.raises(NnlibError, match="no weights yet"):
        Predictor(small())


def test_compat():
    layers = {"Layers": [*RAW["Layers"][:1], {"N": 3, "Activation": "SELU"}, *RAW["Layers"][2:]]}
    assert Network.from_json(layers, compat="dsstne").spec.layers[1].alpha == 1
    assert Network.from_json(layers).spec.layers[1].alpha == pytest.approx(1.673, abs=1e-3)


def test_wrong_data(data, held, trained, tmp_path):
    with pytest.raises(DataError, match="different numbers of examples"):
        Trainer(small(), **QUICK).fit(data[0], data[1][:50])
    with pytest.raises(DataError, match="width 39"):
        Trainer(small(), **QUICK).fit(*data, valid=(held[0][:, :39], held[1]))
    with pytest.raises(NnlibError, match=r"metric: ndcg@20 needs sparse targets, 'output' is dense; legal: loss"):
        Trainer(small(), **QUICK).fit(data[0], data[1].todense(), valid=(held[0], held[1].todense()))
    with pytest.raises(NnlibError, match="metric 'ndgc@3' is not legal"):
        Trainer(small(), **QUICK).fit(*data, valid=held, metric="ndgc@3")
    with pytest.raises(DataError, match="40 units"):
        Predictor(trained).outputs(data[0][:, :39])
    with pytest.raises(DataError, match="an array of 1 dimensions is not legal"):
        Predictor(trained).outputs(np.ones(40))
    with pytest.raises(NnlibError, match='layer "In" is an Input'):
        Predictor(trained).embed(data[0], "In")
    with pytest.raises(NnlibError, match='no weights lead from "In" to "Out"'):
        trained.weights("In", "Out")
    rows = clustered(10, 1, 6).sets
    write_data(tmp_path / "misspelt.nc", Data((rows[0], dataclasses.replace(rows[1], name="outptu"))))
    with pytest.raises(DataError, match='no data set "output" for the targets, legal: "input", "outptu"'):
        Trainer(small(), **QUICK).fit(tmp_path / "misspelt.nc")
    same = {"Layers": [*RAW["Layers"][:1], {"N": 3}, {**RAW["Layers"][2], "DataSet": "input"}]}
    with pytest.raises(DataError, match='targets: data set "input" is that of an Input layer too'):
        Trainer(Network.from_json(same), **QUICK).fit(*data)


def test_divergence(data):
    with pytest.raises(DivergedError):
        Trainer(small(), **QUICK | {"optimizer": "sgd", "learning_rate": 1e30}).fit(*data)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_nothing(data, held, trained, threads):
    other = Trainer(small(), **QUICK | {"threads": threads}).fit(*data, valid=held, metric="p@3")
    np.testing.assert_array_equal(other.weights("In", "Hidden"), trained.weights("In", "Hidden"))


def test_a_training_that_was_interrupted_goes_on(tmp_path, data, held, trained, monkeypatch, capfd):
    """Ctrl-C after ten batches; the second call ends with the bits of a training that was left alone."""
    after, count = FolderCheckpoints.after_batch, 0

    def interrupted(self: Checkpoints, training: Training) -> None:
        nonlocal count
        count += 1
        if count == 10:
            import signal

            signal.raise_signal(signal.SIGINT)
        after(self, training)

    monkeypatch.setattr(FolderCheckpoints, "after_batch", interrupted)
    keys = {**QUICK, "checkpoint": tmp_path / "work"}
    with pytest.raises(KeyboardInterrupt):
        Trainer(small(), **keys).fit(*data, valid=held, metric="p@3")
    assert "saving after this batch" in capfd.readouterr().err
    network = Trainer(small(), **keys).fit(*data, valid=held, metric="p@3")
    assert "resumed from checkpoint.nc: epoch 2, batch 3" in capfd.readouterr().err
    assert count < 60
    np.testing.assert_array_equal(network.weights("Hidden", "Out"), trained.weights("Hidden", "Out"))
    assert (tmp_path / "work" / "checkpoint.nc").stat().st_size > 0
    network.save(tmp_path / "model.nc")
    assert (tmp_path / "work" / "checkpoint.nc").stat().st_size == 0  # nothing is left to go on from


def test_the_checkpoint_of_another_training_is_not_lost(tmp_path, data, monkeypatch, capsys):
    monkeypatch.setattr(FolderCheckpoints, "after_batch", FolderCheckpoints.save)
    keys = {**QUICK, "epochs": 1, "checkpoint": tmp_path}
    trainer = Trainer(small(), **keys)
    network = trainer.fit(*data)
    saved = (tmp_path / "checkpoint.nc").read_bytes()
    assert saved  # the network is nowhere yet
    other = data[0][:199], data[1][:199]
    with pytest.raises(NnlibError, match="it would be lost, legal: another folder for the checkpoints, or"):
        Trainer(small(), **keys).fit(*other)
    assert (tmp_path / "checkpoint.nc").read_bytes() == saved
    (tmp_path / "checkpoint.nc").write_bytes(saved[:-100])  # torn: nobody's any more
    (tmp_path / "checkpoint.previous.nc").unlink()
    Trainer(small(), **keys).fit(*other)
    assert "checkpoint not used" in capsys.readouterr().err
    theirs = (tmp_path / "checkpoint.nc").read_bytes()
    network.save(tmp_path / "model.nc")  # of the first training, whose checkpoint is gone
    assert (tmp_path / "checkpoint.nc").read_bytes() == theirs


def test_the_next_fit_has_the_folder_for_itself(tmp_path, data, monkeypatch, capsys):
    monkeypatch.setattr(FolderCheckpoints, "after_batch", FolderCheckpoints.save)
    trainer = Trainer(small(), **QUICK | {"epochs": 1}, checkpoint=tmp_path)
    trainer.fit(*data)
    trainer.fit(data[0][:199], data[1][:199])
    assert capsys.readouterr().err == ""


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_training(tmp_path, data, monkeypatch, capsys):
    def full(path: Any, content: Any) -> None:
        raise OSError(28, "the disk is full", str(path))

    trainer = Trainer(small(), **QUICK | {"epochs": 2}, checkpoint=tmp_path)
    monkeypatch.setattr(
        "nnlib.training.fit.keeper_of", lambda task, folder, stop: FolderCheckpoints(folder, "", stop, 0.0)
    )
    monkeypatch.setattr("nnlib.util.netcdf.write", full)
    trainer.fit(*data)
    assert len(trainer.history) == 2
    assert "no checkpoint written, the training goes on: " in capsys.readouterr().err

    def stopped(self: FolderCheckpoints, training: Training) -> None:
        self._stop.requested = True
        Checkpoints.after_batch(self, training)

    monkeypatch.setattr(FolderCheckpoints, "after_batch", stopped)
    with pytest.raises(OSError, match="the disk is full"):
        trainer.fit(*data)


EMPTY: Any = sparse.csr_array((0, ITEMS))
WRONG: list[tuple[Any, str]] = [
    (lambda _: Trainer(small(), **QUICK).fit(EMPTY, EMPTY), "inputs: 0 examples are not legal, legal: 1 or more"),
    (lambda _: Trainer(small(), **QUICK).fit(EMPTY), "0 examples"),
    (lambda _: Trainer(small(), **QUICK).fit(np.eye(3), np.eye(3), (np.eye(3)[:0], np.eye(3)[:0])), "0 examples"),
    (lambda _: Trainer(small(), **QUICK).fit([[1, 2], [3]]), "'input': rows of different lengths are not legal"),
    (lambda _: Trainer(small(), **QUICK).fit(sparse.coo_array(np.ones(6))), "a sparse array of 1 dimensions"),
    (lambda _: Trainer(small(), **QUICK).fit(np.eye(3), metric=3), "metric: 3 is not legal"),  # type: ignore[arg-type]
    (lambda _: Network.from_json([1]), "network: list is not legal, legal: a path or a dict"),  # type: ignore[arg-type]
    (lambda _: Network.from_json(None), "network: NoneType is not legal"),  # type: ignore[arg-type]
    (lambda _: Network.from_json({1: 2}), "network: 1: unknown key"),  # type: ignore[dict-item]
    (lambda _: Network.from_json({"Layers": [{1: 2}]}), r"Layers\[0\]\.1: unknown key"),
    (lambda _: Network.from_json({"Name": object()}), "network: object is not legal in a network; legal: dicts"),
    (lambda _: Network.from_json(RAW, [1]), "hyperparameters: list is not legal"),  # type: ignore[arg-type]
    (lambda _: Trainer("net.json"), "network: str is not legal, legal: an nnlib.Network"),  # type: ignore[arg-type]
    (lambda _: Predictor("net.nc"), "network: str is not legal, legal: an nnlib.Network"),  # type: ignore[arg-type]
    (lambda trained: Predictor(trained).embed(np.eye(ITEMS), 1), 'layer: 1 is not legal, legal: "In"'),
    (lambda trained: Predictor(trained).embed(np.eye(ITEMS), None), "is an Input"),
    (lambda trained: trained.weights([], "Out"), r"layer: \[\] is not legal"),
    (lambda trained: trained.save("."), "is a folder, legal: the name of a file"),
    (lambda trained: trained.save(1), "path: int is not legal, legal: a path"),
    (lambda _: Network.load(None), "path: NoneType is not legal"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_what_is_wrong_is_told(number, trained):
    call, words = WRONG[number]
    with pytest.raises(NnlibError, match=words):
        call(trained)


def test_numbers_of_numpy_in_a_network():
    raw = {**RAW, "Layers": tuple({**layer, "N": np.int64(7)} for layer in RAW["Layers"])}
    assert [layer.units for layer in Network.from_json(raw).spec.layers] == [7, 7, 7]


def test_progress(data, capsys):
    Trainer(small(), **QUICK, progress=True).fit(*data)
    assert "epoch 6/6 loss " in capsys.readouterr().err


def test_weights_in_the_order_of_the_matrix(trained):
    assert trained.weights("In", "Hidden").shape == (ITEMS, 12)
    assert trained.weights("Hidden", "Out").shape == (12, ITEMS)
    assert trained.biases("Hidden", "Out").shape == (ITEMS,)
