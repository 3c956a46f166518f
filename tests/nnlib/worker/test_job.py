"""Whole jobs in this process: what they measure, log and leave behind."""

import dataclasses
import json
import re

import numpy as np
import pytest

from nnlib.compiled import select
from nnlib.contract import (
    Metric,
    Role,
    Status,
    TrainSettings,
    result_from_json,
    result_to_json,
    sha256_of,
    trial_from_json,
    trial_to_json,
)
from nnlib.data.file import write_data
from nnlib.data.rows import Csr, Dense
from nnlib.data.sets import Data, DataSet
from nnlib.errors import CheckpointedError, DataError, EvictedError, NnlibError
from nnlib.model import network as net
from nnlib.model.examples import resolve
from nnlib.model.file import Model, read_model, write_model
from nnlib.spec.metric_names import METRICS
from nnlib.spec.network import parse_network, substitute
from nnlib.training.stop import Stop
from nnlib.worker import job
from tests.nnlib.samples import ITEMS, NETWORK, clustered

pytestmark = pytest.mark.slow

NAMES = tuple(f"item{n}" for n in range(ITEMS))


def run(trial_file, **arguments):
    """Run the job as the worker does, by the files that are there."""
    (trial_file.parent / "log.jsonl").touch()
    trial = dataclasses.replace(trial_from_json(trial_file.read_text()), sha256={})
    return job.run(trial, trial_file.parent, **arguments)


def log_of(trial_file):
    lines = (trial_file.parent / "log.jsonl").read_text().splitlines()
    return [{**json.loads(line), "seconds": 0} for line in lines]


def test_tune(make_trial):
    trial = make_trial()
    result = run(trial)
    assert (result.status, result.node, result.reason) == (Status.OK, "r_t0001", "")
    assert result.value == result.metrics["p@3"] > 0.5
    assert set(result.metrics) == {f"{kind}@{k}" for kind in METRICS for k in (3, 5, 10, 20, 100)} | {"loss"}
    assert 1 <= result.best_epoch <= result.epochs <= 6
    assert (result.examples, result.backend) == (64, select.NAME)
    log = log_of(trial)
    assert [line["epoch"] for line in log] == list(range(1, result.epochs + 1))
    assert max(line["value"] for line in log) == log[result.best_epoch - 1]["value"] == result.value
    assert not (trial.parent / "model.nc").exists()


@pytest.mark.parametrize(
    ("name", "key"), [("P@3", "p@3"), ("precision@7", "p@7"), ("Loss", "loss"), ("MAP@4", "map@4"), ("mrr@5", "mrr@5")]
)
def test_the_keys_of_metrics_are_canonical(make_trial, name, key):
    result = run(make_trial(metric=Metric(name, minimize=key == "loss")))
    assert result.value == result.metrics[key]
    assert all(metric == metric.lower() and "precision" not in metric for metric in result.metrics)


def test_final(make_trial):
    settings = TrainSettings(epochs=5, batch=16, learning_rate=0.01, stop_after=1)
    trial = make_trial(role=Role.FINAL, train=settings)
    result = run(trial)
    assert (result.status, result.best_epoch, result.epochs) == (Status.OK, 5, 5)
    assert result.metrics["p@3"] > result.baseline["p@3"]
    assert set(result.metrics) - set(result.baseline) == {"loss"}
    assert result.champion == {}
    assert {line["value"] for line in log_of(trial)} == {None}
    assert result.model == sha256_of(trial.parent / "model.nc")
    model = read_model(trial.parent / "model.nc")
    assert (model.region, model.features[0][0], model.features[2][39]) == ("Côte d'Ivoire", "item0", "item39")


def test_a_model_scores_in_another_job_as_in_its_own(make_trial):
    first = make_trial("first", role=Role.FINAL)
    before = run(first)
    trial = make_trial("second", role=Role.FINAL, champion="champion.nc")
    (trial.parent / "champion.nc").write_bytes((first.parent / "model.nc").read_bytes())
    assert run(trial).champion == pytest.approx(before.metrics)


def champion(trial, names, width=None):
    """Write a standing champion whose units have these names."""
    spec = parse_network(substitute(NETWORK, {"hidden": 4, "denoising": 0}), "n")
    empty = Csr(np.zeros(1, np.int64), np.zeros(0, np.int32), width or len(names))
    spec = resolve(spec, {name: DataSet(name, empty) for name in ("input", "output")}, "d")
    features = {0: names, 2: names} if names else {}
    write_model(trial.parent / "champion.nc", Model(net.create(spec, np.random.default_rng(0)), features))


def test_a_champion_of_another_catalogue_is_tested_by_names(make_trial):
    trial = make_trial(role=Role.FINAL, champion="champion.nc")
    champion(trial, NAMES)
    same = run(trial)
    assert set(same.champion) == set(same.metrics)
    champion(trial, ("gone", *NAMES[:30]))
    other = run(trial)
    assert (other.status, other.reason) == (Status.OK, "")
    assert set(same.champion) - set(other.champion) == {"loss"}


