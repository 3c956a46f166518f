"""A process of the GPU benchmarks: it answers with lines of JSON, and is ended when it takes too long."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from harness import REPOSITORY, NotMeasuredError

FOLDER = Path(__file__).resolve().parent
COMPILERS = "4"  # processes with which each PyTorch compiles, as several do so at a time
SAID = 600  # characters of what it said last
PIECE = 1 << 16


class Child:
    """A process that runs a script of this folder with a Python; use it as a context."""

    def __init__(self, python: str, script: str, *arguments: str) -> None:
        self._name, self._waiting = script, b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- it is read when the process has ended
        paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
        own = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "TORCHINDUCTOR_COMPILE_THREADS": COMPILERS}
        self._process = subprocess.Popen(
            [python, str(FOLDER / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env=os.environ | own,
            start_new_session=True,  # so that what it starts ends with it
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def ask(self, command: str, seconds: float) -> dict[str, Any]:
        """Return the answer to a command."""
        if self._errors.closed:
            raise NotMeasuredError(f"{self._name} was ended before")
        with suppress(BrokenPipeError):  # the answer that does not come says why
            self._process.stdin.write(f"{command}\n".encode())
        return self.answer(seconds)

    def answer(self, seconds: float) -> dict[str, Any]:
        """Return the next answer; NotMeasuredError when it does not come in time, or at all."""
        found = self._next(time.monotonic() + seconds)
        if found is None:
            raise NotMeasuredError(f"{self._name} ended early: {self._said()}")
        return found

    def answers(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Give all answers until the process ends by itself; NotMeasuredError when it fails or takes too long."""
        deadline = time.monotonic() + seconds
        while (found := self._next(deadline)) is not None:
            yield found
        if self._process.wait():
            raise NotMeasuredError(f"{self._name} failed: {self._said()}")

    def _next(self, deadline: float) -> dict[str, Any] | None:
        """Return the next line that is an object, None when the output has ended; libraries may print other lines."""
        while True:
            line, found, rest = self._waiting.partition(b"\n")
            if found:
                self._waiting = rest
                with suppress(ValueError):
                    value = json.loads(line)
                    if isinstance(value, dict):
                        return value
                continue
            if not select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise NotMeasuredError(f"{self._name} took too long")
            piece = os.read(self._process.stdout.fileno(), PIECE)
            if not piece:
                return None
            self._waiting += piece

    def _said(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        return text[-SAID:].partition("\n")[2] or text[-SAID:] or f"exit code {self._process.returncode}"

    def end(self) -> None:
        """End the process and what it started, if they have not ended yet."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            file.close()


def one_answer(python: str, script: str, seconds: float, *arguments: str) -> dict[str, Any]:
    """Return the first answer of a process and end it."""
    with Child(python, script, *arguments) as child:
        return child.answer(seconds)
