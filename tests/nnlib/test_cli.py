"""Every command from its arguments to its files, exit codes and messages."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnlib import cli
from nnlib.commands import _arguments
from nnlib.data.file import write_data
from nnlib.data.sets import Data, as_data_set
from nnlib.data.stream import open_data
from nnlib.epoch_log import read_epochs
from nnlib.model.file import read_model
from nnlib.spec.metric_names import METRICS
from nnlib.util import netcdf
from nnlib.util.terminal import print_table, show_count
from tests.nnlib.isolation import own_process
from tests.nnlib.samples import clustered

pytestmark = pytest.mark.slow

NETWORK: dict[str, Any] = {
    "Name": "small",
    "Layers": [
        {"Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": True},
        {"Kind": "Hidden", "N": "$hidden", "Activation": "Relu", "pDropout": 0.1},
        {"Kind": "Output", "N": "auto", "DataSet": "output", "Activation": "Sigmoid"},
    ],
}
TRAIN = "train network.json train.nc --set hidden=12 --batch 32 --learning-rate 0.02 --epochs 4 --out model.nc"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """Work in a folder with a network and data whose examples have names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    Path("network.json").write_text(json.dumps(NETWORK))
    for name, count, seed in (("train", 200, 1), ("valid", 60, 2)):
        samples = tuple(f"{name} {n}" for n in range(count))
        write_data(Path(f"{name}.nc"), dataclasses.replace(clustered(count, seed, 6), samples=samples))
    return tmp_path


@pytest.fixture
def nnlib(capsys):
    """Return what runs a command line in this process and returns its exit code, stdout and stderr."""

    def run(line: str) -> tuple[int, str, str]:
        try:
            code = cli.main(line.split())
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def model(nnlib) -> Path:
    assert nnlib(TRAIN)[0] == 0
    return Path("model.nc")


def lines_of(text: str) -> dict[str, list[tuple[str, float]]]:
    """Read DSSTNE's text of predictions."""
    found = {}
    for line in text.splitlines():
        sample, _, pairs = line.partition("\t")
        assert pairs.endswith(":")
        found[sample] = [(pair.split(",")[0], float(pair.split(",")[1])) for pair in pairs[:-1].split(":")]
    return found


def owned(name: str) -> list[set[str]]:
    rows = netcdf.read(Path(name)).variables
    start, end, index = (rows[f"sparse{part}0"].values for part in ("Start", "End", "Index"))
    return [{f"item{n}" for n in index[a:b]} for a, b in zip(start, end, strict=True)]


def test_help(nnlib):
    code, out, _ = nnlib("--help")
    assert code == 0
    for group, names in cli.GROUPS.items():
        assert f"{group}:" in out
        for name in names:
            assert f"\n  {name} " in out
            code, text, _ = nnlib(f"{name} --help")
            assert code == 0
            assert name == "import" or "examples:\n  nnlib " in text
    assert "143 training stopped" in out


