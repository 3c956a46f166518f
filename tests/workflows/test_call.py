"""Functions that are called as trials: what they get, and what becomes of what they return."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from regiondag.call import arguments_of, figures_of

FIT = """\
import os
from dataclasses import dataclass

import beside

@dataclass
class Model:
    rate: float

def fit(rate, region, checkpoint, *, artifact, seed=0, unasked=1, **others):
    assert __name__ == "fit" and Model(rate).rate == rate
    os.chdir("/")
    (artifact / "told.txt").write_text(f"{region} {seed} {unasked} {others} {checkpoint.name}")
    return {"auc": beside.HALF + rate, "stderr": 0.25}

def text():
    return "0.5"

def nothing(metric, role, trial, epochs):
    print(metric, role, trial, epochs)
"""


def call(folder: Path, function: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "regiondag.call", f"lib/fit.py:{function}"]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )


@pytest.fixture
def job(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "fit.py").write_text(FIT)
    (tmp_path / "lib" / "beside.py").write_text("HALF = 0.5\n")
    facts = {"region": "North", "trial": 3, "role": "tune", "seed": 7, "epochs": 9, "seconds": None}
    facts |= {"hyperparameters": {"rate": 0.25, "depth": 2}, "metric": {"name": "auc", "mode": "max"}}
    for name in ("checkpoint", "artifact"):
        (tmp_path / name).mkdir()
        facts[name] = str(tmp_path / name)
    (tmp_path / "trial.json").write_text(json.dumps(facts))
    return tmp_path


def test_it_gets_what_it_names_and_its_figures_are_the_result(job):
    done = call(job, "fit")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((job / "result.json").read_text()) == {"auc": 0.75, "stderr": 0.25}
    assert (job / "artifact" / "told.txt").read_text() == "North 7 1 {'depth': 2} checkpoint"


def test_what_returns_nothing_leaves_it_to_its_reports(job):
    done = call(job, "nothing")
    assert (done.returncode, done.stdout) == (0, "auc tune 3 9\n")
    assert not (job / "result.json").exists()


def test_what_returns_no_number_is_nobodys_to_retry(job):
    done = call(job, "text")
    assert done.returncode == 4
    assert "text returned '0.5', legal: a number, or a dict of them" in done.stderr
    assert not (job / "result.json").exists()


@pytest.mark.parametrize("wrong", ["0.5", b"1", [1, 2], {"auc": None}, {"auc": "1"}, object()])
def test_results_that_are_none(wrong):
    with pytest.raises((TypeError, ValueError)):
        figures_of(wrong, "auc")


def test_a_job_s_facts_count_before_hyperparameters_of_their_names():
    facts = {name: name for name in ("region", "trial", "role", "seed", "seconds", "checkpoint", "artifact")}
    trial = {**facts, "epochs": 5, "hyperparameters": {"epochs": 5, "rate": 1}, "metric": {"name": "auc"}}
    assert arguments_of(lambda epochs, metric, *more: None, trial) == {"epochs": 5, "metric": "auc"}
    assert arguments_of(lambda **all_of_them: None, trial) == {"epochs": 5, "rate": 1}
