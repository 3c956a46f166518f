"""A run directory that is put back as a whole from a copy of while it went on: HTCondor knows more than it does."""

from __future__ import annotations

import json
import subprocess

import pytest

from regiondag.audit import forgotten_jobs
from regiondag.cli import main
from regiondag.run.layout import RunFolder
from tests.workflows.conftest import STUDY
from tests.workflows.on_pool.test_study import champions, finish, generate, slow_down, submit, wait

pytestmark = pytest.mark.condor

KNOWS = "of which its own logs do not know: it is older"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """A job is no younger than that in these tests, and would wait for it else."""
    monkeypatch.setattr(forgotten_jobs, "SLACK", 0.0)


def verify(run, capsys, *options):
    capsys.readouterr()
    code = main(["verify", str(run.path), *options])
    told = capsys.readouterr()
    return code, told.out, told.err


def put_back(run, copy):
    """Put a run back as an operator does, from an archive."""
    aside = run.path.rename(run.path.with_name("newer"))
    subprocess.run(["tar", "-xf", copy, "-C", run.path.parent], check=True)
    return RunFolder(aside)


def test_a_run_that_is_put_back_from_mid_run_after_it_ended(pool, run_area, tmp_path, capsys):
    run = generate(run_area, capsys, STUDY.replace("rounds: 2", "rounds: 2\n  share: off"))
    slow_down(run, 4)
    submit(run)
    wait(pool, run, lambda status: sum(region.done for region in status.regions) >= 2, "two trials")
    copy = tmp_path / "run.tar"
    subprocess.run(["tar", "-cf", copy, "-C", run.path.parent, run.path.name], check=True)
    _, said, told = verify(run, capsys)
    assert KNOWS not in said and "not checked" not in told, "it goes on, and knows all that HTCondor does"
    assert finish(pool, run).exit_code == 0
    assert KNOWS not in verify(run, capsys)[1]
    served = champions(run)
    newer = put_back(run, copy)
    code, said, _ = verify(run, capsys)
    [line] = [line for line in said.splitlines() if KNOWS in line]
    assert code == 1 and line.startswith(f"{run.path.name}: HTCondor knows ") and "what serves is safe" in line
    assert f"type `regiondag submit {run.path}`" in line
    capsys.readouterr()
    assert main(["status", str(run.path)]) == 0
    assert f"older copy; type: regiondag verify {run.path}" in " ".join(capsys.readouterr().err.split())
    submit(run)  # as it says
    assert finish(pool, run).exit_code == 0 and champions(run) == served
    assert KNOWS in verify(run, capsys)[1], "jobs of the time that was lost are still nobody's"
    run.path.rename(run.path.with_name("older"))
    newer.path.rename(run.path)
    found = json.loads(verify(run, capsys, "--json")[1])
    assert found["unchecked"] == [] and any(KNOWS in one["seen"] for one in found["findings"]), "nor of the newer one"


def test_a_run_that_cannot_be_looked_up_says_so(pool, run_area, tmp_path, capsys):
    run = generate(run_area, capsys)
    code, said, told = verify(run, capsys, "--pool", "none-of-this-name")
    assert (code, said) == (0, "") and "not checked: whether HTCondor knows more" in told
    assert json.loads(verify(run, capsys, "--json", "--pool", "none-of-this-name")[1])["unchecked"]
    moved = RunFolder(run.path.rename(tmp_path / run.path.name))
    code, said, told = verify(moved, capsys)
    assert (code, said) == (0, "") and f"this run was made as {run.path}" in told
