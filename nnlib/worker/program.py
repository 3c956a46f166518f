"""A program that runs as a process of this job: what it prints is passed on and looked through, and how it is ended.

Standard library only.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType

from nnlib.errors import MachineError, NnlibError
from nnlib.util.os_errors import reason_of

LONGEST_LINE = 8192  # bytes that are looked through at a time
MOST_PASSED_ON = 16 << 20  # bytes of output, which the access point keeps
MOST_LINES = 10_000  # that wait to be looked through
LAST_LINES = 20  # that are told of where a program fails
LONGEST_REPORT = 3 << 20  # bytes of one
MOST_REPORTS = 4 << 20  # bytes of reports that wait to be read
TICK = 0.2  # seconds between two looks at it
PATIENCE = 300.0  # seconds that a program has to end in after SIGTERM
LINGERING = 2.0  # seconds in which the rest of its output comes


class Process:
    """A program, in a process group of its own; all of the group ends with the `with` block."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        reports: Path,
        *,
        wrapped: bool = False,
    ) -> None:
        """Start it in `folder`; MachineError where this machine has no such program.

        Where it is `wrapped`, what is started passes signals on to it, as Apptainer does.
        """
        self._wrapped = wrapped
        self._lines: Queue[str] = Queue(MOST_LINES)  # a program that prints faster than it is read has to wait
        self._ready: list[str] = []
        self._reports, self._read, self._part = reports, 0, b""
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        try:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            if error.errno in (errno.EACCES, errno.ENOEXEC, errno.E2BIG):
                raise NnlibError(
                    f"trainer.command: {command[0]!r:.200} cannot be run: {error.strerror}; legal: a program that may "
                    "be executed (chmod +x) and begins with its interpreter, such as #!/bin/sh"
                ) from error
            raise MachineError(f"{command[0]!r:.200} cannot be started on this machine: {reason_of(error)}") from error
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def __enter__(self) -> Process:
        """Return the process."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill what is left of the group, and of its session: Apptainer's file system has a group of its own."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        for pid, _ in list_session(self._process.pid):
            _send(pid, signal.SIGKILL)
        self._take_the_rest()

    def wait(self, seconds: float) -> int | None:
        """Return the exit code, -N after signal N; None while the program runs on after so many seconds."""
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(seconds)
            self._take_the_rest()
            return code
        return None

    def end(self, patience: float = PATIENCE) -> None:
        """Tell the whole group to end, and kill it if it does not."""
        self._signal(signal.SIGTERM)
        until = time.monotonic() + patience
        while self.wait(TICK) is None:
            self._take()  # a program that prints what nobody takes could not end
            if time.monotonic() > until:
                print(
                    f"nnlib: the program did not end within {patience:.0f} s of SIGTERM: it is killed", file=sys.stderr
                )
                self._signal(signal.SIGKILL)
                until = math.inf

    def lines(self) -> list[str]:
        """Return what it has printed since the last call, line by line."""
        self._take()
        found, self._ready = self._ready, []
        return found

    def reports(self) -> list[str]:
        """Return the whole lines that it has added to its file of reports since the last call."""
        if not self._reports.is_file():  # nor a pipe, which would keep its reader waiting
            return []
        try:
            with self._reports.open("rb") as file:
                file.seek(self._read)
                new = file.read(MOST_REPORTS)
        except OSError:
            return []
        self._read += len(new)
        *whole, self._part = (self._part + new).split(b"\n")
        self._part = self._part[:LONGEST_REPORT]
        return [line[:LONGEST_REPORT].decode(errors="replace") for line in whole if line.strip()]

    def _take(self) -> None:
        with suppress(Empty):
            for _ in range(MOST_LINES):
                self._ready.append(self._lines.get_nowait())

    def _take_the_rest(self) -> None:
        """Wait for the last of its output, but not for a process that it has left behind and that holds the pipe."""
        end = time.monotonic() + LINGERING
        while self._thread.is_alive() and time.monotonic() < end:
            self._take()
            self._thread.join(0.01)

    @property
    def why(self) -> str:
        """What it last said: its last line, but R's last one of an error, which others follow."""
        lines = list(self.last)
        if lines and lines[-1] == "Execution halted":
            errors = [n for n, line in enumerate(lines) if line.startswith("Error")]
            if errors:
                first, then = lines[errors[-1] : errors[-1] + 2]
                return f"{first} {then.strip()}" if first.endswith(":") else first
        return lines[-1] if lines else ""

    def _signal(self, number: signal.Signals) -> None:
        leader = self._process.pid
        if self._wrapped and number == signal.SIGTERM:  # once to each, not by the leader once more
            inside = [pid for pid, group in list_session(leader) if group == leader != pid]
            for pid in inside:
                _send(pid, number)
            if inside:
                return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, number)

    def _pass_on(self) -> None:
        """Copy its output to this job's, as far as that is bounded, and give it on line by line."""
        passed, rest, pipe = 0, b"", self._process.stdout
        assert pipe is not None, "it was asked for"
        while line := pipe.readline(LONGEST_LINE):
            text = line.decode(errors="replace")
            with suppress(OSError, ValueError):  # what is said to people must not end the work
                if passed <= MOST_PASSED_ON < passed + len(line):
                    print(f"\nnnlib: the program has printed {MOST_PASSED_ON >> 20} MB; no more is kept", flush=True)
                elif passed <= MOST_PASSED_ON:
                    print(text, end="", flush=True)
            passed += len(line)
            *whole, rest = (rest + line).replace(b"\n", b"\r").split(b"\r")  # bars of progress are written over
            rest = rest[-LONGEST_LINE:]
            for part in whole:
                self._give_on(part)
        self._give_on(rest)
        pipe.close()

    def _give_on(self, part: bytes) -> None:
        text = part.decode(errors="replace").rstrip()
        if text:
            self.last.append(text[:500])
            self._lines.put(text)


def list_session(leader: int) -> list[tuple[int, int]]:
    """Return the processes of a session that live, and their groups."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):  # no process, or one that has ended
            state, _, group, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                found.append((int(entry.name), int(group)))
    return found


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