def test_help_needs_no_heavy_library():
    code = (
        "import sys; from nnlib import cli; cli.build_parser();"
        "heavy = {'numpy', 'scipy', 'netCDF4', 'rich', 'numba'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_train(nnlib):
    code, out, err = nnlib(f"{TRAIN} --valid valid.nc --metric p@3 --verbose")
    assert (code, out) == (0, "")
    assert "epoch 4/4 loss " in err
    assert " p@3 0." in err
    assert "model.nc: 1012 parameters after 4 epochs, the best epoch is " in err
    assert "Input Input0: 40 units, 'input' is sparse boolean; never made dense" in err
    assert "from Input0: sums of weight rows, and touched rows alone are updated" in err
    assert "Output Output2: 40 units, Sigmoid, CrossEntropy; in blocks of 40 units, never all at once" in err
    assert err.index("Output Output2") < err.index("epoch 1/4")
    found = read_model(Path("model.nc"))
    assert found.network.spec.layers[1].units == 12
    assert found.outputs[:2] == ("item0", "item1")
    assert found.region == "Côte d'Ivoire"


def test_train_twice_gives_the_same_file(nnlib, model):
    first = model.read_bytes()
    assert nnlib(TRAIN.replace("model.nc", "again.nc") + " --threads 2")[0] == 0
    assert Path("again.nc").read_bytes() == first


def test_train_on_files_of_the_same_examples(nnlib, model):
    data = clustered(200, 1, 6)
    samples = tuple(f"train {n}" for n in range(200))
    for data_set in data.sets:
        write_data(Path(f"{data_set.name}.nc"), Data((data_set,), samples, data.region))
    line = TRAIN.replace("train.nc", "input.nc output.nc").replace("model.nc", "other.nc")
    assert nnlib(line)[0] == 0
    assert Path("other.nc").read_bytes() == model.read_bytes()
    write_data(Path("output.nc"), Data((data.sets[1],), (*samples[1:], "x"), data.region))
    code, _, err = nnlib(line)
    assert code == 4
    assert 'output.nc: example 0 is "train 1", "train 0" in input.nc; files with different data sets must have' in err
    code, _, err = nnlib(line.replace("output.nc", "train.nc"))
    assert code == 4
    assert 'train.nc: data set "input" is in input.nc too, beside others' in err


def test_train_on_files_that_follow_one_another(nnlib):
    parts = [clustered(100, 1, 6), clustered(100, 5, 6)]
    for n, part in enumerate(parts):
        write_data(Path(f"part{n}.nc"), part)
    code, _, err = nnlib(TRAIN.replace("train.nc", "part0.nc part1.nc"))
    assert (code, "parameters after 4 epochs" in err) == (0, True)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ("--epochs 0", 4, "option epochs: 0 is not legal, legal: a whole number from 1"),
        ("--epochs two", 2, "argument --epochs: invalid int value: 'two'"),
        ("--optimizer adan --l2 -1", 4, "option l2: -1.0 is not legal"),
        ("--set hiden=3", 4, "network.json: hyperparameter 'hiden' is used nowhere"),
        ("--set epochs=3", 4, "is used nowhere, legal: the option --epochs"),
        ("--set hidden", 2, "'hidden' is not legal, legal: name=value, such as hidden=128"),
        ("--set hidden=0", 4, "network.json: Layers[1].N: 0 is not legal"),
        ("--metric p@3", 2, "--metric is measured on --valid DATA.nc"),
        ("--valid valid.nc --metric q@3", 4, "option metric: metric 'q@3' is not legal"),
        ("--valid none.nc", 4, "none.nc: No such file or directory"),
        ("--out nowhere/model.nc", 4, "nowhere/model.nc: there is no folder nowhere; make it first"),
        ("--log model.nc", 2, "--log: seen 'model.nc', which is --out; legal: the name of another file"),
        ("--out .", 4, "--out: . is a folder, legal: the name of a file in it"),
        (
            "--out train.nc/model.nc",
            4,
            "--out: train.nc is a file, not a folder; legal: the name of a file in a folder",
        ),
        ("--checkpoint train.nc", 4, "--checkpoint: train.nc is a file, legal: a folder"),
        ("--checkpoint train.nc/work", 4, "--checkpoint: train.nc is a file, legal: a folder"),
        ("--checkpoint-every 5m", 2, "--checkpoint-every needs --checkpoint DIR"),
        ("--checkpoint work --checkpoint-every 5", 2, "'5' is not legal, legal: a number with its unit"),
        ("--threads 0", 2, "'0' is not legal, legal: a whole number from 1"),
        ("--optimizer sgd --learning-rate 1e30", 3, "lower learning_rate"),
        ("--trial trial.json", 2, "--trial says all of network"),
        ("--compat tensorflow", 4, "option compat: 'tensorflow' is not legal"),
    ],
)
def test_wrong_training(nnlib, change, code, message):
    found, _, err = nnlib(f"{TRAIN} {change}")
    assert found == code
    assert message in err
    assert "Traceback" not in err
    assert not Path("model.nc").exists()


def test_incomplete_training(nnlib):
    for line in ("train", "train network.json", "train network.json train.nc"):
        code, _, err = nnlib(line)
        assert code == 2
        assert "missing: " in err


