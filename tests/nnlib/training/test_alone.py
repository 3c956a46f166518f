"""One training at a time in a folder; what killed ones left is removed."""

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys

import pytest

from nnlib.errors import NnlibError
from nnlib.training.alone import LOCK_FILE, alone_in

HOLD = """
import sys
from pathlib import Path
from nnlib.training.alone import alone_in
with alone_in(Path(sys.argv[1])):
    print("in", flush=True)
    sys.stdin.read()
"""
PART = ".checkpoint.nc.4711.part"


def test_another_process_is_kept_out_and_told_by_whom_until_that_dies(tmp_path):
    program = [sys.executable, "-c", HOLD, tmp_path]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "in\n"
        (tmp_path / PART).touch()
        with pytest.raises(NnlibError) as error, alone_in(tmp_path):
            pass
        assert (tmp_path / PART).exists()  # perhaps it is being written
        other.send_signal(signal.SIGKILL)
        other.communicate()
    assert str(error.value) == (
        f"{tmp_path}: process {other.pid} on {socket.gethostname()} trains in this folder, and both would lose their "
        "checkpoints; legal: another folder, or this one when that training has ended"
    )
    with alone_in(tmp_path):
        assert (tmp_path / LOCK_FILE).read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"


def test_in_one_process_too(tmp_path):
    with alone_in(tmp_path):
        (tmp_path / LOCK_FILE).write_bytes(b"\xff")
        with pytest.raises(NnlibError, match=": another process trains in this folder"), alone_in(tmp_path):
            pass
    with alone_in(tmp_path):
        pass


def test_what_killed_trainings_left_is_removed_and_told(tmp_path, capsys):
    nested = ".." + PART[1:] + ".4711.part"  # of a NetCDF file that is written in the place of a part
    others = {"checkpoint.nc", "mine.part", ".model.nc.1.part", ".checkpoint.nc.old.part", ".checkpoint.nc.bak"}
    for name in (PART, nested, *others):
        (tmp_path / name).touch()
    with alone_in(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == others | {LOCK_FILE}
    assert capsys.readouterr().err == "".join(
        f"nnlib: removed {tmp_path / name}, which a killed training has left\n" for name in (nested, PART)
    )


def test_where_nothing_can_be_locked_it_is_told(tmp_path, capsys, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / PART).touch()
    with alone_in(tmp_path):
        assert (tmp_path / PART).exists()  # perhaps it is being written
    assert "checkpoint.lock cannot be locked (No locks available): nothing keeps a second" in capsys.readouterr().err


def test_other_faults_are_told_as_such(tmp_path):
    with pytest.raises(FileNotFoundError), alone_in(tmp_path / "none"):
        pass
