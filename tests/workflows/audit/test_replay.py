"""Trials trained once more: equal in every bit, refused where inputs were changed, different where figures were."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nnlib.contract import Result, Status
from regiondag.audit.compare import Record, Replayed, compare
from regiondag.audit.replay import Python, _convolver, _name_gpus
from regiondag.cli import main
from regiondag.node.post import JobEnd, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.run.history import TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RunFolder
from tests.workflows.audit.test_verify import edit, flip
from tests.workflows.conftest import STUDY
from tests.workflows.generate.test_write_run import snapshot
from tests.workflows.trained import train, trained_run

pytestmark = pytest.mark.slow


@pytest.fixture
def run(trained, tmp_path):
    return RunFolder(shutil.copytree(trained.path, tmp_path / trained.path.name))


@pytest.fixture(autouse=True)
def _no_pool(monkeypatch, tmp_path):
    monkeypatch.setenv("REGIONDAG_HOME", str(tmp_path / "home"))


def replay(run, capsys, trial, *options):
    capsys.readouterr()
    code = main(["replay", str(run.path), "Germany", str(trial), *map(str, options)])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.mark.parametrize("trial", [1, "final"])
def test_the_same_bits_on_any_number_of_threads_and_nothing_written(run, capsys, monkeypatch, trial):
    before = snapshot(run.path)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")  # of whoever asks; no job has it
    for threads in ("1", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        monkeypatch.setattr("os.sched_getaffinity", lambda _, threads=threads: set(range(int(threads))))
        code, out, err = replay(run, capsys, trial)
        assert (code, err.count("trained again by nnlib-")) == (0, 1)
        assert "the same, bit by bit" in out and "what differs" not in out
    assert snapshot(run.path) == before


@pytest.mark.parametrize(
    ("ranks", "here", "named"),
    [
        (1, 8, ""),
        (4, 8, "0,1,2,3"),
        (8, 8, "0,1,2,3,4,5,6,7"),
        (8, 6, "0,1,2,3"),
        (4, 3, "0,1"),
        (4, 1, ""),
        (2, 2, "0,1"),
    ],
)
def test_a_replay_has_as_many_gpus_as_the_trial_if_there_are(monkeypatch, ranks, here, named):
    """Its bits need no more than one, its memory may."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    result, python = Result("n", Status.OK, ranks=ranks), Python(None, "python3", {"gpus": here})
    assert _name_gpus(result, python) == ({"CUDA_VISIBLE_DEVICES": named} if named else {})
    assert _name_gpus(None, python) == {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert _name_gpus(result, python) == {}


def test_a_replay_has_cudnn_where_the_trial_had_it():
    assert _convolver(Result("n", Status.OK, versions={"cudnn": "9.28.1"})) == "cudnn"
    assert _convolver(Result("n", Status.OK, versions={"cupy": "14.2.0"})) == _convolver(None) == "own"


def test_what_auto_chose_is_kept_to(tmp_path, capsys):
    """By a machine on which bf16 was faster, as here it may not be."""
    run = trained_run(tmp_path, STUDY.replace("epochs: 2", "epochs: 2, precision: bf16"), 1, final=False)
    place = run.region("germany").trial(NodeName("germany", 0))
    assert json.loads((place / "result.json").read_text())["precision"] == "bf16"
    raw = json.loads((place / "trial.json").read_text())
    edit(place / "trial.json", train=raw["train"] | {"precision": "auto"})
    code, out, _ = replay(run, capsys, 0, "--out", tmp_path / "again")
    assert code == 0 and "the same, bit by bit" in out
    assert json.loads((tmp_path / "again/trial.json").read_text()) == raw


def test_a_folder_that_keeps_what_was_trained(run, capsys, tmp_path):
    out = tmp_path / "kept"
    assert replay(run, capsys, "final", "--out", out)[0] == 0
    place = run.region("germany").trial(NodeName("germany", None))
    assert (out / "model.nc").read_bytes() == (place / "model.nc").read_bytes()
    assert json.loads((out / "result.json").read_text())["metrics"]
    code, _, err = replay(run, capsys, "final", "--out", out)
    assert code == 2 and "not an empty folder" in err
    code, _, err = replay(run, capsys, "final", "--out", run.path / "again")
    assert code == 2 and "lies in the run directory" in err and not (run.path / "again").exists()


@pytest.mark.parametrize("name", ["regions/germany/data.valid.nc", "regions/germany/network.json", "nnlib"])
def test_inputs_and_code_that_were_changed_are_refused(run, capsys, name):
    path = next(run.path.glob("nnlib-*.pyz")) if name == "nnlib" else run.path / name
    flip(path)
    code, out, err = replay(run, capsys, 1)
    assert (code, out) == (1, "") and f"{path}: its sha256 is" in err
    path.unlink()
    assert f"{path}: it is missing" in replay(run, capsys, 1)[2]


def test_a_trial_that_names_files_elsewhere_is_refused(run, capsys):
    edit(run.region("germany").trial(NodeName("germany", 1)) / "trial.json", sha256={"../../secret": "0" * 64})
    code, _, err = replay(run, capsys, 1)
    assert code == 1 and "names the input '../../secret'" in err


def test_code_that_the_run_has_no_longer_is_refused(run, capsys):
    edit(run.region("germany").trial(NodeName("germany", 1)) / "result.json", code="c" * 64)
    code, _, err = replay(run, capsys, 1)
    assert code == 1 and "trained by code with the sha256 cccccccccccc, which the run does not have" in err


def test_a_tampered_result_is_different(run, capsys):
    path = run.region("germany").trial(NodeName("germany", 1)) / "result.json"
    value = json.loads(path.read_text())["value"]
    edit(path, value=value + 1e-9)
    code, out, _ = replay(run, capsys, 1)
    assert code == 1 and "DIFFERENT from what the run recorded" in out
    assert "result.json: value" in out and "1e-09" in out and "not the one settled" in out


def test_a_tampered_result_is_different_also_where_it_claims_another_machine(run, capsys):
    """The journal has the digest of the true one."""
    path = run.region("germany").trial(NodeName("germany", 1)) / "result.json"
    edit(path, machine={"cpu": "Z80"}, value=0.123)
    code, out, _ = replay(run, capsys, 1)
    assert code == 1 and "another kind of machine: cpu Z80 then" in out and "DIFFERENT" in out


def test_a_tampered_journal_is_different(run, capsys):
    journal = run.region("germany").journal
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        if line["event"] == "settled" and line["trial"] == 1:
            line["value"] = 0.99
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, out, _ = replay(run, capsys, 1)
    assert code == 1 and "journal: value" in out and "result.json" not in out


def test_a_tampered_model_is_different_and_told_by_its_weights(run, capsys):
    place = run.region("germany").trial(NodeName("germany", None))
    flip(place / "model.nc")
    code, out, _ = replay(run, capsys, "final")
    assert code == 1 and "model: sha256" in out and "DIFFERENT" in out


def test_trials_that_never_ran_or_came_to_nothing_are_told(run, capsys):
    code, _, err = replay(run, capsys, 77)
    assert code == 1 and "germany_t0077 never ran, it was not even proposed" in err
    journal = Journal(run.region("germany").journal)
    with journal.locked():
        journal.append("reopened", trial=1)
    code, _, err = replay(run, capsys, 1)
    assert code == 1 and "germany_t0001 has not ended" in err
    settle_trial(run.region("germany"), NodeName("germany", 1), JobEnd(-1002, 0, 2))
    code, _, err = replay(run, capsys, 1)
    assert code == 1 and "came to nothing that could be compared: removed" in err
    assert replay(run, capsys, "1-2")[0] == 2
    assert main(["replay", str(run.path), "Atlantis", "1"]) == 2


def test_what_diverged_diverges_again_and_what_was_pruned_is_pruned(tmp_path, capsys):
    text = STUDY.replace("learning_rate: {real: [1e-3, 1e-1], log: true}", "learning_rate: {choice: [1e6]}")
    run = trained_run(tmp_path / "a", text.replace("epochs: 2", "epochs: 4, optimizer: sgd"), 1, final=False)
    assert Journal(run.region("germany").journal).read().settled[0].status == "diverged"
    code, out, _ = replay(run, capsys, 0)
    assert code == 0 and "the same, bit by bit" in out
    run = trained_run(tmp_path / "b", STUDY.replace("epochs: 2", "epochs: 4"), 0, final=False)
    region, node = run.region("germany"), NodeName("germany", 0)
    prepare_trial(region, node)
    edit(region.trial(node) / "trial.json", rungs=[[2, 0.999999]])
    settle_trial(region, node, JobEnd(train(region, node), 0, 2))
    assert Journal(region.journal).read().settled[0].status == "pruned"
    code, out, _ = replay(run, capsys, 0)
    assert code == 0 and "(pruned)" not in out and "the same, bit by bit" in out


def test_ctrl_c_leaves_nothing_behind(run, tmp_path):
    before = snapshot(run.path)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    trial = run.region("germany").trial(NodeName("germany", 1)) / "trial.json"
    raw = json.loads(trial.read_text())
    trial.write_text(json.dumps(raw | {"train": raw["train"] | {"epochs": 1_000_000, "stop_after": 0}}))
    before |= {str(trial.relative_to(run.path)): trial.read_bytes()}
    argv = [sys.executable, "-m", "regiondag", "replay", str(run.path), "Germany", "1"]
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(Path.cwd())}
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, env=environment, start_new_session=True)
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size > 1000 for path in temporary.glob(".replay-*/log.jsonl")):
        assert time.monotonic() < deadline and process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 130
    process.stderr.close()
    assert list(temporary.iterdir()) == [] and snapshot(run.path) == before


