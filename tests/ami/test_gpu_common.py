"""Running programs that may never end, and telling how they did."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.ami.gpu_fakes import load, pci_device


@pytest.fixture
def common() -> ModuleType:
    return load("gpu_common")


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_program_that_ends(common):
    ended = common.run_within(60, python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"))
    assert (ended.code, ended.output, ended.errors) == (3, "out\n", "err\n")
    assert ended.failure == "exit code 3: err"


def test_success_is_no_failure_whatever_was_said(common):
    ended = common.run_within(60, python("import sys; print('warning', file=sys.stderr)"))
    assert (ended.code, ended.failure) == (0, "")


@pytest.mark.parametrize(
    ("code", "errors", "failure"),
    [
        (1, "", "exit code 1"),
        (1, "a\nb\n\n", "exit code 1: b"),
        (-11, "", "ended by signal 11"),
        (None, "stuck\n", "did not end in time: stuck"),
    ],
)
def test_failures_in_a_few_words(common, code, errors, failure):
    assert common.Ended(code, "", errors).failure == failure


def test_no_such_program(common):
    ended = common.run_within(1, ["/nowhere/program"])
    assert ended.code == 127
    assert "/nowhere/program" in ended.failure


def test_output_that_is_no_text(common):
    ended = common.run_within(60, python("import os; os.write(1, bytes([255, 254, 10]))"))
    assert ended.output == "\ufffd\ufffd\n"


def test_all_that_was_started_is_ended_and_what_it_said_is_kept(common):
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    ended = common.run_within(2, python(code))
    assert ended.code is None
    grandchild = int(ended.output)
    deadline = time.monotonic() + 10
    while alive(grandchild) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(grandchild)


def test_what_cannot_even_be_killed_is_left_behind(common, monkeypatch):
    kill, started = os.killpg, []
    monkeypatch.setattr(common.os, "killpg", lambda pid, _: started.append(pid))
    monkeypatch.setattr(common, "GRACE_SECONDS", 0.2)
    with pytest.warns(ResourceWarning, match="is still running"):
        ended = common.run_within(0.2, ["sleep", "60"])
    assert ended.failure == "did not end in time"
    [pid] = started
    kill(pid, 9)
    os.waitpid(pid, 0)


def test_gpus_are_told_from_other_devices(common, tmp_path):
    assert common.nvidia_gpus(tmp_path) == []
    pci_device(tmp_path, "0000:00:1f.0", kind="0x030200")
    pci_device(tmp_path, "0000:00:1e.0", kind="0x030000")
    pci_device(tmp_path, "0000:00:1e.1", kind="0x040300")  # sound
    pci_device(tmp_path, "0000:00:1d.0", kind="0x068000")  # an NVSwitch
    pci_device(tmp_path, "0000:00:03.0", vendor="0x1d0f", kind="0x030000")  # Amazon's VGA
    (tmp_path / "bus/pci/devices/0000:00:02.0").mkdir()  # one that went away
    assert common.nvidia_gpus(tmp_path) == ["0000:00:1e.0", "0000:00:1f.0"]
