"""The worker's side of the contract, by really running `python -m nnlib train`."""

import contextlib
import copy
import errno
import json
import os
import signal
import subprocess
import sys
import time
import zipapp
from pathlib import Path

import numpy as np
import pytest
from nnlib_samples import NETWORK

import nnlib
from nnlib import cli, worker
from nnlib import network as net
from nnlib.contract import (
    ContractError,
    Metric,
    Role,
    Status,
    TrainSettings,
    result_from_json,
    trial_from_json,
)
from nnlib.errors import NnlibError
from nnlib.modelfile import Model, read_model, write_model
from nnlib.spec import SpecError, parse_network, substitute
from nnlib.train import resolve


def run(trial, *, command=(sys.executable, "-m", "nnlib"), **environment):
    """Run the job; return exit code, result and stderr."""
    done = subprocess.run(
        [*command, "train", "--trial", str(trial)],
        capture_output=True,
        text=True,
        check=False,
        cwd=trial.parent,
        env=os.environ | environment,
    )
    return done.returncode, result_of(trial), done.stderr


def result_of(trial):
    return result_from_json((trial.parent / "result.json").read_text())


def log_of(trial):
    return [json.loads(line) for line in (trial.parent / "log.jsonl").read_text().splitlines()]


def test_tune(make_trial):
    trial = make_trial()
    code, result, stderr = run(trial)
    assert (code, result.status, result.node, result.reason) == (0, Status.OK, "r_t0001", "")
    assert result.value == result.metrics["p@3"] > 0.5
    assert {"loss", "p@5", "p@10", "p@20", "p@100", "recall@10", "ndcg@20"} <= set(result.metrics)
    assert 1 <= result.best_epoch <= result.epochs <= 6
    assert (result.examples, result.backend) == (64, "numpy")
    assert {"python", "numpy", "scipy", "netCDF4", "nnlib"} <= set(result.versions)
    assert result.host
    assert result.seconds > 0
    log = log_of(trial)
    assert [line["epoch"] for line in log] == list(range(1, result.epochs + 1))
    assert max(line["value"] for line in log) == log[result.best_epoch - 1]["value"] == result.value
    assert "epoch 1/6 loss " in stderr
    assert not (trial.parent / "model.nc").exists()


@pytest.mark.parametrize(("name", "key"), [("P@3", "p@3"), ("precision@3", "p@3"), ("Loss", "loss")])
def test_the_keys_of_metrics_are_canonical(make_trial, name, key):
    code, result, _ = run(make_trial(metric=Metric(name, minimize=key == "loss")))
    assert (code, result.value) == (0, result.metrics[key])
    assert all(metric == metric.lower() and "precision" not in metric for metric in result.metrics)


def test_final(make_trial):
    settings = TrainSettings(epochs=5, batch=16, learning_rate=0.01, stop_after=1)
    code, result, _ = run(make_trial(role=Role.FINAL, train=settings))
    assert (code, result.status, result.best_epoch, result.epochs) == (0, Status.OK, 5, 5)
    assert result.metrics["p@3"] > result.baseline["p@3"]
    assert result.champion == {}


def test_final_beside_the_champion(make_trial):
    first = make_trial("first", role=Role.FINAL)
    code, before, _ = run(first)
    assert code == 0
    model = read_model(first.parent / "model.nc")
    assert model.region == "Côte d'Ivoire"
    assert model.inputs[0] == "item0"
    trial = make_trial("second", role=Role.FINAL, champion="champion.nc")
    (trial.parent / "champion.nc").write_bytes((first.parent / "model.nc").read_bytes())
    code, result, _ = run(trial)
    assert code == 0
    assert result.champion == before.metrics == result.metrics
    (trial.parent / "champion.nc").write_bytes(b"torn")
    code, result, _ = run(trial)
    assert (code, result.champion) == (0, {})
    assert "champion not tested: champion.nc: not a readable NetCDF file" in result.reason


def champion(trial, names, width=None):
    """Write a standing champion whose units have these names."""
    spec = parse_network(substitute(NETWORK, {"hidden": 4, "denoising": 0}), "n")
    width = width or len(names)
    network = net.create(resolve(spec, width, width, "n"), np.random.default_rng(0))
    write_model(trial.parent / "champion.nc", Model(network, names, names))


