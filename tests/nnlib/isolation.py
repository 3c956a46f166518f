"""What opens damaged files runs in a process of its own.

libhdf5 keeps something of a damaged file it has refused, which may crash the process at a later file: a trap for the
tests that follow, not for a command, which ends with its first damaged file.
"""

import functools
import os
import resource
import traceback
from collections.abc import Callable
from typing import Any

ATTEMPTS = 3  # where several are opened, they may meet each other, too
SECONDS = 10  # of processor time: libhdf5 may look for the end of a damaged file for ever


def own_process(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test, or a check of one file, in a child; one that a signal ended is run again."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        signal, text = _again(test, args, kwargs)
        assert not signal, f"ended by signal {signal}"
        assert not text, text

    return run


def survives(test: Callable[..., None], *args: Any) -> bool:
    """Return whether a child that runs it ends by itself, whatever else is wrong in it."""
    return not _again(test, args, {})[0]


def _again(test: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, str]:
    for _ in range(ATTEMPTS):
        signal, text = _forked(test, args, kwargs)
        if not signal:
            break
    return signal, text


def _forked(test: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, str]:
    """Return the signal that ended the child (0: none) and what was wrong in it."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        try:
            test(*args, **kwargs)
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-60_000:])
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    return os.WTERMSIG(os.waitpid(child, 0)[1]), text
