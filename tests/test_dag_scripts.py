"""The shell wrappers that DAGMan and workers run, with what can be wrong around them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnlib.contract import Exit
from regiondag.run.layout import SETTLED_BEFORE

SCRIPTS = Path(__file__).parents[1] / "scripts" / "dag"


@pytest.fixture
def run(tmp_path):
    for script in SCRIPTS.iterdir():
        (tmp_path / script.name).write_bytes(script.read_bytes())
        (tmp_path / script.name).chmod(0o755)
    return tmp_path


def call(run: Path, script: str, *words: str, **environment: str) -> int:
    command = [str(run / script), *words]
    return subprocess.run(command, check=False, cwd=run, env={**os.environ, **environment}).returncode


@pytest.mark.parametrize("script", ["pre.sh", "post.sh"])
def test_whatever_fails_never_looks_like_settled_before(run, script):
    words = (sys.executable, "code.py", "germany_t0000", "0", "0", "2", "0")
    assert call(run, script, *words) not in (0, SETTLED_BEFORE)  # there is no code.py
    (run / "code.py").write_text("import sys; sys.exit(0)")
    assert call(run, script, *words) == 0
    assert call(run, script, "/nowhere/python", *words[1:]) not in (0, SETTLED_BEFORE)
    (run / "manager.log").unlink()
    (run / "manager.log").mkdir()
    assert call(run, script, *words) not in (0, SETTLED_BEFORE)


def test_exit_codes_and_output_pass_through(run):
    (run / "code.py").write_text("import sys; print(sys.argv[1:]); sys.exit(77)")
    assert call(run, "pre.sh", sys.executable, "code.py", "germany_t0000", "1") == SETTLED_BEFORE
    assert call(run, "post.sh", sys.executable, "code.py", "report", "2", "germany") == 77
    first, second = (run / "manager.log").read_text().splitlines()
    assert first == str(["pre", str(run), "germany_t0000", "1"])
    assert second == str(["post", str(run), "report", "2", "germany"])


def test_a_worker_without_python_is_the_machines_fault_and_leaves_its_outputs(run):
    assert call(run, "train.sh", "code.pyz", PATH="/nowhere") == Exit.MACHINE
    assert all((run / name).exists() for name in ("result.json", "log.jsonl", "model.nc"))


@pytest.mark.parametrize("script", ["train.sh", "recommend.sh"])
def test_a_worker_takes_the_python_that_came_along(run, script):
    (run / "mine").write_text('#!/bin/sh\necho "$PYTHONNOUSERSITE $*" >seen\nexit 85\n')
    (run / "mine").chmod(0o755)
    (run / "python.bundle").write_text(f"echo {run}/mine\n")
    assert call(run, script, "code.pyz", "part-0") == 85
    assert (run / "seen").read_text().startswith("1 code.pyz ")
    (run / "python.bundle").write_text("echo it cannot >&2; exit 75\n")
    assert call(run, script, "code.pyz", "part-0") == Exit.MACHINE


def test_the_nightly_job_logs_what_the_update_says_and_passes_its_exit_code_on(run):
    (run / "__main__.py").write_text(
        "import os, sys\n"
        "print(sys.argv[1:], sorted(n for n in os.environ if 'CONDOR' in n or 'TMP' in n))\nsys.exit(5)\n"
    )
    environment = {"_CONDOR_JOB_AD": "/x", "_CONDOR_SCRATCH_DIR": "/y", "TMPDIR": "/z"}
    environment |= {"CONDOR_CONFIG": "/dev/null"}
    for _ in range(2):
        words = (sys.executable, str(run), str(run / "update.log"), "a b.yaml", "--submit")
        assert call(run, "nightly.sh", *words, **environment) == 5
    lines = (run / "update.log").read_text().splitlines()
    assert lines[1] == str(["update", "a b.yaml", "--submit"]) + " ['CONDOR_CONFIG']"
    assert [line for line in lines if "exit code" in line] == ["exit code 5"] * 2 and len(lines) == 6


def test_a_nightly_job_that_cannot_log_fails(run):
    assert call(run, "nightly.sh", sys.executable, str(run), "/nowhere/update.log", "x") != 0
