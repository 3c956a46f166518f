"""The check at the end of a test run: nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.left_over import is_ours

ROOT = Path(__file__).parents[1]
CODE = "import sys; from tests.left_over import run_watched; sys.exit(run_watched(sys.argv[1:]))"


def watched(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CODE, *command], capture_output=True, text=True, cwd=ROOT, check=False, timeout=30
    )


def test_a_command_that_leaves_nothing_keeps_its_exit_code():
    assert (watched("sh", "-c", "exit 7").returncode, watched("true").stderr) == (7, "")
    assert watched("sh", "-c", "kill -9 $$").returncode == 128 + signal.SIGKILL


@pytest.mark.slow
def test_daemons_and_orphans_are_named_and_ended():
    """One whose parent has ended, and one in a session of its own, with a child."""
    done = watched("sh", "-c", "(sleep 1234 &); (setsid sh -c 'sleep 2345 & wait' &); sleep 0.3")
    assert done.returncode == 1
    named = [line.split(": ", 2)[2] for line in done.stderr.splitlines()]
    assert sorted(named) == ["sh -c sleep 2345 & wait", "sleep 1234", "sleep 2345"]
    for line in done.stderr.splitlines():
        assert not Path("/proc", line.split()[3].rstrip(":")).exists()


def test_orphans_that_have_ended_are_buried_while_the_command_goes_on():
    """Otherwise a test that looks in /proc for a process that it has killed would see it for ever."""
    script = "orphan=$(sh -c 'sleep 1234 >/dev/null & echo $!'); kill -9 $orphan; sleep 1; test ! -e /proc/$orphan"
    assert watched("sh", "-c", script).returncode == 0


def test_mounts_are_ours_where_we_work(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/some where")
    monkeypatch.setattr(tempfile, "tempdir", "/var/tmp")
    assert is_ours("/var/tmp/x") and is_ours("/var/some\\040where/x") and is_ours(f"{ROOT}/build")
    assert not is_ours("/mnt/stick") and not is_ours("/var/lib/docker/overlay2/x") and not is_ours("/")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_what_is_mounted_beside_a_command_was_not_left_by_it(tmp_path):
    """As a part of a run bakes an image while another one ends; what a command itself leaves is named."""
    mounting = 'mount -t tmpfs mine "$1"'
    with (
        beside("echo; read line") as ends,  # it knows what was mounted before
        beside(f"{mounting}; touch $1/on; echo; read line; ls $1; umount $1", str(tmp_path)) as goes_on,
    ):
        assert ends.communicate("\n", 30) == ("", "") and ends.returncode == 0
        assert goes_on.communicate("\n", 30) == ("on\n", "") and goes_on.returncode == 0
    done = watched("sh", "-c", mounting, "sh", str(tmp_path))
    assert (done.returncode, done.stderr) == (1, f"left behind: mount {tmp_path}\n")
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


@contextmanager
def beside(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a watched script, and wait for its first line, which is empty."""
    argv = [sys.executable, "-c", CODE, "sh", "-c", script, "sh", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, cwd=ROOT, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout and process.stdout.readline() == "\n"
        yield process


@pytest.mark.slow
def test_an_interrupted_command_is_looked_after_too():
    argv = [sys.executable, "-c", CODE, "sh", "-c", "trap 'exit 5' INT; sleep 3456 & echo; wait"]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )
    with process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert "sleep 3456" in process.stderr.read()
        assert process.wait(20) == 5