@own_process
def test_wrong_files(nnlib, model):
    Path("broken.nc").write_bytes(model.read_bytes()[:5000])
    Path("broken.json").write_text("{")
    Path("empty.nc").touch()
    Path("zipped.nc").write_bytes(gzip.compress(b"x"))
    for line, message in [
        (TRAIN.replace("train.nc", "broken.nc"), "broken.nc: not a readable NetCDF file"),
        (
            TRAIN.replace("train.nc", "model.nc").replace("--out model", "--out new"),
            "model.nc: is a model, legal: data, such as `nnlib import` writes",
        ),
        (TRAIN.replace("train.nc", "empty.nc"), "empty.nc: not a readable NetCDF file (it is empty); make or copy it"),
        (TRAIN.replace("train.nc", "network.json"), "network.json: not a readable NetCDF file (it is a text file);"),
        (TRAIN.replace("train.nc", "zipped.nc"), "zipped.nc: not a readable NetCDF file (it is gzipped);"),
        (TRAIN.replace("train.nc", "."), ".: Is a directory, legal: a file"),
        (TRAIN.replace("network.json", "empty.nc"), "empty.nc: empty, legal: a network as DSSTNE's JSON"),
        (TRAIN.replace(" --set hidden=12", ""), "nnlib's option --set hidden=VALUE gives it one"),
        (TRAIN.replace("network.json", "broken.json"), "broken.json:1:2: not JSON"),
        (TRAIN.replace("network.json", "none.json"), "none.json: No such file"),
        ("predict train.nc valid.nc", "train.nc: is data, legal: a model, such as `nnlib train` writes"),
        ("predict model.nc model.nc", "model.nc: is a model, legal: data, such as `nnlib import` writes"),
        ("predict broken.nc valid.nc", "broken.nc: not a readable NetCDF file"),
        ("evaluate none.nc valid.nc", "none.nc: No such file or directory"),
        ("diff model.nc train.nc", "model.nc is a model, train.nc is data; legal: two of a kind"),
        ("inspect network.json", "network.json"),
    ]:
        code, _, err = nnlib(line)
        assert code == 4, line
        assert message in err
        assert "Traceback" not in err


def test_predict_text(nnlib, model):
    code, out, err = nnlib("predict model.nc valid.nc -k 5")
    assert code == 0
    assert "60 examples in " in err
    found = lines_of(out)
    assert list(found) == [f"valid {n}" for n in range(60)]
    for (name, pairs), own in zip(found.items(), owned("valid.nc"), strict=True):
        scores = [score for _, score in pairs]
        assert len(pairs) == 5, name
        assert scores == sorted(scores, reverse=True)
        assert not own & {item for item, _ in pairs}
    assert nnlib("predict model.nc valid.nc -k 5 --out best.txt")[0] == 0
    assert Path("best.txt").read_text() == out
    assert lines_of(nnlib("predict model.nc valid.nc -k 5 --exclude input")[1]) == found
    everything = lines_of(nnlib("predict model.nc valid.nc -k 1000 --exclude none --score-format 4.5f")[1])
    assert {len(pairs) for pairs in everything.values()} == {40}
    left = lines_of(nnlib("predict model.nc valid.nc -k 40")[1])
    assert [len(pairs) for pairs in left.values()] == [40 - len(own) for own in owned("valid.nc")]


def test_predict_netcdf(nnlib, model):
    assert nnlib("predict model.nc valid.nc -k 40 --out best.nc")[0] == 0
    content = netcdf.read(Path("best.nc")).variables
    items = content["items"].values.reshape(60, 40)
    scores = content["scores"].values.reshape(60, 40)
    assert (items.dtype, scores.dtype) == (np.int32, np.float32)
    assert content["samples"].values[3] == "valid 3"
    assert content["features"].values[7] == "item7"
    text = lines_of(nnlib("predict model.nc valid.nc -k 40 --score-format %.9g")[1])
    for n, pairs in enumerate(text.values()):
        some = items[n] >= 0
        assert [f"item{i}" for i in items[n][some]] == [item for item, _ in pairs]
        np.testing.assert_allclose(scores[n][some], [score for _, score in pairs], rtol=1e-7)
        assert np.isneginf(scores[n][~some]).all()


