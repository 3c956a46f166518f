"""Whole jobs in this process: what they measure, log and leave behind."""

import dataclasses
import json
import re

import numpy as np
import pytest

from nnlib.compiled import select
from nnlib.contract import (
    Metric,
    Recipe,
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
from nnlib.data.read_events import read_events, read_window
from nnlib.data.rows import Csr, Dense, from_rows
from nnlib.data.sets import Data, DataSet
from nnlib.errors import CheckpointedError, DataError, EvictedError, NnlibError
from nnlib.families.fit import fit_recipe
from nnlib.families.measure import measure
from nnlib.families.model_file import read_recipe_model
from nnlib.model.file import read_model
from nnlib.spec.metric_names import METRICS
from nnlib.spec.network import network_of_trial
from nnlib.training.checkpoint import Checkpoints
from nnlib.training.stop import Stop
from nnlib.worker import job
from tests.nnlib.samples import ITEMS, clustered

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
    assert {line["value"] for line in log_of(trial)} == {None}
    assert result.model == sha256_of(trial.parent / "model.nc")
    model = read_model(trial.parent / "model.nc")
    assert (model.region, model.features[0][0], model.features[2][39]) == ("Côte d'Ivoire", "item0", "item39")


FLOOR = Recipe("popularity")
COMPARE = {"bestsellers": Recipe("popularity", {"half_life": 1e9, "own": 1.0}), "floor": FLOOR}


def dated(data, as_of, seed):
    """The same purchases, each of some day before `as_of`."""
    days = np.random.default_rng(seed).integers(as_of - 60, as_of, data.sets[0].rows.nonzeros).astype(np.int32)
    return dataclasses.replace(data, sets=(dataclasses.replace(data.sets[0], days=days), *data.sets[1:]), as_of=as_of)


def with_days(trial, all_days=None):
    """Write the trial's files again, with days; also one of all days."""
    write_data(trial.parent / "train.nc", dated(clustered(64, 1, 9), 1000, 1))
    write_data(trial.parent / "held.nc", dated(clustered(32, 2, 6), 1000, 2))
    if all_days:
        write_data(trial.parent / all_days, dated(clustered(64, 3, 9), 1028, 3))
    return trial


def scores_of(trial):
    return np.load(trial.parent / "scores.npy", allow_pickle=False)


def test_scores_of_each_customer_by_the_network_and_the_floor(make_trial):
    trial = with_days(make_trial())
    held = dated(clustered(32, 2, 6), 1000, 2)
    nobody = np.repeat(held.sets[1].rows.indptr[::2], 2)[:33]  # every other customer has no target
    rows = Csr(np.sort(nobody), held.sets[1].rows.indices[: nobody.max()], ITEMS)
    write_data(trial.parent / "held.nc", dataclasses.replace(held, sets=(held.sets[0], DataSet("output", rows, NAMES))))
    result, scores = run(trial), scores_of(trial)
    assert scores.shape == (2, 3, 32) and scores.dtype == np.float32
    known = np.diff(rows.indptr) > 0
    assert (np.isfinite(scores) == known).all()
    for number, name in enumerate(("p@3", "p@10", "ndcg@20")):
        assert np.nanmean(scores[0, number].astype(float)) == pytest.approx(result.metrics[name], abs=1e-7)
    values = scores[0, 0, known].astype(float)
    assert result.stderr == pytest.approx(values.std(ddof=1) / np.sqrt(known.sum()))
    assert (result.customers, result.fitted_until) == (known.sum(), 1000)
    assert result.scores == sha256_of(trial.parent / "scores.npy")
    window = read_window(trial.parent / "held.nc")
    floor = measure(fit_recipe(FLOOR, read_events(trial.parent / "train.nc")).fitted, window, ("p@3", "ndcg@20"))
    assert np.array_equal(scores[1, 0], floor["p@3"], equal_nan=True)
    assert np.array_equal(scores[1, 2], floor["ndcg@20"], equal_nan=True)
    assert result.compared == {"floor": {"p@3": pytest.approx(np.nanmean(scores[1, 0].astype(float)))}}


def test_without_times_the_floor_is_plain_popularity(make_trial):
    trial = make_trial()
    result, scores = run(trial), scores_of(trial)
    assert result.fitted_until is None and scores.shape == (2, 3, 32)
    final = make_trial("final", role=Role.FINAL)
    assert scores[1, 0].mean() == pytest.approx(run(final).baseline["p@3"])


def test_final_beside_what_it_is_compared_with_then_on_all_days(make_trial):
    settings = TrainSettings(epochs=3, batch=16, learning_rate=0.01)
    trial = with_days(make_trial(role=Role.FINAL, train=settings, compare=COMPARE, all_files=("all.nc",)), "all.nc")
    result, scores = run(trial), scores_of(trial)
    assert scores.shape == (3, 3, 32)  # the network, then by name
    assert set(result.compared) == set(COMPARE) and result.baseline == result.compared["bestsellers"]
    assert result.compared["floor"]["p@3"] == pytest.approx(scores[2, 0].mean())
    assert (result.fitted_until, result.epochs, result.best_epoch) == (1000, 3, 3)
    tested = with_days(make_trial("tested", role=Role.FINAL, train=settings, compare=COMPARE), "all.nc")
    alone = run(tested)
    assert dict(alone.metrics) == dict(result.metrics) and (scores_of(tested) == scores).all()
    served = with_days(make_trial("served", role=Role.FINAL, train=settings, train_files=("all.nc",)), "all.nc")
    run(served)
    model = "model.nc"
    assert (trial.parent / model).read_bytes() == (served.parent / model).read_bytes()
    assert (trial.parent / model).read_bytes() != (tested.parent / model).read_bytes()
    floors = [read_recipe_model(one.parent / "floor.nc").fitted_until for one in (trial, tested)]
    assert floors == [1028, 1000]
    assert result.floor == sha256_of(trial.parent / "floor.nc") and not (served.parent / "floor.nc").exists()


def test_all_days_are_of_the_same_items(make_trial):
    trial = make_trial(role=Role.FINAL, all_files=("all.nc",))
    names = tuple(f"thing{n}" for n in range(ITEMS))
    sets = tuple(dataclasses.replace(data_set, features=names) for data_set in clustered(64, 1, 9).sets)
    write_data(trial.parent / "all.nc", Data(sets))
    with pytest.raises(DataError, match=r"all.nc: other names of units than train.nc"):
        run(trial)


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
    trial = make_trial(role=Role.FINAL, compare=COMPARE)
    result = run_with_inputs(trial, lambda unit: (unit + 10) % len(names), names)
    assert result.metrics["p@3"] > 0.1
    assert (len(scores_of(trial)), result.compared, result.floor) == (1, {}, "")  # no histories of what is ranked
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
    assert (result.baseline, result.scores, result.customers) == ({}, "", 0)
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


def test_where_buying_again_counts_a_network_and_its_rivals_are_ranked_with_what_is_owned(make_trial):
    """Everybody wants one of the items that he has; the floor of unmarked data cannot find it, that of marked can."""
    floors = {}
    for mark in (False, True):
        trial = make_trial(str(mark), role=Role.FINAL, compare=COMPARE)
        for name, seed in (("train.nc", 1), ("held.nc", 2)):
            data = dated(clustered(64, seed, 9), 1000, seed)
            had = data.sets[0].rows
            wanted = DataSet("output", Csr(np.arange(65), had.indices[had.indptr[:-1]], ITEMS), NAMES)
            write_data(trial.parent / name, dataclasses.replace(data, sets=(data.sets[0], wanted), repeats=mark))
        result = run(trial)
        floors[mark] = result.compared["floor"]["recall@20"], result.metrics["recall@20"]
        assert read_model(trial.parent / "model.nc").repeats is mark
        assert read_recipe_model(trial.parent / "floor.nc").repeats is mark
    assert floors[False] == (0, 0) and min(floors[True]) > 0.3
    write_data(trial.parent / "held.nc", dated(clustered(32, 2, 6), 1000, 2))
    with pytest.raises(DataError, match=r"train\.nc: what a customer has is ranked .* in held\.nc it has no rank"):
        run(trial)


@pytest.mark.parametrize("all_files", [(), ("all.nc",)])
def test_stopped_and_started_again_the_job_ends_as_any_other(make_trial, all_files):
    settings = TrainSettings(epochs=2, batch=16, learning_rate=0.01)
    more = {"role": Role.FINAL, "train": settings, "compare": COMPARE, "all_files": all_files}
    whole, pieces = (with_days(make_trial(folder, **more), "all.nc") for folder in ("whole", "pieces"))
    result, attempts = run(whole), 0
    while True:
        try:
            again = run(pieces, every=0.0)
            break
        except CheckpointedError:
            attempts += 1
    assert attempts == 8 * (1 + len(all_files))
    assert log_of(pieces) == log_of(whole)
    for name in ("model.nc", "floor.nc", "scores.npy"):
        assert (pieces.parent / name).read_bytes() == (whole.parent / name).read_bytes()
    assert again == result
    assert (pieces.parent / "checkpoint.nc").stat().st_size == 0


def test_a_job_that_is_killed_on_all_days_does_not_train_for_the_test_again(make_trial, monkeypatch, capsys):
    settings = TrainSettings(epochs=2, batch=16, learning_rate=0.01)
    more = {"role": Role.FINAL, "train": settings, "compare": COMPARE, "all_files": ("all.nc",)}
    whole, killed = (with_days(make_trial(folder, **more), "all.nc") for folder in ("whole", "killed"))
    result = run(whole)
    after_batch = Checkpoints.after_batch

    def kill(keeper, training):
        after_batch(keeper, training)
        if keeper.training.endswith(job.ALL_DAYS):
            raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "after_batch", kill)
        with pytest.raises(ZeroDivisionError):
            run(killed)
    (killed.parent / "scores.npy").write_bytes(b"")  # not all of what a job leaves may come back
    write_data(killed.parent / "train.nc", clustered(64, 7, 9))  # which nobody learns from any more
    capsys.readouterr()
    assert run(killed) == result
    assert capsys.readouterr().err.startswith("nnlib: resumed from checkpoint.nc: epoch 1, batch 0\n")
    for name in ("model.nc", "scores.npy"):
        assert (killed.parent / name).read_bytes() == (whole.parent / name).read_bytes()


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
    assert network_of_trial(trial, path.parent).compat