def test_a_champion_of_another_catalogue_is_tested_by_names(make_trial):
    trial = make_trial(role=Role.FINAL, champion="champion.nc")
    names = tuple(f"item{n}" for n in range(40))
    champion(trial, names)
    _, same, _ = run(trial)
    assert set(same.champion) == set(same.metrics)
    champion(trial, ("gone", *names[:30]))
    code, other, _ = run(trial)
    assert (code, other.status, other.reason) == (0, Status.OK, "")
    assert set(same.champion) - set(other.champion) == {"loss"}


def test_loss_of_a_champion_that_does_not_know_a_target(make_trial):
    trial = make_trial(role=Role.FINAL, champion="champion.nc", metric=Metric("loss", minimize=True))
    champion(trial, tuple(f"item{n}" for n in range(38)))
    code, result, _ = run(trial)
    assert (code, result.value) == (0, result.metrics["loss"])
    assert set(result.metrics) - set(result.champion) == {"loss"}
    assert result.reason == "champion not tested for loss: 2 of the targets' units are unknown to it"


def test_a_champion_of_another_width_without_names_is_not_tested(make_trial):
    trial = make_trial(role=Role.FINAL, champion="champion.nc")
    champion(trial, (), 39)
    code, result, _ = run(trial)
    assert (code, result.status, result.champion) == (0, Status.OK, {})
    words = "it has 39 input units, the data have 40, with no names of units in the model by which to match them"
    assert result.reason == f"champion not tested: {words}"


def test_without_a_folder_or_a_trial(tmp_path, capsys):
    assert cli.main(["train", "--trial", str(tmp_path / "none" / "trial.json")]) == 4
    assert "no such folder" in capsys.readouterr().err
    done = subprocess.run([sys.executable, "-m", "nnlib", "train", "--trial", "trial.json"], cwd=tmp_path, check=False)
    assert done.returncode == 4
    assert "trial.json: no such file" in result_from_json((tmp_path / "result.json").read_text()).reason


def test_an_earlier_attempt_leaves_no_trace(make_trial):
    trial = make_trial(network=[], hyperparameters={})
    (trial.parent / "log.jsonl").write_text('{"epoch": 99}\n')
    (trial.parent / "result.json").write_text("old")
    code, result, stderr = run(trial)
    assert (code, result.status, result.epochs) == (4, Status.BAD_INPUT, 0)
    assert result.reason == "network.json: [] is not a network, legal: an object with the key Layers"
    assert stderr == f"nnlib: {result.reason}\n"
    assert log_of(trial) == []


def test_loss_as_the_metric(make_trial):
    code, result, _ = run(make_trial(metric=Metric("loss", minimize=True)))
    assert code == 0
    assert result.value == result.metrics["loss"]


def test_diverged(make_trial):
    settings = TrainSettings(epochs=5, batch=16, learning_rate=1e30)
    code, result, stderr = run(make_trial(train=settings))
    assert (code, result.status) == (3, Status.DIVERGED)
    assert result.reason.startswith("epoch ")
    assert "lower learning_rate" in result.reason
    assert "Warning" not in stderr


def network(**changes):
    raw = copy.deepcopy(NETWORK)
    raw["Layers"][1] |= changes
    return raw


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"network": network(Activation="Sigmod")}, 'network.json: Layers[1].Activation: "Sigmod"'),
        ({"hyperparameters": {"hidden": 3}}, '"$denoising" has no value'),
        ({"hyperparameters": {"hidden": 3, "denoising": 0, "x": 1}}, "hyperparameter 'x' is used nowhere"),
        ({"train": TrainSettings(optimizer="adma")}, "train.optimizer: 'adma' is not legal"),
        ({"train": TrainSettings(epochs=0, l2=-1.0)}, "train.epochs: 0 is not legal"),
        ({"metric": Metric("map@3")}, "metric.name: metric 'map@3' is not legal"),
        ({"valid_file": None}, "valid_file: null"),
        ({"valid_file": "none.nc"}, "none.nc: no such file"),
        ({"train_files": ()}, "train_files"),
        ({"version": 99}, "version 99"),
    ],
)
def test_bad_input(make_trial, monkeypatch, changes, words):
    monkeypatch.setattr(worker, "take_over_blas", lambda: 1)
    trial = make_trial(**changes)
    with pytest.raises((NnlibError, SpecError, ContractError, FileNotFoundError)) as caught:
        worker._run(trial_from_json(trial.read_text()), trial.parent)
    code, reason = worker._judged(caught.value)
    assert code == 4
    assert words in reason


def test_bad_data(make_trial):
    trial = make_trial(sha256={})
    (trial.parent / "held.nc").write_bytes((trial.parent / "held.nc").read_bytes()[:500])
    code, result, _ = run(trial)
    assert (code, result.status) == (4, Status.BAD_INPUT)
    assert "held.nc: not a readable NetCDF file" in result.reason