def test_every_command_can_be_quiet_and_verbose(nnlib, model):
    before = model.read_bytes()
    assert nnlib(f"{TRAIN} --quiet") == (0, "", "")
    assert model.read_bytes() == before
    code, out, err = nnlib("predict model.nc valid.nc -k 2 --exclude none -q")
    assert (code, err) == (0, "") and len(lines_of(out)) == 60
    code, quiet, _ = nnlib("predict model.nc broken.nc -q")
    assert code == 4 and not quiet
    code, _, err = nnlib("evaluate model.nc valid.nc --verbose")
    assert code == 0 and re.search(r"\d\.\d\d s  in all: nnlib evaluate", err)
    for names in cli.GROUPS.values():
        for name in names:
            text = nnlib(f"{name} --help")[1]
            assert "-q, --quiet" in text and "-v, --verbose" in text
    assert nnlib(f"{TRAIN} -q -v")[0] == 2


def test_data_that_stay_in_their_file(nnlib, model, monkeypatch):
    """What is larger than memory is read in blocks; all that is written is the same."""
    lines = [
        "predict model.nc valid.nc -k 5",
        "predict model.nc valid.nc -k 5 --exclude valid.nc",
        "evaluate model.nc valid.nc",
    ]
    loaded = [nnlib(line) for line in lines]
    monkeypatch.setattr("nnlib.data.sources.open_data", lambda paths: open_data(paths, limit_bytes=0, cache_bytes=1))
    assert [nnlib(line)[:2] for line in lines] == [(0, out) for _, out, _ in loaded]
    before = model.read_bytes()
    assert nnlib(TRAIN)[0] == 0
    assert model.read_bytes() == before


def test_predict_filters_and_exclusions(nnlib, model):
    plain = lines_of(nnlib("predict model.nc valid.nc -k 40 --exclude none --score-format %.9g")[1])
    [first, second, *_] = [item for item, _ in plain["valid 0"]]
    Path("filter.txt").write_text(f"valid 0\t{first}:{second},0.5\nnobody\titem1,2\n")
    code, out, err = nnlib("predict model.nc valid.nc -k 40 --exclude none --filter filter.txt --score-format %.9g")
    assert code == 0
    assert "nnlib: filter.txt: 1 unknown samples and 0 unknown features ignored" in err
    found = lines_of(out)
    scores, before = dict(found["valid 0"]), dict(plain["valid 0"])
    assert scores[first] == 0
    assert scores[second] == pytest.approx(before[second] / 2)
    assert found["valid 0"][-1][0] == first
    assert found["valid 1"] == plain["valid 1"]
    Path("sold.txt").write_text(f"valid 0\t{first},3:{second}\n")
    sold = lines_of(nnlib("predict model.nc valid.nc -k 40 --exclude sold.txt --score-format %.9g")[1])
    assert sold["valid 0"] == plain["valid 0"][2:]
    assert sold["valid 1"] == plain["valid 1"]
    other = lines_of(nnlib("predict model.nc valid.nc -k 40 --exclude valid.nc --score-format %.9g")[1])
    assert {len(pairs) for pairs in other.values()} == {31}  # neither inputs nor targets


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ("-k 0", 2, "'0' is not legal, legal: a whole number from 1"),
        ("--exclude nothing.txt", 4, "nothing.txt: No such file or directory"),
        ("--filter network.json", 4, "has no TAB"),
        ("--output-layer Hidden1", 4, '--output-layer: "Hidden1" is no Output layer of this network'),
        ("--score-format %d", 4, 'score format "%d" is not legal, legal: such as %.3f'),
        ("--score-format %s%n", 4, "is not legal"),
        ("--out x.npy", 2, "--out .npy is for --format values"),
        ("--format values --exclude none", 2, "--exclude is for --format topk"),
        ("--format csv", 2, "invalid choice: 'csv'"),
    ],
)
def test_wrong_predictions(nnlib, model, change, code, message):
    found, _, err = nnlib(f"predict model.nc valid.nc {change}")
    assert found == code
    assert message in err
    assert "Traceback" not in err


def test_values(nnlib, model):
    assert nnlib("predict model.nc valid.nc --format values --out values.npy")[0] == 0
    values = np.load("values.npy")
    assert (values.shape, values.dtype) == ((60, 40), np.float32)
    assert nnlib("predict model.nc valid.nc --format values --out values.nc")[0] == 0
    content = netcdf.read(Path("values.nc")).variables
    np.testing.assert_array_equal(content["values"].values.reshape(60, 40), values)
    assert content["samples"].values[0] == "valid 0"
    code, out, _ = nnlib("predict model.nc valid.nc --format values --score-format %.9g")
    assert code == 0
    head, *rows = [line.split("\t") for line in out.splitlines()]
    assert head[:2] == ["sample", "item0"]
    np.testing.assert_allclose(np.array([row[1:] for row in rows], float), values, rtol=1e-7)
    assert rows[59][0] == "valid 59"


