from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from regiondag.trial import REPORTS, TRIAL, Stopping, load, report


def test_what_a_job_tells(tmp_path, monkeypatch):
    (tmp_path / "t.json").write_text(json.dumps({"region": "North"}))
    monkeypatch.setenv(TRIAL, str(tmp_path / "t.json"))
    assert load(lr=1) == {"region": "North"}


def test_by_hand_it_is_the_file_here_or_what_is_given(tmp_path, monkeypatch):
    monkeypatch.delenv(TRIAL, raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError):
        load()
    trial = load(lr=0.1)
    assert (trial["hyperparameters"], trial["epochs"], trial["seed"]) == ({"lr": 0.1}, 1, 1)
    assert trial["artifact"] == str(tmp_path / "artifact") and (tmp_path / "checkpoint").is_dir()
    told = load(region="North", role="final", epochs=3, seed=2, lr=0.1)
    assert [told[name] for name in ("region", "role", "epochs", "seed", "trial")] == ["North", "final", 3, 2, 0]
    assert told["hyperparameters"] == {"lr": 0.1}
    (tmp_path / "trial.json").write_text('{"seed": 7}')
    assert load(lr=0.1) == {"seed": 7}


def test_reports_are_lines_of_json_or_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(REPORTS, str(tmp_path / "r.jsonl"))
    report(epoch=1, auc=0.5)
    report(auc=1)
    report(folds=(0.5, 1), values=3)
    with pytest.raises(TypeError):
        report(others=[1.0])
    with pytest.raises((TypeError, ValueError)):
        report(auc="high")  # type: ignore[arg-type]
    lines = (tmp_path / "r.jsonl").read_text().splitlines()
    assert list(map(json.loads, lines)) == [
        {"epoch": 1, "auc": 0.5},
        {"auc": 1.0},
        {"folds": [0.5, 1.0], "values": 3.0},
    ]
    monkeypatch.delenv(REPORTS)
    report(epoch=2, auc=0.25)
    report(folds=iter([0.5, 1]))
    assert capsys.readouterr().out == "epoch=2 auc=0.25\nfolds=2 values\n"


def test_a_program_can_ask_whether_to_leave():
    before = signal.getsignal(signal.SIGTERM)
    try:
        stopping = Stopping()
        assert not stopping
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping
    finally:
        signal.signal(signal.SIGTERM, before)


def test_it_needs_the_standard_library_alone():
    code = (
        "import sys, regiondag.trial; print([m for m in sys.modules if m.split('.')[0] in ('numpy', 'yaml', 'nnlib')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