# --- what may differ where -------------------------------------------------------------------------------------

RESULT = Result(
    "germany_t0001",
    Status.OK,
    value=0.5,
    metrics={"ndcg@5": 0.5, "loss": 2.0},
    curve=(0.4, 0.5),
    best_epoch=2,
    epochs=2,
    examples=8,
    backend="numpy",
    host="w1",
    machine={"cpu": "EPYC", "architecture": "x86_64"},
    versions={"numpy": "2.4.6", "scipy": "1.17.1"},
)
SETTLED = TrialOutcome(1, "ok", "", 0.5, RESULT.metrics, curve=RESULT.curve, best_epoch=2)
RECORD = Record(SETTLED, RESULT, "d" * 64, (2.2, 2.1), "")


def judged(again, record=RECORD, losses=(2.2, 2.1)):
    return compare(record, Replayed(again, "e" * 64, losses, ""), final=False)


def moved(by):
    return replace(RESULT, value=0.5 + by, metrics={"ndcg@5": 0.5 + by, "loss": 2.0 + by}, curve=(0.4, 0.5 + by))


@pytest.mark.parametrize(
    "other", [{"machine": {"cpu": "Xeon"}}, {"versions": {"numpy": "2.2.4"}}, {"backend": "numba"}]
)
def test_on_another_kind_of_machine_figures_may_differ_a_little(other):
    assert not judged(moved(0.001)).same  # but not on the same
    verdict = judged(replace(moved(0.001), **other))
    assert verdict.same and not verdict.equal and verdict.other_kind
    assert not judged(replace(moved(0.03), **other)).same
    assert not judged(replace(RESULT, **other), losses=(2.2, 2.3)).same
    assert not judged(replace(RESULT, status=Status.DIVERGED, **other)).same
    assert judged(replace(RESULT, **other)).equal