def test_names_that_text_cannot_hold(nnlib):
    data = clustered(20, 1, 6)
    names = ("a:b", *data.sets[1].features[1:])
    sets = tuple(dataclasses.replace(data_set, features=names) for data_set in data.sets)
    write_data(Path("train.nc"), Data(sets))
    assert nnlib(TRAIN)[0] == 0
    code, _, err = nnlib("predict model.nc train.nc -k 2")
    assert code == 4
    assert 'the feature "a:b" cannot be in text, which separates by TAB, `:` and `,`; write a .nc' in err
    assert nnlib("predict model.nc train.nc -k 2 --out best.nc")[0] == 0


def test_nothing_is_left_of_a_prediction_that_fails(nnlib, model):
    data = clustered(20, 1, 6)
    samples = (*(f"s{n}" for n in range(19)), "a\tb")
    write_data(Path("odd.nc"), dataclasses.replace(data, samples=samples))
    before = sorted(Path().iterdir())
    code, _, err = nnlib("predict model.nc odd.nc -k 2 --out best.txt")
    assert (code, "has a control character" in err) == (4, True)
    assert sorted(Path().iterdir()) == before


def test_embed(nnlib, model):
    for name in ("hidden.npy", "hidden.nc", "hidden.tsv"):
        assert nnlib(f"embed model.nc valid.nc --layer Hidden1 --out {name}")[0] == 0
    values = np.load("hidden.npy")
    assert values.shape == (60, 12)
    np.testing.assert_array_equal(netcdf.read(Path("hidden.nc")).variables["values"].values.reshape(60, 12), values)
    head, *rows = [line.split("\t") for line in Path("hidden.tsv").read_text().splitlines()]
    assert head == ["sample", *map(str, range(12))]
    np.testing.assert_allclose(np.array([row[1:] for row in rows], float), values, rtol=1e-5, atol=1e-6)
    for change, message in [
        ("--layer Hidden2 --out x.npy", '--layer: "Hidden2" is no layer of this network, did you mean "Hidden1"'),
        ("--layer Input0 --out x.npy", "--layer: 'Input0' is an Input"),
        ("--layer Hidden1 --out x.csv", "--out: 'x.csv' is not legal, legal: a name ending in .nc, .npy, .tsv"),
    ]:
        code, _, err = nnlib(f"embed model.nc valid.nc {change}")
        assert (code, message in err) == (4, True), err


def test_evaluate(nnlib, model):
    code, out, _ = nnlib("evaluate model.nc valid.nc --at 1,3 --baseline popularity=train.nc --json metrics.json")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "60 examples with targets, 0 without"
    assert lines[1].split() == ["metric", "model", "low", "high", "popularity", "low", "high"]
    assert [line.split()[0] for line in lines[2:4]] == ["p@1", "recall@1"]
    found = json.loads(Path("metrics.json").read_text())
    assert set(found["metrics"]) == {f"{m}@{k}" for m in METRICS for k in (1, 3)} | {"loss"}
    p = found["metrics"]["p@3"]
    assert p["low"] <= p["value"] <= p["high"]
    assert p["value"] > found["popularity"]["p@3"]["value"]
    assert found["metrics"]["loss"]["low"] is None
    assert nnlib("evaluate model.nc valid.nc --at 1,3 --baseline popularity=train.nc")[1] == out
    assert nnlib("evaluate model.nc valid.nc --at 1,3 --exclude none --bootstrap 0")[1] != out
    for change, code, message in [
        ("--at 0", 2, "'0' is not legal"),
        ("--baseline train.nc", 2, "'train.nc' is not legal, legal: popularity=DATA.nc"),
        ("--baseline popularity=model.nc", 4, "model.nc"),
        ("--exclude nothing.txt", 4, "nothing.txt: No such file"),
    ]:
        found_code, _, err = nnlib(f"evaluate model.nc valid.nc {change}")
        assert (found_code, message in err) == (code, True), err


