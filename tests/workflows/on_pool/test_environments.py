"""Environments that go with programs' jobs, on a real HTCondor pool whose machines lack what they bring."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from regiondag.cli import main
from regiondag.condor.environments import RECIPE_PYTHON, python_of
from regiondag.run.layout import NodeName, RunFolder
from tests.workflows.conftest import write_study
from tests.workflows.on_pool.test_programs import generate
from tests.workflows.on_pool.test_study import finish, result_of, submit
from tests.workflows.trainers.wheels import make_wheel, write_requirements

pytestmark = pytest.mark.condor

STUDY = """\
study: environments
regions: [{{name: North}}, {{name: South}}]
trainer:
  command: [python, train.py, "{{rate}}"]
  files: [train.py]
  metric: {{name: auc}}
  environment: {}
search: {{rounds: 1, parallel: 1, space: {{rate: {{real: [0.01, 1.0]}}}}}}
job: {{gpus: 0, cpus: 1, memory: 256MB, disk: 100MB}}
"""
PROGRAM = """\
import greeting, sys
from pathlib import Path
from regiondag.trial import load
trial = load()
Path(trial["artifact"], "where.txt").write_text(greeting.VALUE)
print(f"auc={greeting.VALUE}")
"""


def write(folder: Path, environment: str) -> Path:
    (folder / "train.py").write_text(PROGRAM)
    return write_study(folder, STUDY.format(environment))


def train(pool, run: RunFolder) -> None:
    submit(run)
    assert finish(pool, run).exit_code == 0, (run.path / "manager.log").read_text()[-3000:]


def test_packages_of_a_list_go_with_the_jobs(pool, run_area, capsys, monkeypatch):

    make_wheel(run_area / "wheels")
    write_requirements(run_area)

    monkeypatch.setenv("XDG_CACHE_HOME", str(run_area / "cache"))
    study = write(run_area, f"{{file: requirements.txt, python: '{python_of(pool)}'}}")
    run = generate(study, capsys)
    first, second = (run.region(slug).environment for slug in ("north", "south"))
    assert first.samefile(second), "regions share what is large"
    assert main(["doctor", str(run.path)]) == 0
    assert "ok   environment of north, south: for Python 3." in capsys.readouterr().out
    train(pool, run)
    assert result_of(run.region("north").trial(NodeName("north", None))).value == 0.25
    capsys.readouterr()
    assert main(["verify", str(run.path)]) == 0
    assert main(["replay", str(run.path), "north", "final"]) == 0
    assert "the same, bit by bit" in capsys.readouterr().out

    # The next night: nothing, and then another version of the package.
    assert main(["update", str(study)]) == 0
    said = capsys.readouterr()
    assert said.out == "" and "left out, its program and files are those of" in said.err and "is built" not in said.err
    make_wheel(run_area / "wheels", text="VALUE = '0.75'\n")
    again = generate(study, capsys, "update")
    train(pool, again)
    assert result_of(again.region("south").trial(NodeName("south", None))).value == 0.75
    assert main(["verify", str(run.path)]) == 0


def test_a_whole_environment_goes_with_the_jobs(pool, run_area, capsys):
    tree = run_area / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "mine").mkdir()
    (tree / "mine/greeting.py").write_text("VALUE = '0.5'\n")
    script = f'#!/bin/sh\nPYTHONPATH=$(dirname "$0")/../mine:$PYTHONPATH exec {RECIPE_PYTHON} "$@"\n'
    (tree / "bin/python").write_text(script)
    (tree / "bin/python").chmod(0o755)
    with tarfile.open(run_area / "env.tar.gz", "w:gz") as tape:
        tape.add(tree, "env")
    run = generate(write(run_area, "env.tar.gz"), capsys)
    train(pool, run)
    assert result_of(run.region("north").trial(NodeName("north", 0))).value == 0.5


def test_doctor_knows_that_the_pool_has_another_python(pool, run_area, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(run_area / "cache"))
    make_wheel(run_area / "wheels")
    write_requirements(run_area)
    run = generate(write(run_area, "{file: requirements.txt, python: '3.7'}"), capsys)
    assert main(["doctor", str(run.path)]) == 6
    out, there = " ".join(capsys.readouterr().out.split()), python_of(pool)
    assert "BAD environment of north, south: for Python 3.7 of the worker" in out
    assert f'this pool runs jobs with Python {there}; for requirements.txt say python: "{there}"' in out