def test_losses_are_compared_as_parts_of_themselves():
    big = replace(RESULT, value=200.0, metrics={"loss": 200.0}, curve=(210.0, 200.0))
    record = replace(RECORD, settled=replace(SETTLED, value=200.0, metrics=big.metrics, curve=big.curve), result=big)
    again = replace(big, value=201.0, metrics={"loss": 201.0}, curve=(211.0, 201.0), machine={"cpu": "Xeon"})
    assert judged(again, record).same
    assert not judged(replace(again, value=203.0), record).same


def test_a_gpu_of_the_same_type_must_give_the_same_bits_beside_any_processor():
    on_gpu = replace(RESULT, backend="cupy", gpu={"name": "H200"}, versions={"cupy": "14", "numpy": "2"})
    record = replace(RECORD, result=on_gpu)
    other = replace(on_gpu, machine={**RESULT.machine, "cpu": "Xeon"}, versions={"cupy": "14", "numpy": "3"})
    assert judged(other, record).equal and judged(other, record).other_kind == ()
    assert judged(replace(other, gpu={"name": "L4"}), record).other_kind == ("GPU H200 then, L4 now",)


def test_what_diverged_elsewhere_is_not_the_same():
    diverged = Result("n", Status.DIVERGED, "epoch 3, batch 1: the loss is nan", host="w1", machine=RESULT.machine)
    record = replace(RECORD, settled=TrialOutcome(1, "diverged"), result=diverged)
    assert judged(diverged, record).equal
    assert not judged(diverged, record, losses=(2.2,)).same
    assert not judged(diverged, replace(record, losses=())).same


def test_a_run_of_before_machines_were_recorded():
    old = replace(RESULT, machine={})
    assert judged(replace(RESULT, host="w2"), replace(RECORD, result=old)).other_kind[0].startswith("the run did not")
    assert judged(RESULT, replace(RECORD, result=old)).other_kind == ()