def test_a_trial_is_pruned_at_a_rung(make_trial):
    result = run(make_trial(rungs=((2, 2.0),)))
    assert (result.status, result.epochs, len(result.curve)) == (Status.PRUNED, 2, 2)
    assert result.reason == "ended after epoch 2: others were better by then"
    assert result.value == max(result.curve)
    assert result_from_json(result_to_json(result)) == result
    whole = run(make_trial("whole"))
    assert (whole.status, whole.epochs) == (Status.OK, len(whole.curve))
    assert whole.curve[:2] == result.curve


LOGISTIC = Recipe("logistic", {"l2": 1.0})
TELLS = {
    "Layers": [
        {"Name": "In", "N": "auto", "DataSet": "input"},
        {"Name": "Out", "N": "auto", "DataSet": "output", "Activation": "SoftMax"},
    ]
}
OF_PICTURES = {"network": TELLS, "hyperparameters": {}, "metric": Metric("p@1")}
SIGNS = tuple(f"sign{n}" for n in range(3))


def with_pictures(trial, days=("train.nc", "held.nc"), named="input", scale=None):
    """Write the trial's files anew: bytes, and in most a place is bright that tells the class."""
    for seed, name in enumerate(days):
        random = np.random.default_rng(seed)
        answers = random.choice(3, 60, p=(0.5, 0.3, 0.2))
        values = random.integers(0, 170, (60, 8), np.uint8)
        values[np.arange(60), answers] += 80
        rows = from_rows([[int(answer)] for answer in answers], 3)
        write_data(
            trial.parent / name,
            Data((DataSet(named, Dense(values if scale is None else values * scale)), DataSet("output", rows, SIGNS))),
        )
    return trial


