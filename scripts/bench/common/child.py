"""A process that answers with lines of JSON, and is ended with all that it started when it takes too long."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scripts.bench.common.processes import NotMeasuredError, environment, module

SAID = 600  # characters of what it said last
PIECE = 1 << 16

Answer = dict[str, Any]  # one line of JSON


class Child:
    """A process that runs a module of the benchmarks with a Python; use it as a context."""

    def __init__(self, python: str | Path, name: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self._name, self._waiting = name, b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- it is read when the process has ended
        self._process = subprocess.Popen(
            module(name, *arguments, python=python),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env=environment(env),
            start_new_session=True,  # so that what it starts ends with it
        )
        assert self._process.stdin and self._process.stdout  # noqa: S101 -- for the type checker
        self._to, self._from = self._process.stdin, self._process.stdout

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def ask(self, command: str, seconds: float) -> Answer:
        """Return the answer to a command."""
        self.tell(command)
        return self.answer(seconds)

    def tell(self, command: str) -> None:
        """Give a command whose answer is taken later."""
        if self._errors.closed:
            raise NotMeasuredError(f"{self._name} was ended before")
        with suppress(BrokenPipeError):  # the answer that does not come says why
            self._to.write(f"{command}\n".encode())

    def answer(self, seconds: float) -> Answer:
        """Return the next answer; NotMeasuredError when it does not come in time, or at all."""
        found = self._next(time.monotonic() + seconds)
        if found is None:
            raise NotMeasuredError(f"{self._name} ended early: {self._said()}")
        return found

    def answers(self, seconds: float) -> Iterator[Answer]:
        """Give all answers until the process ends by itself; NotMeasuredError when it fails or takes too long."""
        deadline = time.monotonic() + seconds
        while (found := self._next(deadline)) is not None:
            yield found
        if self._process.wait():
            raise NotMeasuredError(f"{self._name} failed: {self._said()}")

    def _next(self, deadline: float) -> Answer | None:
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
            if not select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise NotMeasuredError(f"{self._name} took too long")
            piece = os.read(self._from.fileno(), PIECE)
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
        for file in (self._to, self._from, self._errors):
            file.close()
