"""The process that a command is: whether what it printed has left, and the signals it gets. Standard library only."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO

Handler = Callable[[int, FrameType | None], None]


def run_flushed(command: Callable[[], int]) -> int:
    """Return the exit code of a command once all that it printed has left, while its failing can still be told.

    A reader that has gone, as in `regiondag status RUN | head`, has what it wants: 0. Raises OSError when the output
    cannot be written, as on a full disk. Either way the interpreter's own last flush finds nothing to do: it would end
    with exit code 120.
    """
    try:
        return command()
    except BrokenPipeError:
        return 0
    finally:
        error = _flush_or_drop(sys.stdout)
        if error and not isinstance(error, BrokenPipeError):
            raise OSError(error.errno, error.strerror, "standard output") from error


def tell(text: str, end: str = "\n") -> None:
    """Print what a command has to say at its end to standard error, whether or not anybody reads that."""
    with suppress(OSError):
        print(text, end=end, file=sys.stderr)
    _flush_or_drop(sys.stderr)


def missing_package(error: ImportError) -> str | None:
    """Return what to type where a package of somebody else's is not installed, None where the import is our bug."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "workflows", "nnlib"):
        return None
    return f"{error}; to install all that is needed here: {sys.executable} -m pip install regiondag"


def write_at_once(text: str) -> None:
    """Write to standard error from a signal's handler, which may have interrupted a `print`; never fails."""
    with suppress(OSError):
        os.write(2, text.encode(errors="replace"))


def heeded(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Return the signals that this process was not told to ignore, as `nohup`, cron and scripts' `&` do."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def caught(numbers: Iterable[signal.Signals], handle: Handler) -> Iterator[None]:
    """Have `handle` called at some signals, those left out that this process ignores.

    Signals can be had by the main thread alone; on another one nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in heeded(numbers)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _flush_or_drop(stream: TextIO | None) -> OSError | None:
    """Flush a stream; where that fails, return why, and let everything that is left go nowhere."""
    if stream is None:  # closed from the start
        return None
    try:
        stream.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        return error
    return None
