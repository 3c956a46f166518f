"""Files and folders that are whole or not there, also after a crash, and locks. Standard library alone.

What is new is written beside its place, flushed to the disk, and renamed; then the folder is flushed, which holds the
name. A step that fails leaves what was there before.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that `path` holds the old bytes or all of the new ones. OSError names `path`."""
    with replacing(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


def copy_atomically(source: Path, path: Path) -> None:
    """Copy a file in the same way."""
    with replacing(path) as part:
        shutil.copyfile(source, part)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give the path of a file to write, which takes the place of `path` when all went well. OSError names `path`."""
    part = _beside(path)
    try:
        yield part
        sync(part)
        part.replace(path)
        sync(path.parent)
    except OSError as error:
        if error.filename is None or str(error.filename) == str(part):
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def appearing(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """Give a folder to write into, which becomes `path` when all went well; an empty folder may be there already."""
    part = _beside(path)
    try:
        part.mkdir(mode=mode, parents=True)
        yield part
        part.replace(path)
        sync(path.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a file, which is made and stays; without `wait` BlockingIOError when somebody else has it."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")
