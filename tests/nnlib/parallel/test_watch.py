"""Ranks that get nowhere are found by what Linux says of them; those that are slow are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from nnlib.parallel.host import ARRIVED, AT_REST, COMPUTING, LINE, PHASE
from nnlib.parallel.watch import IDLE_LOOKS, STOPPED_LOOKS, Watch, describe_end, read_state


@pytest.fixture
def machine(tmp_path):
    """A /proc of two ranks, whose states a test writes."""

    def write(process, letter, ticks):
        folder = tmp_path / str(process)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(f"{process} (python) (x)) {letter} 1 2 3 4 5 6 7 8 9 10 {ticks} 3 0 0\n")

    write(10, "R", 5)
    write(11, "R", 5)
    words = np.zeros((2, LINE), np.int64)
    words[:, PHASE] = COMPUTING
    return Watch([10, 11], words, tmp_path), words, write


def looks(watch, count):
    return [watch.look() for _ in range(count)]


def test_what_a_process_does_is_read_whatever_its_name_is(tmp_path, machine):
    assert (read_state(10, tmp_path).letter, read_state(10, tmp_path).ticks) == ("R", 8)
    assert read_state(12, tmp_path) is None


def test_a_stopped_rank_is_named_after_two_seconds(machine):
    watch, _, write = machine
    write(11, "T", 5)
    assert not any(looks(watch, STOPPED_LOOKS - 1))
    assert watch.look() == (1, "is stopped, as by SIGSTOP")


def test_a_rank_that_goes_on_in_between_is_well(machine):
    watch, _, write = machine
    for _ in range(3):
        write(11, "T", 5)
        assert not any(looks(watch, STOPPED_LOOKS - 1))
        write(11, "R", 5)
        assert watch.look() is None


def test_a_rank_that_should_compute_and_takes_no_time_hangs(machine):
    watch, words, write = machine
    words[:, ARRIVED] = [9, 8]
    write(10, "S", 5)
    write(11, "S", 5)
    found = looks(watch, IDLE_LOOKS + 1)
    assert not any(found[:-1])
    assert found[-1][0] == 1 and "hangs" in found[-1][1] and "exchange 9" in found[-1][1]


@pytest.mark.parametrize("what", ["works", "reads", "arrives", "is first", "has time"])
def test_a_rank_that_does_something_does_not_hang(machine, what):
    watch, words, write = machine
    words[:, ARRIVED] = [9, 8]
    write(11, "S", 5)
    if what == "works":
        write(11, "R", 5)
    elif what == "reads":
        words[1, PHASE] = AT_REST
    elif what == "is first":
        words[0, ARRIVED] = 8
    for n in range(2 * IDLE_LOOKS):
        if what == "has time":
            write(11, "S", 6 + n // 5)
        elif what == "arrives":
            words[:, ARRIVED] = [9 + n // 5, 8 + n // 5]
        assert watch.look() is None


def test_real_processes_are_seen_as_they_are():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert read_state(process.pid).letter == "T"
        process.kill()
    assert read_state(process.pid) is None


@pytest.mark.parametrize(
    ("code", "said"),
    [(3, "exit code 3"), (-9, "was killed (SIGKILL)"), (-11, "signal 11 (SIGSEGV)"), (-77, "signal 77")],
)
def test_how_a_process_has_ended_is_said(code, said):
    assert said in describe_end(code)
