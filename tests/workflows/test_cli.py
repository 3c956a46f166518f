from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workflows.conftest import STUDY, write_study
from tests.workflows.test_rundir import snapshot
from workflows import cli
from workflows.cli import COMMANDS, main
from workflows.errors import RegiondagError

ROOT = Path(__file__).parents[2]


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert all(re.search(rf"^    {command} ", shown, re.MULTILINE) for command in COMMANDS) and "exit codes" in shown


@pytest.mark.parametrize("argv", [[], ["nope"], ["validate"], ["status", "x", "--nope"], ["gen", "study.yaml"]])
def test_wrong_arguments_exit_2(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2 and "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"), [(RegiondagError("why"), 1), (KeyboardInterrupt(), 130), (ZeroDivisionError("x"), 3)]
)
def test_exit_codes_of_errors(error, code, monkeypatch, capsys):
    def fail(_):
        raise error

    monkeypatch.setattr("workflows.commands.report.run", fail)
    assert main(["report", "x"]) == code
    err = capsys.readouterr().err
    assert ("Traceback" in err) == (code == 3) and (code != 1 or err == "regiondag: why\n")


def test_mistakes_in_the_study_exit_2_and_write_nothing(tmp_path, capsys):
    study = write_study(tmp_path, STUDY.replace("rounds: 2", "rounds: two").replace("epochs: 2", "epoch: 2"))
    before = snapshot(tmp_path)
    for command in ("validate", "generate"):
        assert main([command, str(study)]) == 2
        err = capsys.readouterr().err
        assert "study.yaml:10: search.rounds: seen 'two'" in err and "did you mean 'epochs'" in err
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("damage", [lambda b: b"hello", lambda b: b[: len(b) // 2], lambda b: b""])
def test_damaged_data_is_named_with_its_file(study_file, tmp_path, capsys, damage):
    file = tmp_path / "data" / "uk.valid.nc"
    file.write_bytes(damage(file.read_bytes()))
    assert main(["validate", str(study_file)]) == 2
    err = capsys.readouterr().err
    assert "United Kingdom" in err and "uk.valid.nc" in err


def test_validate_says_what_a_study_amounts_to(study_file, capsys):
    assert main(["validate", str(study_file)]) == 0
    assert "2 regions, 8 trials, 8 data files" in capsys.readouterr().out


def test_the_example_is_a_whole_study(tmp_path, capsys):
    folder = tmp_path / "retail"
    assert main(["init", "retail", str(folder)]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "study.yaml")
    assert (folder / "DATA.md").exists() and (folder / "network.json").exists()
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4_000_000
    assert main(["init", "retail", str(folder)]) == 2
    assert main(["init", "nope", str(tmp_path / "x")]) == 2
    assert "there is: retail" in capsys.readouterr().err


def test_generate_prints_the_run_directory_alone_on_stdout(study_file, capsys):
    assert main(["generate", str(study_file), "--htcondor", "23.9"]) == 0
    run = Path(capsys.readouterr().out.strip())
    assert json.loads((run / "manifest.json").read_text())["versions"]["htcondor"] == "23.9.0"


@pytest.mark.parametrize(("version", "word"), [("x", "not an HTCondor version"), ("10.0", "older than 23.9")])
def test_versions_that_cannot_be(study_file, capsys, version, word):
    assert main(["generate", str(study_file), "--htcondor", version]) == 2
    assert word in capsys.readouterr().err


@pytest.mark.parametrize("command", ["report", "status", "doctor", "submit"])
def test_a_folder_that_is_no_run(tmp_path, capsys, command):
    assert main([command, str(tmp_path)]) == 1
    assert "is not a run directory" in capsys.readouterr().err


def test_a_run_that_was_moved_is_not_submitted(study_file, tmp_path, capsys):
    assert main(["generate", str(study_file)]) == 0
    run = Path(capsys.readouterr().out.strip())
    moved = run.rename(run.with_name("moved"))
    assert main(["submit", str(moved)]) == 1
    assert "was made as" in capsys.readouterr().err


def test_report_of_a_run_that_has_not_begun(study_file, capsys):
    assert main(["generate", str(study_file)]) == 0
    run = capsys.readouterr().out.strip()
    assert main(["report", run]) == 1
    assert "unfinished" in capsys.readouterr().out
    assert main(["report", run, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["finished"] is False


def test_a_closed_pipe_is_no_error(study_file):
    command = f"{sys.executable} -m workflows validate {study_file} | true"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stderr == ""


def test_version(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert re.fullmatch(r"regiondag \d+\.\d+\.\d+\n", capsys.readouterr().out)
