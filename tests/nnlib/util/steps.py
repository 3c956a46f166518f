"""The steps in which files are written, each of which can be made to fail, or to be the process's last."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from nnlib.util.files import appearing, copy_atomically, replacing, write_atomically, write_once

OLD, NEW = "old" * 1000, "newer" * 1000

# What a file system is asked for, in that order at most: the module and the name there.
CALLS = ((Path, "write_bytes"), (shutil, "copyfile"), (os, "mkdir"), (os, "open"), (os, "fsync"), (os, "link"),
         (os, "replace"))  # fmt: skip


@contextlib.contextmanager
def at_step(number: int, happen: Callable[[], None], more: tuple[tuple[object, str], ...] = ()) -> Iterator[list[str]]:
    """Let something happen before the step `number`, or half way through it if it writes; give the steps so far."""
    seen: list[str] = []

    def watch(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **more: Any) -> Any:
            seen.append(name)
            if len(seen) - 1 == number:
                if name == "write_bytes":
                    path, content = arguments
                    original(path, content[: len(content) // 2])
                elif name == "copyfile":
                    source, path = arguments
                    Path(path).write_text(source.read_text()[:7])
                happen()
            return original(*arguments, **more)

        return step

    with contextlib.ExitStack() as stack:
        for module, name in (*CALLS, *more):
            stack.enter_context(patch.object(module, name, watch(name, getattr(module, name))))
        yield seen


def _write(path: Path) -> None:
    write_atomically(path, NEW)


def _copy(path: Path) -> None:
    source = path.parent.parent / "source"
    copy_atomically(source, path)


def _replace(path: Path) -> None:
    with replacing(path) as part, part.open("w") as file:
        file.write(NEW)


def _write_once(path: Path) -> None:
    write_once(path, NEW)


def _appear(path: Path) -> None:
    with appearing(path) as part:
        (part / "inner").mkdir()
        (part / "inner" / "a").write_bytes(NEW.encode())


WAYS = {"write": _write, "copy": _copy, "replace": _replace, "write once": _write_once, "appear": _appear}


if __name__ == "__main__":  # way, number of the step, path: the process is killed there
    with at_step(int(sys.argv[2]), lambda: os.kill(os.getpid(), signal.SIGKILL)):
        WAYS[sys.argv[1]](Path(sys.argv[3]))