def test_a_trial_measures_the_champion_on_its_validation_part(make_trial):
    first = make_trial("first", role=Role.FINAL)
    run(first)
    trial = make_trial("second", champion="champion.nc", rungs=((1, 2.0),))
    (trial.parent / "champion.nc").write_bytes((first.parent / "model.nc").read_bytes())
    write_data(trial.parent / "held.nc", clustered(24, 7, 5))
    twin = make_trial("twin", role=Role.FINAL, champion="champion.nc")
    for name in ("champion.nc", "held.nc"):
        (twin.parent / name).write_bytes((trial.parent / name).read_bytes())
    pruned, final = run(trial), run(twin)
    assert pruned.status is Status.PRUNED
    assert pruned.champion == final.champion and set(final.champion) == set(pruned.metrics)
    assert pruned.baseline == {} and not (trial.parent / "model.nc").exists()
    (trial.parent / "champion.nc").write_bytes(b"torn")
    broken = run(trial)
    assert (broken.status, broken.champion, broken.value) == (Status.PRUNED, {}, pruned.value)
    assert re.fullmatch(
        "ended after epoch 1: .*; champion not validated: .*/champion.nc: not a readable .*", broken.reason
    )


def test_loss_of_a_champion_that_does_not_know_a_target(make_trial):
    trial = make_trial(role=Role.FINAL, champion="champion.nc", metric=Metric("loss", minimize=True))
    champion(trial, NAMES[:38])
    result = run(trial)
    assert result.value == result.metrics["loss"]
    assert set(result.metrics) - set(result.champion) == {"loss"}
    assert result.reason == "champion not tested for loss: 2 of the targets' units are unknown to it"


def test_a_champion_that_cannot_be_used_stops_nobody(make_trial):
    trial = make_trial(role=Role.FINAL, champion="champion.nc")
    for write in (
        lambda: champion(trial, (), 39),
        lambda: (trial.parent / "champion.nc").write_bytes(b"torn"),
        lambda: (trial.parent / "champion.nc").unlink(),
    ):
        write()
        result = run(trial)
        assert (result.status, result.champion) == (Status.OK, {})
        assert result.reason.startswith("champion not tested: ")


PAGES = tuple(f"page{n}" for n in range(40))
WIDER = tuple(f"page{n}" for n in range(300))


def run_with_inputs(trial_file, change, names):
    """Run on the same data with other inputs: unit numbers go through `change`."""
    for name, data in (("train.nc", clustered(64, 1, 9)), ("held.nc", clustered(32, 2, 6))):
        rows = data.sets[0].rows
        indices = np.array([change(unit) for unit in rows.indices], np.int32)
        inputs = DataSet("input", Csr(rows.indptr, indices, len(names)), names)
        write_data(trial_file.parent / name, Data((inputs, data.sets[1]), region=data.region))
    return run(trial_file)


@pytest.mark.parametrize("names", [PAGES, WIDER])
def test_inputs_of_other_units_hide_no_target(make_trial, names):
    """The inputs are shifted by ten, so that masking them would mask another taste's items, or none there are."""
    result = run_with_inputs(make_trial(role=Role.FINAL), lambda unit: (unit + 10) % len(names), names)
    assert result.metrics["p@3"] > 0.1
    assert result.baseline["p@3"] > 0
    hidden = run_with_inputs(make_trial("other", role=Role.FINAL), lambda unit: (unit + 10) % 40, NAMES)
    assert hidden.baseline != result.baseline


