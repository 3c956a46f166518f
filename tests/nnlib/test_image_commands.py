"""Image networks by every command, from Python, and in a study's job."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import nnlib
from nnlib import cli
from nnlib.contract import Metric, Status, TrainSettings, trial_from_json
from nnlib.data.file import write_data
from nnlib.data.sets import Data, as_data_set
from nnlib.model.file import read_model
from nnlib.worker import job
from tests.nnlib.image_cases import NORMED, conv, pooled
from tests.nnlib.samples import bits

pytestmark = pytest.mark.slow

SIZE = (12, 12, 2)
CLASSES = ("up left", "up right", "down left", "down right")
NETWORK = {
    "Name": "squares",
    "Layers": [
        {"Name": "Input", "Kind": "Input", "N": "auto", "DataSet": "input"},
        conv("A", "$maps", Activation="Relu", **NORMED),
        pooled("B", "Max", 2, 2, stride=2),
        conv("C", 8, Activation="Relu", KernelStride=[2, 2], **NORMED),
        {"Name": "Output", "Kind": "Output", "N": "auto", "DataSet": "output", "Activation": "SoftMax"},
    ],
}
TRAIN = "train network.json train.nc --set maps=6 --batch 16 --learning-rate 0.01 --epochs 8 --seed 3"


def squares(examples: int, seed: int) -> Data:
    """A bright square at any place in one of four corners, as bytes."""
    random = np.random.default_rng(seed)
    images, corner = random.integers(0, 90, (examples, 2, 12, 12)), random.integers(0, 4, examples)
    for image, n in zip(images, corner, strict=True):
        y, x = 6 * (n // 2) + random.integers(0, 4), 6 * (n % 2) + random.integers(0, 4)
        image[0, y : y + 3, x : x + 3] += 160
    x = as_data_set("input", images.reshape(examples, -1).astype(np.uint8))
    y = as_data_set("output", sparse.csr_array(np.eye(4)[corner]))
    samples = tuple(f"picture {n}" for n in range(examples))
    return Data((dataclasses.replace(x, dimensions=SIZE), dataclasses.replace(y, features=CLASSES)), samples=samples)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    Path("network.json").write_text(json.dumps(NETWORK))
    write_data(Path("train.nc"), squares(160, 1))
    write_data(Path("held.nc"), squares(60, 2))
    return tmp_path


@pytest.fixture
def run(capsys):
    def command(line: str) -> str:
        assert cli.main(line.split()) == 0, capsys.readouterr()
        return capsys.readouterr().out

    return command


def test_every_command(run):
    run(f"{TRAIN} --out model.nc")
    accuracy = next(line for line in run("evaluate model.nc held.nc").splitlines() if line.startswith("accuracy"))
    assert float(accuracy.split()[1]) > 0.9
    first = run("predict model.nc held.nc -k 1").splitlines()[0]
    assert first.startswith("picture 0\t") and first.split("\t")[1].split(",")[0] in CLASSES
    run("embed model.nc held.nc --layer C --out maps.npy")
    maps = np.load("maps.npy")
    assert maps.shape == (60, 8 * 2 * 2) and maps.min() == 0 < maps.max()
    assert "NO" not in run("check-gradients network.json held.nc --set maps=3 --parameters 6")
    run(f"{TRAIN} --out again.nc --threads 2")
    run(f"{TRAIN} --out several.nc --clip 0.5 --accumulate 2 --ema 0.9 --optimizer momentum")
    again, several = (read_model(Path(f"{name}.nc")).network for name in ("again", "several"))
    assert bits(read_model(Path("model.nc")).network) == bits(again) != bits(several)


def test_a_body_is_frozen_and_its_head_replaced(run):
    run(f"{TRAIN} --out model.nc")
    raw = json.loads(Path("network.json").read_text()) | {"FineTuning": {"Freeze": ["A", "C"], "Replace": ["Output"]}}
    Path("tuned.json").write_text(json.dumps(raw))
    run(TRAIN.replace("network.json", "tuned.json") + " --init model.nc --out tuned.nc")
    before, after = (dict(read_model(Path(f"{name}.nc")).network.arrays()) for name in ("model", "tuned"))
    changed = {name for name, array in before.items() if (array != after[name]).any()}
    assert changed == {"weights2", "bias2"}
    accuracy = next(line for line in run("evaluate tuned.nc held.nc").splitlines() if line.startswith("accuracy"))
    assert float(accuracy.split()[1]) > 0.9


def test_a_logistic_regression_on_pixels_is_a_value_of_a_source(run):
    """The body is there for the network that reads it, and stays as it was for the one that does not."""
    run(f"{TRAIN} --out model.nc")
    raw = json.loads(json.dumps(NETWORK))
    raw["Layers"][-1]["Source"] = "$reads"
    Path("network.json").write_text(json.dumps(raw))
    run(f"{TRAIN} --set reads=C --out same.nc")
    run(f"{TRAIN} --set reads=Input --init model.nc --out pixels.nc")
    body, same, pixels = (dict(read_model(Path(f"{name}.nc")).network.arrays()) for name in ("model", "same", "pixels"))
    assert all(np.array_equal(body[name], same[name]) for name in body) and len(same) == len(body)
    assert pixels["weights2"].size == 4 * 12 * 12 * 2
    assert all(np.array_equal(body[name], pixels[name]) for name in ("weights0", "bias0", "weights1", "bias1"))
    accuracy = next(line for line in run("evaluate pixels.nc held.nc").splitlines() if line.startswith("accuracy"))
    assert float(accuracy.split()[1]) > 0.5  # of four classes


def test_from_python():
    pictures, corners = (data_set.rows for data_set in squares(160, 1).sets)
    x, y = pictures.floats(True, np.float32), np.eye(4, dtype=np.float32)[corners.indices]
    raw = json.loads(json.dumps(NETWORK))
    raw["Layers"][0]["N"] = list(SIZE)
    network = nnlib.Network.from_json(raw, {"maps": 6})
    trained = nnlib.Trainer(network, epochs=8, batch=16, learning_rate=0.01, threads=2).fit(x, y)
    found = nnlib.Predictor(trained).outputs(x)
    assert (found.argmax(axis=1) == y.argmax(axis=1)).mean() > 0.95
    assert nnlib.Predictor(trained).embed(x[:5], "B").shape == (5, 6 * 6 * 6)


def test_in_a_job(make_trial):
    trial_file = make_trial(network=NETWORK, hyperparameters={"maps": 6}, metric=Metric("p@1"))
    place = trial_file.parent
    write_data(place / "train.nc", squares(160, 1))
    write_data(place / "held.nc", squares(60, 2))
    trial = trial_from_json(trial_file.read_text())
    settings = TrainSettings(epochs=8, batch=16, learning_rate=0.01)
    (place / "log.jsonl").touch()
    found = job.run(dataclasses.replace(trial, train=settings, sha256={}), place)
    assert (found.status, found.reason) == (Status.OK, "")
    assert found.value == found.metrics["p@1"] > 0.9
