"""The process that a command is: whether what it printed has left, and the signals it gets. Standard library only."""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TextIO

Handler = Callable[[int, FrameType | None], None]


def guard_streams() -> None:
    """Open the standard streams that are closed, and let standard error never fail.

    Else a file that is opened later gets the number of a closed stream, and what is printed goes into it. What is
    said to people must not end the work: their pipe may be gone, and the disk of their log full.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the process lives
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None or sys.stderr is sys.__stderr__:  # else somebody captures it
        encoding = sys.stderr.encoding if sys.stderr else None
        raw = io.BufferedWriter(_Unread(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=True)


class _Unread(io.FileIO):
    """A stream that forgets what cannot be written."""

    def write(self, data: Any) -> int:
        written = None
        with suppress(OSError):
            written = super().write(data)
        return memoryview(data).nbytes if written is None else written


def run_flushed(command: Callable[[], int]) -> int:
    """Return the exit code of a command once all that it printed has left, while its failing can still be told.

    A reader that has gone, as in `regiondag status RUN | head`, has what it wants: 0. Raises OSError when the output
    cannot be written, as on a full disk, and whatever the command raises. The interpreter's own last flush then finds
    nothing to do: it would end with exit code 120.
    """
    code = 0
    try:
        code = command()
    except BaseException as error:
        lost = _flush_or_drop(sys.stdout)
        if isinstance(error, BrokenPipeError) and _reader_has_gone():
            return 0
        printing = isinstance(error, OSError) and lost and (error.errno, error.filename) == (lost.errno, None)
        helped = isinstance(error, SystemExit) and not error.code  # so ends `--help`
        if not lost or not (printing or helped):
            raise
    else:
        lost = _flush_or_drop(sys.stdout)
    if lost and not isinstance(lost, BrokenPipeError):
        raise OSError(lost.errno, lost.strerror, "standard output") from lost
    return code


def describe_missing_package(error: ImportError) -> str | None:
    """Return what to type where a package of somebody else's is not installed, None where the import is our bug."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "regiondag", "nnlib"):
        return None
    return f"{error}; to install all that is needed here: {install_line()}"


def install_line(extra: str = "") -> str:
    """Return the line that installs regiondag, with an extra of its packages, from where this one came.

    A folder is what pip noted as the origin (PEP 610, direct_url.json).
    """
    import json  # all of these for one message
    import shlex
    from importlib.metadata import distributions
    from urllib.parse import unquote, urlsplit

    notes = [json.loads(found.read_text("direct_url.json") or "{}") for found in distributions(name="regiondag")]
    folders = [unquote(urlsplit(url).path) for note in notes if (url := note.get("url", "")).startswith("file:")]
    what = next(iter(folders), "regiondag")
    what = shlex.quote(f"{what}[{extra}]" if extra else what)
    return f"{shlex.quote(sys.executable)} -m pip install {what}"


def write_at_once(text: str) -> None:
    """Write to standard error from a signal's handler, which may have interrupted a `print`; never fails."""
    with suppress(OSError):
        os.write(2, text.encode(errors="replace"))


def select_heeded(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Return the signals that this process was not told to ignore, as `nohup`, cron and scripts' `&` do."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def catch_signals(numbers: Iterable[signal.Signals], handle: Handler) -> Iterator[None]:
    """Have `handle` called at some signals, those left out that this process ignores.

    Signals can be had by the main thread alone; on another one nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in select_heeded(numbers)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _reader_has_gone() -> bool:
    """Whether nobody reads standard output any more."""
    poll = select.poll()
    poll.register(1, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _flush_or_drop(stream: TextIO) -> OSError | None:
    """Flush a stream; where that fails, return why, and let everything that is left go nowhere."""
    try:
        stream.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        return error
    return None