def p_at_1(trial, recipe, learned="train.nc", asked="held.nc"):
    """What a recipe reaches for each picture."""
    model = fit_recipe(recipe, read_events(trial.parent / learned, inputs=True)).fitted
    return measure(model, read_window(trial.parent / asked, inputs=True), ("p@1",))["p@1"]


def test_a_trial_on_dense_inputs_has_the_floor_that_it_names(make_trial):
    trial = with_pictures(make_trial(compare={"floor": LOGISTIC}, **OF_PICTURES))
    result, scores = run(trial), scores_of(trial)
    assert (scores[1, 0] == p_at_1(trial, LOGISTIC)).all() and scores.shape == (2, 3, 60)
    assert result.compared == {"floor": {"p@1": pytest.approx(scores[1, 0].mean(dtype=float))}}
    assert scores[1, 0].mean() > p_at_1(trial, FLOOR).mean() + 0.1


def test_a_trial_that_names_no_floor_has_the_most_frequent_class_as_ever(make_trial):
    trial = with_pictures(make_trial(**OF_PICTURES))
    said = json.loads(trial.read_text())
    del said["compare"]  # as the first versions wrote it
    trial.write_text(json.dumps(said))
    run(trial)
    assert (scores_of(trial)[1, 0] == p_at_1(trial, FLOOR)).all() and 0 < scores_of(trial)[1, 0].mean() < 1