def test_narrower_inputs(make_trial):
    result = run_with_inputs(make_trial(role=Role.FINAL), lambda unit: unit // 10, ("a", "b", "c", "d"))
    assert result.metrics["p@3"] > 0.1


def test_dense_targets_are_measured_by_loss(make_trial):
    random = np.random.default_rng(0)
    network = {
        "ErrorFunction": "L2",
        "Layers": [{"N": "auto", "DataSet": "input"}, {"N": "auto", "DataSet": "output", "Activation": "Linear"}],
    }
    trial = make_trial(role=Role.FINAL, network=network, hyperparameters={}, metric=Metric("loss", minimize=True))
    for name in ("train.nc", "held.nc"):
        x = random.normal(size=(50, 4)).astype(np.float32)
        sets = DataSet("input", Dense(x)), DataSet("output", Dense(x[:, :2] * 2))
        write_data(trial.parent / name, Data(sets))
    result = run(trial)
    assert set(result.metrics) == {"loss"}
    assert result.baseline == {}
    with pytest.raises(
        NnlibError, match=r"trial.json: metric.name: p@3 needs sparse targets, 'output' is dense; legal"
    ):
        job.run(dataclasses.replace(trial_from_json(trial.read_text()), metric=Metric("p@3")), trial.parent)


def test_several_files_are_one_after_the_other(make_trial):
    trial = make_trial(train_files=("train.nc", "held.nc"), valid_file="held.nc")
    assert run(trial).examples == 96


def test_the_two_parts_must_mean_the_same(make_trial):
    trial = make_trial()
    held = clustered(32, 2, 6)
    names = tuple(f"thing{n}" for n in range(ITEMS))
    empty = Csr(np.zeros(33, np.int64), np.zeros(0, np.int32), ITEMS)
    wider = Csr(held.sets[1].rows.indptr, held.sets[1].rows.indices, ITEMS + 1)
    dense = Dense(np.ones((32, ITEMS), np.float32))
    for rows, features, words in (
        (held.sets[1].rows, names, "held.nc: other names of units than train.nc"),
        (wider, (*NAMES, "more"), "held.nc: output of width 41, train.nc has 40"),
        (dense, NAMES, "held.nc: output is not of the kind that train.nc has"),
        (empty, NAMES, "held.nc: no example has a target, so nothing can be measured"),
    ):
        write_data(trial.parent / "held.nc", Data((held.sets[0], DataSet("output", rows, features))))
        with pytest.raises(DataError, match=re.escape(words)):
            run(trial)


def test_stopped_and_started_again_the_job_ends_as_any_other(make_trial):
    settings = TrainSettings(epochs=2, batch=16, learning_rate=0.01)
    whole, pieces = (make_trial(folder, role=Role.FINAL, train=settings) for folder in ("whole", "pieces"))
    result, attempts = run(whole), 0
    while True:
        try:
            again = run(pieces, every=0.0)
            break
        except CheckpointedError:
            attempts += 1
    assert attempts == 8
    assert log_of(pieces) == log_of(whole)
    assert (pieces.parent / "model.nc").read_bytes() == (whole.parent / "model.nc").read_bytes()
    assert dict(again.metrics) == dict(result.metrics)
    assert (pieces.parent / "checkpoint.nc").stat().st_size == 0


@pytest.fixture
def stopped(make_trial):
    """A trial that was stopped after its first batch."""
    trial = make_trial()
    with pytest.raises(EvictedError):
        run(trial, stop=Stop(requested=True))
    return trial


@pytest.mark.parametrize(
    "change",
    [
        {"train": TrainSettings(epochs=6, batch=16, learning_rate=0.01, seed=2)},
        {"hyperparameters": {"hidden": 17, "denoising": 0.2}},
        {"number": 2},
        {"valid_file": "train.nc"},
    ],
)
def test_a_checkpoint_of_another_trial_is_not_used(stopped, capsys, change):
    capsys.readouterr()
    stopped.write_text(trial_to_json(dataclasses.replace(trial_from_json(stopped.read_text()), **change)))
    run(stopped)
    assert "checkpoint not used: checkpoint.nc: of another training" in capsys.readouterr().err


def test_a_checkpoint_of_other_data_is_not_used(stopped, capsys):
    """Their digests are in the trial."""
    trial = trial_from_json(stopped.read_text())
    with pytest.raises(EvictedError):
        job.run(trial, stopped.parent, stop=Stop(requested=True))
    write_data(stopped.parent / "train.nc", clustered(64, 7, 9))
    changed = dataclasses.replace(trial, sha256=trial.sha256 | {"train.nc": sha256_of(stopped.parent / "train.nc")})
    capsys.readouterr()
    job.run(changed, stopped.parent)
    assert "checkpoint not used: checkpoint.nc: of another training" in capsys.readouterr().err


def test_a_checkpoint_of_other_code_is_not_used(stopped, capsys, monkeypatch):
    monkeypatch.setattr(select, "NAME", "abacus")
    assert run(stopped).backend == "abacus"
    assert "checkpoint not used: checkpoint.nc: of another training" in capsys.readouterr().err


def test_a_log_that_lies_there_has_no_line_too_many(make_trial):
    """Of an attempt without a checkpoint nothing stays, not even a torn line."""
    trial = make_trial()
    (trial.parent / "log.jsonl").write_text('{"epoch": 1}\n{"epoch": 2}\n{"epo')
    result = run(trial)
    assert [line["epoch"] for line in log_of(trial)] == list(range(1, result.epochs + 1))


def test_compat_in_any_case(make_trial):
    path = make_trial(train=TrainSettings(compat="DSSTNE"))
    trial = trial_from_json(path.read_text())
    assert job._network_spec(trial, path.parent).compat


def test_a_trial_is_pruned_at_a_rung(make_trial):
    result = run(make_trial(rungs=((2, 2.0),)))
    assert (result.status, result.epochs, len(result.curve)) == (Status.PRUNED, 2, 2)
    assert result.reason == "ended after epoch 2: others were better by then"
    assert result.value == max(result.curve)
    assert result_from_json(result_to_json(result)) == result
    whole = run(make_trial("whole"))
    assert (whole.status, whole.epochs) == (Status.OK, len(whole.curve))
    assert whole.curve[:2] == result.curve
