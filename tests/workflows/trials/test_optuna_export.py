"""Runs written into real Optuna storages, and read back with Optuna."""

from __future__ import annotations

import json
import sqlite3
import sys

import pytest

from nnlib.util.process import install_line
from regiondag.cli import main
from regiondag.errors import RegiondagError
from regiondag.node.pre import prepare_trial
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName
from regiondag.study.space import Choice, Integer, Real
from regiondag.trials.optuna_export import Exported, export, storage_name
from tests.workflows.commands.test_study import HOSTILE_NAMES, settle
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.trials.test_rows import SPACE, region_trials, run_of

optuna = pytest.importorskip("optuna")
from optuna.trial import TrialState  # noqa: E402

pytestmark = pytest.mark.slow

KINDS = ["trials.db", "sqlite:///{folder}/trials.db", "trials.log"]


@pytest.fixture(params=KINDS)
def target(request, tmp_path):
    name = request.param
    return name.format(folder=tmp_path) if "://" in name else str(tmp_path / name)


def write(trials, target):
    return export(trials, str(target), lambda done, total: None)


def load(target, name):
    url = target if "://" in target else f"sqlite:///{target}"
    if target.endswith(".log"):
        from optuna.storages.journal import JournalFileBackend

        url = optuna.storages.JournalStorage(JournalFileBackend(target))
    return optuna.load_study(study_name=name, storage=url)


def test_every_region_becomes_a_study(target):
    trials = run_of(region_trials([0.5, "diverged", 0.75, None]), region_trials([3.0], "A/B", "loss", minimize=True))
    assert write(trials, target) == Exported(5, 0, 0)
    study = load(target, "tiny/Germany")
    assert study.direction.name == "MAXIMIZE" and study.user_attrs["metric"] == "ndcg@5"
    assert load(target, "tiny/A/B").direction.name == "MINIMIZE"
    states = [trial.state for trial in study.trials]
    assert states == [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE, TrialState.RUNNING]
    assert study.best_value == 0.75
    [best, failed] = study.trials[2], study.trials[1]
    for row, trial in zip(trials.regions[0].rows, study.trials, strict=True):
        assert trial.params == row.hyperparameters
    assert best.distributions["learning_rate"] == optuna.distributions.FloatDistribution(0.001, 0.1, log=True)
    assert best.distributions["hidden"] == optuna.distributions.IntDistribution(8, 64, log=True)
    assert best.distributions["optimizer"] == optuna.distributions.CategoricalDistribution(("adam", "sgd"))
    assert "momentum" in failed.params and "momentum" not in best.params
    assert best.intermediate_values == {1: 0.0, 2: 0.75} and best.user_attrs["best_epoch"] == 2
    assert failed.user_attrs["reason"] == "it diverged" and failed.user_attrs["status"] == "diverged"
    assert failed.user_attrs["seconds"] == 1.0 and failed.duration.total_seconds() == 1.0
    assert failed.user_attrs["trial"] == "run-tiny-1/regions/slug/trials/0001"


def test_ordered_options_stay_in_their_order(tmp_path):
    space = (Choice("size", ("small", "medium", "large"), ordered=True),)
    points = [{"size": size} for size in ("large", "small")]
    write(run_of(region_trials([0.5, 0.25], space=space, points=points)), tmp_path / "trials.db")
    [first, _] = load(str(tmp_path / "trials.db"), "tiny/Germany").trials
    assert first.params == {"size": "large"}
    assert first.distributions["size"].choices == ("small", "medium", "large")


def test_exporting_again_adds_only_what_is_new(target):
    write(run_of(region_trials([0.5, None])), target)
    assert write(run_of(region_trials([0.5, None])), target) == Exported(0, 0, 2)
    later = run_of(region_trials([0.5, 0.25, "diverged", None]))
    assert write(later, target) == Exported(2, 1, 1)
    assert write(later, target) == Exported(0, 0, 4)
    study = load(target, "tiny/Germany")
    assert [trial.value for trial in study.trials] == [0.5, 0.25, None, None]
    ended = study.trials[1]
    assert ended.state == TrialState.COMPLETE and ended.intermediate_values == {1: 0.0, 2: 0.25}
    assert ended.user_attrs["status"] == "ok" and ended.user_attrs["best_epoch"] == 2


def test_a_trial_that_was_run_again_after_a_fault_is_there_twice(tmp_path):
    target = str(tmp_path / "trials.log")
    write(run_of(region_trials(["machine"])), target)
    again = run_of(region_trials([0.5]))
    assert write(again, target) == Exported(1, 0, 0) and write(again, target) == Exported(0, 0, 1)
    assert [t.state for t in load(target, "tiny/Germany").trials] == [TrialState.FAIL, TrialState.COMPLETE]


def test_the_next_run_adds_to_the_same_studies(tmp_path):
    target = str(tmp_path / "trials.log")
    from dataclasses import replace

    today = run_of(region_trials([0.5]))
    narrower = (*SPACE[:1], Real("learning_rate", 0.0005, 0.05, log=True), *SPACE[2:])
    tomorrow = replace(run_of(region_trials([0.75], space=narrower)), run="run-tiny-2")
    assert write(today, target) == write(tomorrow, target) == Exported(1, 0, 0)
    assert [trial.value for trial in load(target, "tiny/Germany").trials] == [0.5, 0.75]
    other = (Choice("optimizer", ("adam", "rmsprop")), *SPACE[1:])
    with pytest.raises(RegiondagError, match="another storage"):
        write(replace(run_of(region_trials([0.5], space=other)), run="run-tiny-3"), target)
    with pytest.raises(RegiondagError, match="is there already, to maximize ndcg@5, and this run is to minimize loss"):
        write(run_of(region_trials([1.0], metric="loss", minimize=True)), target)


