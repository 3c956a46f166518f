"""A job as it is tried: its processes, its variables, its time."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from nnlib.contract import PROGRAM_FILE, Metric, Role, Status, TrainSettings, Trial, sha256_of
from regiondag.errors import RegiondagError
from regiondag.study.program import Program, program_trial
from regiondag.trainers.archive import write_program
from regiondag.trainers.kit import Tried
from regiondag.trainers.trying import Bench, Interruption, find_below
from tests.workflows.trainers import programs

pytestmark = pytest.mark.slow


def try_program(bench: Bench, program: Program, interruption: Interruption | None = None, epochs: int = 3) -> Tried:
    archive = bench.folder / PROGRAM_FILE
    write_program(program, archive)
    train, metric = TrainSettings(epochs=epochs), Metric("auc")
    sha256 = {PROGRAM_FILE: sha256_of(archive)}
    trial: Trial = program_trial(
        "shop_tried", "shop", 0, Role.TUNE, space=(), point={}, train=train, metric=metric, sha256=sha256
    )
    return bench.try_job("job", trial, {PROGRAM_FILE: archive}, interruption)


@pytest.fixture
def bench(tmp_path):
    """Where jobs are tried; none of their processes is left."""
    folder = tmp_path / "bench"
    folder.mkdir()
    yield programs.make_bench(folder)
    assert find_below(folder) == []


def test_a_process_that_is_left_is_named_and_ended(tmp_path, bench):
    tried = try_program(bench, programs.write_program(tmp_path, programs.LEAVES_A_CHILD))
    assert tried.status is Status.OK
    assert tried.behind == ("sleep 600",)


def test_a_job_has_the_time_that_it_is_given(tmp_path, bench):
    text = "import time\nprint('begun')\ntime.sleep(600)\n"
    tried = try_program(replace(bench, timeout=1.0), programs.write_program(tmp_path, text))
    assert (tried.code, tried.status) == (None, None)
    assert "begun" in tried.output
    assert tried.reason == "it had not ended after 1 s"


def test_one_that_does_not_heed_sigterm_is_killed(tmp_path, bench):
    program = programs.write_program(tmp_path, programs.DEAF)
    interruption = Interruption(signal.SIGTERM, lambda look: look.epochs > 0)
    tried = try_program(replace(bench, patience=1.0), program, interruption, epochs=12000)
    assert (tried.code, tried.left, tried.signalled) == (None, None, True)


def test_what_it_reports_while_it_leaves_counts(tmp_path, bench):
    text = """
import signal, time
print("epoch=1 auc=0.5")
def leave(*_):
    print("epoch=2 auc=0.6")
    raise SystemExit(1)
signal.signal(signal.SIGTERM, leave)
time.sleep(600)
"""
    interruption = Interruption(signal.SIGTERM, lambda look: look.epochs > 0)
    tried = try_program(bench, programs.write_program(tmp_path, text), interruption)
    assert tried.status is Status.EVICTED
    assert [(one.epoch, one.value) for one in tried.log] == [(1, 0.5), (2, 0.6)]


def test_a_full_disk_is_the_machines_fault_whatever_the_exit_code(tmp_path, bench):
    text = "import errno, os\nprint('auc=0.5')\nraise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
    tried = try_program(bench, programs.write_program(tmp_path, text))
    assert (tried.code, tried.status) == (75, Status.MACHINE)
    assert "No space left on device" in tried.reason


def test_variables_of_ones_own_are_not_those_of_a_job(tmp_path, bench, monkeypatch):
    monkeypatch.setenv("MY_DATA", "/data")
    text = "import os\nprint('MY_DATA' in os.environ, os.environ['TMPDIR'])\nprint('auc=0.5')\n"
    tried = try_program(bench, programs.write_program(tmp_path, text))
    assert tried.output[0] == f"False {bench.folder / 'job' / 'tmp'}"


def test_a_python_that_is_not_there(tmp_path, bench):
    with pytest.raises(RegiondagError, match="no-python cannot be started: No such file or directory; give another"):
        try_program(replace(bench, python="no-python"), programs.write_program(tmp_path, programs.SILENT))