def test_evaluate_a_model_of_fewer_items(nnlib, model):
    data = clustered(60, 2, 6)
    names = tuple(f"item{n + 1}" for n in range(40))  # item0 is gone, item40 is new
    sets = tuple(dataclasses.replace(data_set, features=names) for data_set in data.sets)
    write_data(Path("next.nc"), Data(sets))
    code, out, err = nnlib("evaluate model.nc next.nc --at 3")
    assert code == 0
    assert "nnlib: no loss: 1 of the targets' units are unknown to the model" in err
    assert "p@3" in out
    assert "loss" not in out


def test_evaluate_classes(nnlib):
    random = np.random.default_rng(1)
    x = random.normal(size=(90, 3)).astype(np.float32)
    y = np.eye(3)[x.argmax(axis=1)]
    write_data(Path("train.nc"), Data((as_data_set("input", x), as_data_set("output", y))))
    raw = {
        "Layers": [
            *({**layer, "Activation": "SoftMax"} if n == 2 else layer for n, layer in enumerate(NETWORK["Layers"]))
        ]
    }
    Path("network.json").write_text(json.dumps(raw))
    assert nnlib(f"{TRAIN} --epochs 60")[0] == 0
    code, out, _ = nnlib("evaluate model.nc train.nc")
    assert code == 0
    name, value, *_ = out.splitlines()[2].split()
    assert name == "accuracy"
    assert float(value) > 0.9
    code, _, err = nnlib("predict model.nc train.nc --exclude input")
    assert (code, "--exclude input: no sparse Input layer has the same items" in err) == (4, True)


def test_check_gradients(nnlib, monkeypatch):
    code, out, _ = nnlib("check-gradients network.json train.nc --set hidden=5 --parameters 10")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["parameters", "weights", "weights", "biases", "biases"]
    assert "NO" not in out
    code, out, _ = nnlib("check-gradients network.json train.nc --set hidden=5 --tolerance 0")
    assert (code, "NO" in out) == (1, True)
    bounded = json.loads(json.dumps(NETWORK))
    bounded["Layers"][1]["DeltaNorm"] = 0.5
    Path("network.json").write_text(json.dumps(bounded))
    code, _, err = nnlib("check-gradients network.json train.nc --set hidden=5")
    assert (code, "DeltaNorm 0.5" in err) == (4, True)


def test_diff(nnlib, model):
    assert nnlib("diff model.nc model.nc") == (0, "", "")
    assert nnlib(TRAIN.replace("model.nc", "other.nc") + " --seed 2")[0] == 0
    code, out, _ = nnlib("diff model.nc other.nc")
    assert code == 1
    assert "weights Input0 -> Hidden1: 480 of 480 numbers differ, by up to " in out
    assert nnlib("diff model.nc other.nc --tolerance 100")[0] == 0
    code, out, _ = nnlib("diff train.nc valid.nc")
    assert (code, "names of examples: 200 | 60" in out) == (1, True)
    assert nnlib("diff model.nc other.nc --tolerance -1")[0] == 2


def test_inspect(nnlib, model):
    assert "Hidden Hidden1: 12 units" in nnlib("inspect model.nc")[1]
    assert "200 examples" in nnlib("inspect train.nc")[1]


def test_inspect_a_network(nnlib):
    code, out, err = nnlib("inspect network.json --data train.nc --set hidden=12 --batch 50 --optimizer momentum")
    assert (code, err) == (0, "")
    assert "train.nc: 200 examples, 4 batches an epoch" in out
    table = {line.split()[0]: line.split() for line in out.split("\n\n")[1].splitlines()}
    assert table["Hidden1"][1:4] == ["12", "492", "2K"]
    assert table["Output2"][1:3] == ["40", "520"]
    assert "estimate: " in out and "Output2: each batch computes all 40 units" in out
    assert "Hidden Hidden1: 12 units, Relu, dropout 0.1; the whole layer at once" in out
    assert max(map(len, out.splitlines())) <= 80
    assert (
        "4 make an update" in nnlib("inspect network.json --data train.nc --set hidden=12 --batch 20 --accumulate 4")[1]
    )


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("inspect network.json", 4, "legal: nnlib inspect network.json --data FILE"),
        ("inspect network.json --data train.nc", 4, "--set hidden=VALUE gives it one"),
        ("inspect train.nc --batch 3", 2, "--batch is of a network: legal with --data FILE"),
        ("inspect train.nc --accumulate 3", 2, "--accumulate is of a network: legal with --data FILE"),
        ("inspect train.nc --set hidden=3", 2, "--set is of a network: legal with --data FILE"),
        ("inspect network.json --data train.nc --set hidden=3 --device gpu", 75, "no GPU can be used"),
    ],
)
def test_what_inspect_refuses(nnlib, line, code, said):
    found, out, err = nnlib(line)
    assert (found, out) == (code, "")
    assert said in err


