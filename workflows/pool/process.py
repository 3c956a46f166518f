"""Know a process again: by number and start time, for numbers are used again."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """One process of one boot of this machine."""

    pid: int
    start_time: int
    boot: str

    def is_alive(self) -> bool:
        """Say whether it still runs; a zombie does not."""
        _reap(self.pid)
        return self.boot == read_boot_id() and self.start_time == _start_time(self.pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if self.is_alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def wait_gone(self, seconds: float) -> bool:
        """Wait until it has ended; return whether it has."""
        deadline = time.monotonic() + seconds
        while self.is_alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


def look_up(pid: int) -> Process | None:
    """Return the running process `pid`, or None."""
    start_time = _start_time(pid)
    return None if start_time is None else Process(pid, start_time, read_boot_id())


def children(pid: int) -> list[int]:
    """Return the numbers of the running children of `pid`."""
    numbers = (int(path.name) for path in PROC.iterdir() if path.name.isdigit())
    return sorted(number for number in numbers if (stat := _stat(number)) and int(stat[1]) == pid)


def find_below(pid: int, *words: str) -> list[Process]:
    """Return the running children of `pid`, and theirs, whose command line has all of these words."""
    found = []
    for child in children(pid):
        process = look_up(child)
        if process and set(words) <= set(_command_line(child)):
            found.append(process)
        found += find_below(child, *words)
    return found


def read_boot_id() -> str:
    """Return what differs from boot to boot."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def _start_time(pid: int) -> int | None:
    stat = _stat(pid)
    return int(stat[19]) if stat and stat[0] not in "ZX" else None


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on: the name before may hold blanks and brackets."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _command_line(pid: int) -> list[str]:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # somebody else's child, which is the usual case
        pass
