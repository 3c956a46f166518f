"""What a person sees of a command on a terminal of some width: a real pseudo-terminal, in this process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import termios
import threading
from collections.abc import Callable

import pytest

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HEIGHT = 24


def see(columns: int, call: Callable[[], object]) -> list[str]:
    """Call something whose stdout and stderr are a terminal; return its lines, without colours."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, columns, 0, 0))
    seen: list[bytes] = []
    reader = threading.Thread(target=_read, args=(master, seen))
    reader.start()
    try:
        with os.fdopen(slave, "w", encoding="utf-8") as screen, pytest.MonkeyPatch.context() as patch:
            patch.delenv("COLUMNS", raising=False)
            patch.setenv("TERM", "xterm")
            with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
                call()
    finally:
        reader.join()
        os.close(master)
    text = ESCAPES.sub("", b"".join(seen).decode().replace("\r\n", "\n"))
    return [line.rpartition("\r")[2] for line in text.split("\n")]  # a bar is drawn over itself


def _read(master: int, seen: list[bytes]) -> None:
    """Read until nobody has the terminal open any more."""
    with contextlib.suppress(OSError):
        while part := os.read(master, 65536):
            seen.append(part)