def test_bench_io(nnlib):
    code, out, err = nnlib("bench-io train.nc --network network.json --set hidden=12 --batch 50")
    assert (code, err) == (0, "")
    data, epoch, step, share = out.splitlines()
    assert data.startswith("data: 200 examples, ") and "read into memory in" in data
    assert epoch.startswith("an epoch: 4 batches in ")
    assert step.endswith(" ms on this machine's processors, measured")
    assert re.fullmatch(r"share: batches are [0-9.]+% of the time of a training, .*", share)


def test_bench_io_of_data_that_stay_in_their_file(nnlib, monkeypatch):
    monkeypatch.setattr("nnlib.data.sources.open_data", lambda paths: open_data(paths, limit_bytes=0, cache_bytes=1))
    code, out, _ = nnlib("bench-io train.nc --network network.json --set hidden=12 --step-ms 3.5")
    assert code == 0
    assert "read from the files in blocks" in out
    assert "a step: 3.5 ms as given" in out


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("bench-io train.nc --network network.json", 4, "--set hidden=VALUE gives it one"),
        ("bench-io train.nc --network network.json --set hidden=3 --step-ms 0", 2, "legal: milliseconds above 0"),
        ("bench-io train.nc --network network.json --set hidden=3 --device gpu", 75, "no GPU can be used"),
        ("bench-io train.nc", 2, "--network"),
    ],
)
def test_what_bench_io_refuses(nnlib, line, code, said):
    found, out, err = nnlib(line)
    assert (found, out) == (code, "")
    assert said in err


def test_a_command_that_does_not_exist(nnlib):
    code, _, err = nnlib("advise")
    assert (code, "invalid choice: 'advise'" in err) == (2, True)


def test_a_bug_is_reported_as_one(nnlib, monkeypatch):
    monkeypatch.setattr("nnlib.inspection.contents.describe_file", lambda path, room: 1 / 0)
    code, _, err = nnlib("inspect train.nc")
    assert code == 1
    assert "ZeroDivisionError" in err
    assert "this is a bug of nnlib" in err


@pytest.mark.parametrize("reader", ["head -c 1", "true"])
def test_a_reader_that_has_enough(reader):
    """Also where Python keeps what it prints until it ends, as it does unless PYTHONUNBUFFERED is set."""
    environment = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[1]), "PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -m nnlib inspect train.nc | {reader}; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        check=False,
        env=environment,
    )
    assert (done.stderr, done.returncode) == (b"", 0)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_training_that_is_stopped_goes_on(nnlib, model, number):
    """With --checkpoint a signal saves, exit code 143; the same command ends with the bits of an undisturbed one."""
    line = f"{TRAIN} --epochs 60 --log epochs.jsonl".replace("model.nc", "whole.nc")
    assert nnlib(line)[0] == 0
    command = [sys.executable, "-m", "nnlib", *line.replace("whole.nc", "parts.nc").split(), "--checkpoint", "work"]
    environment = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[1])}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    for read in process.stderr:
        if read.startswith("epoch 3/"):
            break
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert "nnlib: stopped; the same command goes on from what is saved in work" in err
    assert not Path("parts.nc").exists()
    code, _, err = nnlib(line.replace("whole.nc", "parts.nc") + " --checkpoint work")
    assert code == 0
    assert "resumed from checkpoint.nc: epoch " in err
    assert Path("parts.nc").read_bytes() == Path("whole.nc").read_bytes()
    assert [one.epoch for one in read_epochs(Path("epochs.jsonl"))] == list(range(1, 61)), "each once"