def test_the_final_training_on_dense_inputs_writes_its_floor_fitted_on_all_days(make_trial):
    compare = {"floor": LOGISTIC, "bestsellers": FLOOR}
    trial = make_trial(role=Role.FINAL, compare=compare, all_files=("all.nc",), **OF_PICTURES)
    with_pictures(trial, ("train.nc", "held.nc", "all.nc"))
    result, scores = run(trial), scores_of(trial)
    assert set(result.compared) == set(compare) and result.baseline == result.compared["bestsellers"]
    assert (scores[1, 0] == p_at_1(trial, FLOOR)).all() and (scores[2, 0] == p_at_1(trial, LOGISTIC)).all()
    floor = read_recipe_model(trial.parent / "floor.nc")
    assert (floor.recipe, floor.items) == (LOGISTIC, SIGNS)
    expected = fit_recipe(LOGISTIC, read_events(trial.parent / "all.nc", inputs=True)).fitted
    assert floor.fitted.weights.tobytes() == expected.weights.tobytes()
    assert result.floor == sha256_of(trial.parent / "floor.nc")


def test_a_floor_of_inputs_on_data_without_any_is_wrong_input(make_trial):
    with pytest.raises(NnlibError, match=r"^logistic: these data have no dense inputs, legal: data with a dense"):
        run(make_trial(compare={"floor": LOGISTIC}))


@pytest.mark.parametrize("role", [Role.TUNE, Role.FINAL])
def test_a_floor_that_diverges_is_left_out_and_the_network_is_not(make_trial, capsys, role):
    compare = {"floor": LOGISTIC} if role is Role.TUNE else {"floor": LOGISTIC, "bestsellers": FLOOR}
    train = TrainSettings(epochs=1, batch=20, learning_rate=1e-37)
    trial = with_pictures(make_trial(role=role, compare=compare, train=train, **OF_PICTURES), scale=np.float32(1e25))
    result = run(trial)
    assert result.status is Status.OK and result.compared == {} and not result.floor
    assert scores_of(trial).shape == (1, 3, 60)
    assert "compared with nothing: logistic: no step makes the loss less" in capsys.readouterr().err


def test_a_floor_is_the_same_on_any_number_of_threads(make_trial):
    found = []
    for threads in (1, 2):
        trial = make_trial(str(threads), role=Role.FINAL, compare={"floor": LOGISTIC}, **OF_PICTURES)
        run(with_pictures(trial), threads=threads)
        found.append([(trial.parent / name).read_bytes() for name in ("floor.nc", "scores.npy")])
    assert found[0] == found[1]
