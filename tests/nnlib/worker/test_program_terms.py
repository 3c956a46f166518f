"""Programs whose metric is in files, whose best value counts, and that have so many seconds: real `nnlib train`."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import pytest

from nnlib.contract import Role, Status, Terms
from nnlib.util.packed import list_files, unpack
from nnlib.worker.program_archive import Program, program_to_json
from tests.nnlib.worker.test_program_job import TRIAL, result_of, run, start, wait_for_epochs, write_job

IN_FILE = Terms("csv", "logs/*.csv", best=True)
LOGS = """
import os, sys, time
from pathlib import Path
Path("logs").mkdir()
log = open("logs/metrics.csv", "w", buffering=1)
print("auc=1", file=log)
log.seek(0)
print("epoch,loss,auc", file=log)
for epoch, auc in enumerate([0.5, 0.9, 0.7, 0.6]):
    print("auc=0.99")
    print(f"{epoch},0.1,", file=log)
    print(f"{epoch},,{auc}", file=log)
    time.sleep(float(os.environ.get("PAUSE", 0)))
Path("artifact/a").touch()
"""
WAITS = """
import json, time
from regiondag.trial import Stopping, load, report
trial, stopping, epoch = load(), Stopping(), 0
told = open("artifact/told", "w")
print(trial["seconds"], file=told, flush=True)
while not stopping:
    epoch += 1
    report(epoch=epoch, auc=1 / epoch)
    open("checkpoint/epoch", "w").write(str(epoch))
    time.sleep(0.2)
print("ended", file=told)
told.close()
"""


def test_a_manifest_without_terms_is_as_it_was():
    assert "terms" not in json.loads(program_to_json(Program(("a",))))


def test_the_best_of_a_csv_counts_with_its_epoch_and_lines_do_not(tmp_path):
    result = run(tmp_path, LOGS, terms=IN_FILE)
    assert (result.value, result.best_epoch, result.epochs) == (0.9, 2, 4), result
    assert result.curve == (0.5, 0.9, 0.7, 0.6) and result.metrics == {"auc": 0.9}
    last = run(tmp_path / "last", LOGS, terms=replace(IN_FILE, best=False))
    assert (last.value, last.best_epoch) == (0.6, 4)
    final = run(tmp_path / "final", LOGS, replace(TRIAL, role=Role.FINAL, number=-1), terms=IN_FILE)
    assert final.value == 0.6, "the last training says at its end what its test gave"


def test_a_program_is_pruned_by_what_is_in_its_file(tmp_path, monkeypatch):
    monkeypatch.setenv("PAUSE", "1.5")
    result = run(tmp_path, LOGS, replace(TRIAL, rungs=((1, 0.6),)), terms=IN_FILE)
    assert result.status is Status.PRUNED and len(result.curve) < 4 and result.value == max(result.curve)


def test_a_file_without_the_metric_is_told_with_what_is_in_it(tmp_path):
    result = run(tmp_path, LOGS.replace("loss,auc", "loss,val_auc"), terms=IN_FILE)
    assert result.status is Status.BAD_INPUT
    assert "csv logs/*.csv: 1 files, with epoch, loss, val_auc" in result.reason


def test_after_its_seconds_a_program_ends_and_its_value_counts(tmp_path):
    final = replace(TRIAL, role=Role.FINAL, number=-1)
    result = run(tmp_path, WAITS, final, terms=Terms(seconds=2))
    assert (result.status, result.reason) == (Status.OK, "ended after its 2 seconds")
    assert result.value == result.curve[-1] and len(result.curve) > 2
    unpack(tmp_path / "model.zip", tmp_path / "model")
    assert (tmp_path / "model" / "told").read_text() == "2\nended\n"
    best = run(tmp_path / "best", WAITS, terms=Terms(best=True, seconds=2))
    assert (best.value, best.best_epoch) == (1.0, 1)


def test_values_of_many_cases_come_back_with_the_result(tmp_path):
    code = "from regiondag.trial import report\nreport(epoch=1, values=[i / 99_999 for i in range(100_000)])"
    result = run(tmp_path, code)
    assert result.value == pytest.approx(0.5) and len(result.cases) == 100_000 and not result.folds
    assert result.stderr == pytest.approx((1 / 12) ** 0.5 / 100_000**0.5, rel=1e-3)
    code = "import json\njson.dump({'auc': 0.9, 'folds': [0.8, 1.0]}, open('result.json', 'w'))"
    folds = run(tmp_path / "folds", code)
    assert (folds.value, folds.cases, folds.folds) == (0.9, (0.8, 1.0), True)
    bad = run(tmp_path / "bad", code.replace("[0.8, 1.0]", "[]"))
    assert bad.status is Status.BAD_INPUT and "folds: legal: a list of 1 to 100,000 numbers" in bad.reason


def test_seconds_without_a_figure_are_a_failed_trial(tmp_path):
    result = run(tmp_path, "import time\ntime.sleep(60)", terms=Terms(seconds=1))
    assert (result.status, result.reason) == (Status.DIVERGED, "the program reported no auc in its 1 seconds")


def test_a_resumed_program_has_what_is_left(tmp_path):
    process = start(write_job(tmp_path, WAITS, terms=Terms(seconds=60)))
    wait_for_epochs(tmp_path, 6)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert result_of(tmp_path).status is Status.EVICTED
    process = start(tmp_path)
    told = tmp_path / "program" / "artifact" / "told"
    wait_for_epochs(tmp_path, 1)
    while not (told.exists() and told.read_text().endswith("\n")):
        assert process.poll() is None
    left = int(told.read_text())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert 50 <= left <= 58 and list_files(tmp_path)