def test_a_training_that_is_stopped_before_its_first_batch(nnlib, monkeypatch):
    monkeypatch.setattr("nnlib.training.fit.run", lambda *_: signal.raise_signal(signal.SIGTERM))
    code, _, err = nnlib(f"{TRAIN} --checkpoint work")
    assert (code, err) == (143, "nnlib: stopped, nothing is saved\n")


def test_a_trial_is_left_to_the_worker(nnlib, monkeypatch):
    seen = []
    monkeypatch.setattr("nnlib.worker.main.train", lambda *given: seen.append(given) or 85)
    assert nnlib("train --trial a/trial.json --checkpoint-every 10m")[0] == 85
    assert nnlib("train --trial a/trial.json")[0] == 85
    assert nnlib("train --trial a/trial.json --device gpu")[0] == 85
    path = Path("a/trial.json")
    assert seen == [(path, 600.0, "auto"), (path, np.inf, "auto"), (path, np.inf, "gpu")]


@pytest.mark.slow
def test_a_training_that_is_stopped_without_a_checkpoint():
    command = [sys.executable, "-m", "nnlib", *f"{TRAIN} --epochs 100000".split()]
    environment = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[1])}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    process.stderr.readline()
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "nnlib: interrupted" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("text", "value"), [("90s", 90), ("5m", 300), ("2h", 7200), ("0.5m", 30)])
def test_times(text, value):
    assert _arguments.seconds(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("a=1", 1), ("a=0.5", 0.5), ("a=true", True), ("a=Relu", "Relu"), ("a=[1]", "[1]"), ("a=", ""), ("a=b=c", "b=c")],
)
def test_hyperparameters(text, value):
    assert _arguments.hyperparameter(text) == ("a", value)


def test_threads_of_a_command(monkeypatch):
    assert _arguments.hold_threads(3) == 3
    assert os.environ["OMP_NUM_THREADS"] == "1"  # BLAS itself has one
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert _arguments.hold_threads(None) == len(os.sched_getaffinity(0))


def test_what_a_command_does_not_know_is_refused_with_its_own_usage(nnlib):
    code, _, err = nnlib("inspect model.nc --bogus")
    assert code == 2 and err.startswith("usage: nnlib inspect [-h]")
    assert "nnlib inspect: error: unrecognized arguments: --bogus" in err


def test_tables_and_counters_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    print_table(["metric", "model"], [["p@10", "0.5"], ["loss [mean]", "7.25"]], stream)
    with show_count(10, "examples", stream) as watch:
        watch(4)
        watch(6)
    assert "loss [mean]" in stream.getvalue()
    assert "10 examples in " in stream.getvalue()


@pytest.mark.parametrize(
    ("line", "victim"),
    [
        ("train network.json train.nc --set hidden=3 --out train.nc", "train.nc"),
        ("train network.json train.nc --set hidden=3 --valid valid.nc --out ./valid.nc", "valid.nc"),
        ("train network.json train.nc --set hidden=3 --out network.json", "network.json"),
        ("train network.json train.nc --set hidden=3 --out link.nc", "train.nc"),
        ("predict model.nc valid.nc --out valid.nc", "valid.nc"),
        ("predict model.nc valid.nc --exclude train.nc --out train.nc", "train.nc"),
        ("predict model.nc valid.nc --filter filter.txt --out filter.txt", "filter.txt"),
        ("embed model.nc valid.nc --layer Hidden1 --out model.nc", "model.nc"),
        ("evaluate model.nc valid.nc --json valid.nc", "valid.nc"),
        ("evaluate model.nc valid.nc --baseline popularity=train.nc --json train.nc", "train.nc"),
    ],
)
def test_an_input_is_never_replaced(nnlib, model, line, victim):
    Path("link.nc").symlink_to("train.nc")
    Path("filter.txt").write_text("valid 1\titem1,1:\n")
    before = Path(victim).read_bytes()
    code, _, err = nnlib(line)
    assert code == 4
    assert "is an input of this command, legal: the name of another file" in err
    assert Path(victim).read_bytes() == before


def test_a_name_that_only_looks_like_an_input(nnlib, model):
    assert nnlib("predict model.nc valid.nc --exclude none --out none")[0] == 0
