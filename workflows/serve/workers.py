"""Several processes that serve one socket: begun again when one dies, ended together."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from types import FrameType

from nnlib.util.process import catch_signals

SOON = 5.0  # seconds; a worker that lives shorter has not come to serve
MOST_SOON = 3  # such workers, one after the other, until the service gives up
PATIENCE = 45.0  # seconds for workers to end, once they are told to


def run_workers(count: int, work: Callable[[int], int], say: Callable[[str], None]) -> int:
    """Run `work` of the numbers 0 to count - 1, each in a process; return 0 when they were told to end, 1 if they fail.

    A signal that tells this process to end is passed on; KeyboardInterrupt for Ctrl-C, once all have ended.
    """
    told: list[int] = []

    def tell(number: int, _: FrameType | None) -> None:
        told.append(number)
        for pid in list(running):
            _send(pid, signal.SIGTERM)

    running: dict[int, tuple[int, float]] = {}
    early = 0
    with catch_signals((signal.SIGTERM, signal.SIGINT), tell):
        for number in range(count):
            _begin(number, work, running)
        while running and not told:
            pid, status = _wait(running)
            if not pid:
                continue
            number, begun = running.pop(pid)
            if told:
                break
            early = early + 1 if time.monotonic() - begun < SOON else 0
            say(f"worker {number} ended ({os.waitstatus_to_exitcode(status)})")
            if early >= MOST_SOON:
                say("workers end as soon as they begin: the service gives up")
                break
            _begin(number, work, running)
        _end_all(running)
    if signal.SIGINT in told:
        raise KeyboardInterrupt
    return 0 if told else 1


def _begin(number: int, work: Callable[[int], int], running: dict[int, tuple[int, float]]) -> None:
    pid = os.fork()
    if pid:
        running[pid] = (number, time.monotonic())
        return
    code = 1
    try:
        code = work(number)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)  # nothing of the parent's is to be done twice


def _wait(running: dict[int, tuple[int, float]]) -> tuple[int, int]:
    """Return the next process that ended and its status; (0, 0) where none did in a while."""
    for pid in running:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return found, status
    time.sleep(0.1)
    return 0, 0


def _end_all(running: dict[int, tuple[int, float]]) -> None:
    for pid in running:
        _send(pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while running:
        pid, _ = _wait(running)
        running.pop(pid, None)
        if time.monotonic() > deadline:
            for left in running:
                _send(left, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