def test_pruned_trials_are_pruned(target):
    write(run_of(region_trials(["pruned"])), target)
    assert load(target, "tiny/Germany").trials[0].state == TrialState.PRUNED


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        (Real("x", 0.1, 0.3, step=0.1), 0.1 + 2 * 0.1, 0.3),  # one last digit beyond the end
        (Real("x", 1e-5, 1e-1, log=True), 0.1 + 1e-17, 0.1),
        (Real("x", 0.0, 1.0, step=0.25), 0.5, 0.5),
        (Integer("x", 8, 64, step=8), 24, 24),
        (Integer("x", 1, 3), 3, 3),
        (Choice("x", (1, True, "1")), True, "bool True"),
        (Choice("x", ("日本", "")), "", ""),
        (Choice("x", (1,)), 1, 1),
    ],
)
def test_values_are_legal_for_optuna(tmp_path, parameter, value, expected):
    target = str(tmp_path / "trials.log")
    write(run_of(region_trials([0.5], space=(parameter,), points=[{"x": value}])), target)
    [trial] = load(target, "tiny/Germany").trials
    assert trial.params == {"x": expected} and type(trial.params["x"]) is type(expected)


@pytest.mark.parametrize(("value"), [7.0, "seven", float("inf")])
def test_values_outside_the_space_become_attributes(tmp_path, value):
    target = str(tmp_path / "trials.log")
    points = [{"x": value if value != float("inf") else 1e400, "gone": 1}]
    if value == float("inf"):
        points[0]["x"] = 1e300
    write(run_of(region_trials([0.5], space=(Real("x", 0.0, 1.0),), points=points)), target)
    [trial] = load(target, "tiny/Germany").trials
    assert trial.params == {} and trial.user_attrs["outside the space"] == points[0]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names(target, name):
    write(run_of(region_trials([0.5], name)), target)
    assert load(target, f"tiny/{name}").best_value == 0.5


def test_the_command_on_a_run_in_progress(tmp_path, capsys):
    run = create(write_study(tmp_path, STUDY), tmp_path / "runs")
    folder, target = run.region("germany"), str(tmp_path / "trials.log")
    settle(folder, "germany", 0, 0.5)
    prepare_trial(folder, NodeName("germany", 1))
    argv = ["study", "export", str(run.path), "--optuna", target, "--csv", str(tmp_path / "trials.csv")]
    assert main(argv) == 0
    assert "2 studies, 2 trials new, 0 ended since the last export, 0 there before" in capsys.readouterr().err
    settle(folder, "germany", 1, 0.75)
    assert main(argv) == 0
    assert "0 trials new, 1 ended since the last export, 1 there before" in capsys.readouterr().err
    study = load(target, "tiny/Germany")
    proposals = Journal(folder.journal).read().proposals
    assert [trial.params for trial in study.trials] == [proposals[0].point, proposals[1].point]
    assert study.best_trial.user_attrs["metrics"] == {"ndcg@5": 0.75, "p@10": 0.375}
    assert load(target, "tiny/United Kingdom").trials == []


@pytest.mark.parametrize(
    ("target", "word"),
    [
        ("{folder}", "is a folder"),
        ("{folder}/no/trials.db", "there is no folder"),
        ("{folder}/study.yaml", "is no Optuna storage"),
        ("nosuchdb://host/x", "cannot be opened"),
        ("redis://me:secret@host/x", "cannot be opened"),
        ("sqlite:////nowhere/x.db", "cannot be opened"),
    ],
)
def test_what_is_no_storage(tmp_path, capsys, target, word):
    run = create(write_study(tmp_path, STUDY), tmp_path / "runs")
    before = (tmp_path / "study.yaml").read_bytes()
    assert main(["study", "export", str(run.path), "--optuna", target.format(folder=tmp_path)]) == 1
    err = capsys.readouterr().err
    assert word in err and "legal: a URL such as" in err and "secret" not in err and "Traceback" not in err
    assert (tmp_path / "study.yaml").read_bytes() == before


def test_a_database_that_is_not_optunas(tmp_path):
    with sqlite3.connect(tmp_path / "x.db") as database:
        database.execute("create table trials (a)")
    with pytest.raises(RegiondagError, match="--optuna"):
        write(run_of(region_trials([0.5])), tmp_path / "x.db")


def test_without_optuna_the_extra_is_named(tmp_path, capsys, monkeypatch):
    run = create(write_study(tmp_path, STUDY), tmp_path / "runs")
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["study", "export", str(run.path), "--optuna", str(tmp_path / "trials.log")]) == 1
    assert install_line("optuna") in capsys.readouterr().err


def test_passwords_are_not_shown():
    assert storage_name("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"
    assert storage_name("a:b@c.log") == "a:b@c.log"
    assert json.dumps(storage_name("sqlite:///x.db")) == '"sqlite:///x.db"'
