"""A Python function as trials on a real HTCondor pool, to its champion."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

import regiondag
from nnlib.util.packed import list_files
from regiondag.cli import main
from tests.workflows.on_pool.test_programs import generate
from tests.workflows.on_pool.test_study import finish, submit, summary

pytestmark = pytest.mark.condor

FIT = """\
from pathlib import Path

from regiondag.trial import report

import figures_of_test

def fit(rate, region, epochs, checkpoint, artifact):
    for epoch in range(1, epochs + 1):
        report(epoch=epoch, auc=0.0)
        (checkpoint / "epoch").write_text(str(epoch))
    (artifact / "rate.txt").write_text(str(rate))
    return {"auc": figures_of_test.TOP[region] - (rate - 0.3) ** 2, "size": 3}
"""


def test_a_function_to_its_champion(pool, run_area, capsys, monkeypatch):
    (run_area / "fit_on_pool.py").write_text(FIT)
    (run_area / "figures_of_test.py").write_text("TOP = {'North': 0.9}\n")
    monkeypatch.syspath_prepend(run_area)
    importlib.invalidate_caches()
    study = regiondag.Study.from_function(
        importlib.import_module("fit_on_pool").fit,
        regions=["North"],
        space={"rate": {"real": [0.01, 1.0], "log": True}},
        metric="auc",
        files=["figures_of_test.py"],
        train={"epochs": 2},
        search={"rounds": 1, "parallel": 2},
        job={"gpus": 0, "cpus": 1, "memory": "256MB", "disk": "100MB"},
    )
    for name in ("fit_on_pool", "figures_of_test"):
        sys.modules.pop(name, None)
    run = generate(study.folder.study, capsys)
    submit(run)
    assert finish(pool, run).exit_code == 0, (run.path / "manager.log").read_text()[-3000:]
    [row] = summary(run)["regions"]
    rate = row["hyperparameters"]["rate"]
    assert row["test"]["auc"] == pytest.approx(0.9 - (rate - 0.3) ** 2)
    result = json.loads((run.region("north").path / "trials" / "final" / "result.json").read_text())
    assert (result["metrics"]["size"], result["epochs"]) == (3, 2)
    assert main(["champions", "export", str(run_area), "North", "--to", str(run_area / "out")]) == 0
    assert list_files(run_area / "out")["artifact/rate.txt"].read_text() == str(rate)
    assert study.champion("North").recipe == "program"
