"""A run's beginning in today's time, whatever was done to the clock since."""

from __future__ import annotations

import json
import os
import time

import pytest

from regiondag.cli import main
from regiondag.run import start_time
from regiondag.run.layout import RunFolder, dagman_file
from regiondag.run.start_time import has_expired, note_start, read_jump, read_start
from tests.support.made_up_run import Shape, write_run

HOUR = 3600.0


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path)


@pytest.mark.parametrize("jump", [-26 * HOUR, -HOUR, -61.0, 61.0, HOUR, 3 * 24 * HOUR])
def test_a_clock_that_is_set_moves_neither_the_beginning_nor_the_deadline(run, monkeypatch, jump):
    now = time.time()
    assert note_start(run, now) == now and read_jump(run) == 0
    monkeypatch.setattr(start_time.time, "time", lambda: now + jump)
    assert read_start(run) == pytest.approx(now + jump, abs=5)
    assert read_jump(run) == pytest.approx(jump, abs=5)
    assert not has_expired(run, 600, now + jump) and has_expired(run, 600, now + jump + 700)


@pytest.mark.parametrize("jump", [-59.0, 0.0, 59.0])
def test_drift_is_no_jump(run, monkeypatch, jump):
    now = time.time()
    note_start(run, now)
    monkeypatch.setattr(start_time.time, "time", lambda: now + jump)
    assert read_start(run) == now and read_jump(run) == 0


def test_time_that_passes_is_no_jump(run, monkeypatch):
    now, booted = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
    note_start(run, now)
    monkeypatch.setattr(start_time.time, "time", lambda: now + HOUR)
    monkeypatch.setattr(start_time, "_since_boot", lambda: booted + HOUR)
    assert read_start(run) == now and has_expired(run, 600, now + HOUR)


@pytest.mark.parametrize("boot", ["", "another", 7, None])
def test_after_another_boot_the_clock_is_believed(run, monkeypatch, boot):
    now = time.time()
    note_start(run, now)
    run.started.write_text(json.dumps(json.loads(run.started.read_text()) | {"boot": boot}))
    monkeypatch.setattr(start_time.time, "time", lambda: now + HOUR)
    assert read_start(run) == now and read_jump(run) == 0


def test_runs_of_before_have_the_time_alone(run):
    run.started.write_text('{"started": 1000.5}')
    assert read_start(run) == 1000.5 and read_jump(run) == 0


def test_status_says_that_the_clock_was_set(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("REGIONDAG_HOME", str(tmp_path))
    monkeypatch.setattr("regiondag.pool.pool.find_pool", lambda name=None: None)
    run = write_run(tmp_path / "run", Shape(regions=1, trials=8))
    out = dagman_file(run.study_dag, "dagman.out")
    out.write_text("")
    assert main(["status", str(run.path)]) == 0 and "clock" not in capsys.readouterr().err
    os.utime(out, (time.time() + 3 * HOUR,) * 2)
    assert main(["status", str(run.path)]) == 0
    told = capsys.readouterr().err
    assert "clock was set back by 3.0 h or more" in told and "condor_restart -schedd" in told
    os.utime(out)
    note_start(run, time.time() - HOUR)
    assert main(["status", str(run.path)]) == 0
    assert "clock was set forward by 60 min since the run began" in capsys.readouterr().err
