"""Programs that are good, and that do one thing wrong each: all is told, and nothing of them is left."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from regiondag.study.program import Environment
from regiondag.trainers.examine import examine
from regiondag.trainers.kit import Finding, Verdict, holds
from regiondag.trainers.trying import find_below
from tests.workflows.trainers import programs
from tests.workflows.trainers.wheels import make_wheel, write_requirements

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path):
    """Where programs are tried; none of their processes is left."""
    folder = tmp_path / "bench"
    folder.mkdir()
    yield programs.make_bench(folder, patience=2.0)
    assert find_below(folder) == []


def findings_of(folder: Path, bench, text: str, *words: str, space=(), **others: str) -> dict[str, Finding]:
    program = programs.write_program(folder, text, *words, **others)
    found = {finding.tried: finding for finding in examine(programs.subject_of(program, space), bench)}
    print("\n".join(map(str, found.values())))
    return found


def bad_ones(found: dict[str, Finding]) -> dict[str, Verdict]:
    return {name: one.verdict for name, one in found.items() if one.verdict not in (Verdict.GOOD, Verdict.UNTRIED)}


def test_a_good_program(tmp_path, bench):
    found = findings_of(tmp_path, bench, programs.GOOD, space=programs.RATES)
    assert {finding.verdict for finding in found.values()} == {Verdict.GOOD}, found
    assert holds(found.values())
    assert "ends with the figure of an undisturbed training" in found["resume"].text
    assert found["last training"].text == "it leaves 1 file, 100 bytes"
    assert "another machine" in found["full disk"].text
    assert len(found) == 13


def test_one_that_does_not_read_what_it_has_saved(tmp_path, bench):
    found = findings_of(tmp_path, bench, programs.FORGETFUL)
    assert bad_ones(found) == {"resume": Verdict.WRONG, "last training": Verdict.MIND}
    assert "begins anew, although it was given" in found["resume"].text


def test_one_that_does_not_heed_sigterm(tmp_path, bench):
    found = findings_of(tmp_path, bench, programs.DEAF)
    assert bad_ones(found) == {"SIGTERM": Verdict.WRONG, "last training": Verdict.MIND}
    assert found["resume"].verdict is Verdict.UNTRIED


def test_a_script_that_hides_how_its_training_ended(tmp_path, bench):
    words = ("sh", "run.sh", "{epochs}", "{checkpoint}")
    found = findings_of(tmp_path, bench, programs.FORGETFUL, *words, run=programs.WRAPPED)
    assert found["SIGKILL"].verdict is Verdict.WRONG
    assert "half a training counts" in found["SIGKILL"].text


def test_a_script_that_goes_on_after_its_training_is_killed_in_the_training(tmp_path, bench):
    text = programs.FORGETFUL.replace("time.sleep(0.05)", "time.sleep(0.05 * (epoch > 2))")
    words = ("sh", "run.sh", "{epochs}", "{checkpoint}")
    found = findings_of(tmp_path, bench, text, *words, run=f"{programs.WRAPPED}sleep 1\n")
    assert found["SIGKILL"].verdict is Verdict.WRONG
    assert "half a training counts" in found["SIGKILL"].text


def test_one_that_needs_a_gpu_and_says_so_by_1(tmp_path, bench):
    text = "import os, sys\nprint('auc=0.5')\nsys.exit(os.environ.get('CUDA_VISIBLE_DEVICES') == '')\n"
    found = findings_of(tmp_path, bench, text)
    assert found["no GPU"].verdict is Verdict.WRONG
    assert "end with 75" in found["no GPU"].text
    assert found["another point"].verdict is Verdict.UNTRIED


def test_one_whose_model_is_not_there_when_the_disk_is_full(tmp_path, bench):
    found = findings_of(tmp_path, bench, programs.TALKS_OF_SUCCESS, "python", "train.py", "{artifact}")
    assert found["full disk"].verdict is Verdict.WRONG
    assert "a champion without its model" in found["full disk"].text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (programs.SILENT, "reported no auc"),
        (programs.NAN, "auc is nan"),
        (programs.FAILS, "ended with exit code 1: data.csv is not there"),
    ],
)
def test_where_the_start_fails_nothing_else_is_tried(tmp_path, bench, text, said):
    found = findings_of(tmp_path, bench, text)
    assert list(found) == ["start", "processes", "all else"]
    assert found["start"].verdict is Verdict.WRONG
    assert said in found["start"].text


def test_nothing_is_written_elsewhere(tmp_path, bench):
    program = programs.write_program(tmp_path, programs.SILENT)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if bench.folder not in path.parents}
    list(examine(programs.subject_of(program), bench))
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if bench.folder not in path.parents}
    del before[bench.folder], after[bench.folder]
    assert after == before
    assert list(bench.folder.iterdir())


def test_one_that_needs_packages_is_tried_with_them(tmp_path, bench, monkeypatch):
    monkeypatch.setenv("REGIONDAG_HOME", str(tmp_path / "home"))
    make_wheel(tmp_path / "wheels")
    text = "import greeting\n" + programs.GOOD
    program = programs.write_program(tmp_path, text)
    alone = {one.tried: one for one in examine(programs.subject_of(program, programs.RATES), bench)}
    assert "No module named 'greeting'" in alone["start"].text
    shutil.rmtree(bench.folder)
    bench.folder.mkdir()
    bench = programs.make_bench(bench.folder, patience=2.0)
    program = replace(program, environment=Environment(write_requirements(tmp_path)))
    found = {one.tried: one for one in examine(programs.subject_of(program, programs.RATES), bench)}
    assert {one.verdict for one in found.values()} == {Verdict.GOOD}, found