def judged_here(trial, monkeypatch, error):
    """Run the job in this process; training raises `error`."""

    def fails(*_arguments):
        raise error

    monkeypatch.setattr(worker, "_run", fails)
    monkeypatch.setattr(worker, "_sigterm_raises", contextlib.nullcontext)
    return worker.train(trial), result_of(trial)


def test_a_bug_is_not_the_inputs_fault(make_trial, monkeypatch, capsys):
    code, result = judged_here(make_trial(), monkeypatch, IndexError("index 7 is out of bounds"))
    assert (code, result.status, result.node) == (1, Status.MACHINE, "r_t0001")
    assert result.reason == "a bug of nnlib: IndexError: index 7 is out of bounds"
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError("2 TiB"), "out of memory: 2 TiB"),
        (OSError(errno.ENOSPC, "the disk is full", "model.nc"), "model.nc: the disk is full"),
    ],
)
def test_the_machines_fault(make_trial, monkeypatch, error, words):
    code, result = judged_here(make_trial(), monkeypatch, error)
    assert (code, result.status, result.reason) == (75, Status.MACHINE, words)


def test_corrupt_transfer_and_lost_file(make_trial):
    trial = make_trial()
    with (trial.parent / "held.nc").open("ab") as file:
        file.write(b"x")
    code, result, _ = run(trial)
    assert (code, result.status) == (75, Status.MACHINE)
    assert "held.nc: sha256 is " in result.reason
    (trial.parent / "held.nc").unlink()
    code, result, _ = run(trial)
    assert (code, result.status) == (75, Status.MACHINE)
    assert "held.nc: did not arrive" in result.reason


def test_missing_library(make_trial, tmp_path):
    (tmp_path / "netCDF4.py").write_text("raise ImportError('libhdf5.so: cannot open')")
    path = os.pathsep.join([str(tmp_path), str(Path(nnlib.__file__).parent.parent)])
    code, result, _ = run(make_trial(), PYTHONPATH=path)
    assert (code, result.status) == (75, Status.MACHINE)
    assert "libhdf5.so" in result.reason


def test_sigterm(make_trial):
    settings = TrainSettings(epochs=100_000, batch=16, stop_after=0)
    trial = make_trial(role=Role.FINAL, train=settings)
    job = subprocess.Popen([sys.executable, "-m", "nnlib", "train", "--trial", str(trial)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not (log := trial.parent / "log.jsonl").exists() or len(log.read_text()) < 200:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert (trial.parent / "result.json").read_text() == ""
        assert (trial.parent / "model.nc").read_bytes() == b""
        job.send_signal(signal.SIGTERM)
        assert job.wait(30) == 143
    finally:
        job.kill()
        job.wait()
    result = result_of(trial)
    assert (result.status, result.reason) == (Status.EVICTED, "stopped by SIGTERM")
    assert result.epochs >= 1


def test_same_bits_twice_and_on_two_threads(make_trial):
    models, values = set(), set()
    for number, threads in enumerate(("1", "1", "2")):
        trial = make_trial(str(number), role=Role.FINAL)
        code, result, _ = run(trial, OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads)
        assert code == 0
        models.add((trial.parent / "model.nc").read_bytes())
        values.add(json.dumps(dict(result.metrics), sort_keys=True))
    assert (len(models), len(values)) == (1, 1)


def test_from_a_zip_file(make_trial, tmp_path):
    bundle = tmp_path / "nnlib.pyz"
    source = Path(nnlib.__file__).parent
    zipapp.create_archive(
        source.parent,
        bundle,
        main="nnlib.cli:main",
        filter=lambda path: path.parts[0] == "nnlib" and path.suffix == ".py",
    )
    code, result, _ = run(make_trial(), command=(sys.executable, str(bundle)))
    assert (code, result.status) == (0, Status.OK)


def test_inspect(make_trial, capsys):
    trial = make_trial(role=Role.FINAL)
    assert run(trial)[0] == 0
    assert cli.main(["inspect", str(trial.parent / "model.nc")]) == 0
    assert cli.main(["inspect", str(trial.parent / "train.nc")]) == 0
    shown = capsys.readouterr().out
    assert "Hidden Hidden1: 16 units, Relu" in shown
    assert "input: 64 examples, width 40, 576 nonzeros" in shown
    assert cli.main(["inspect", str(trial)]) == 4
