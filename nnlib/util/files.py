"""Files and folders that are whole or not there, also after a crash, and locks. Standard library alone.

What is new is written beside its place, flushed to the disk, and renamed; then the folder is flushed, which holds the
name. A step that fails leaves what was there before, and nothing beside it; only a process that is killed leaves its
part, which nobody reads.

Journals grow by lines, and their readers pass over a torn last one. All that is to last is written by this module, but
for: the journal of an upload (`regiondag.bake.upload.journal`); finished files that are only moved (checkpoints, logs
of a build); and the programs of the worker's image, which have no nnlib (`ami/`).
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

SYNCS = 16  # files that are flushed at a time
PART = ".part"


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that `path` holds the old bytes or all of the new ones. OSError names `path`."""
    with replacing(path) as part:
        part.write_bytes(_encode(content))


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file that is replaced and never written into a second name, or copy it where that cannot be."""
    target.parent.mkdir(exist_ok=True)
    with replacing(target) as part:
        try:
            os.link(source, part)
        except OSError:
            _copy(source, part)


def copy_atomically(source: Path, path: Path) -> None:
    """Copy a file in the same way."""
    with replacing(path) as part:
        _copy(source, part)


def _copy(source: Path, path: Path) -> None:
    from shutil import copyfile  # scripts that copy nothing start faster without

    copyfile(source, path)


def write_once(path: Path, content: str | bytes) -> None:
    """Write a file that is not there yet; one that is, or that another process is quicker with, stays as it is."""
    part = _beside(path)
    with _naming(path, part):
        part.write_bytes(_encode(content))
        sync(part)
        with suppress(FileExistsError):
            os.link(part, path)
        sync(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give the path of a file to write, which takes the place of `path` when all went well. OSError names `path`.

    A device or a pipe, such as /dev/null, is written into.
    """
    if _is_special(path):
        yield path
        return
    part = _beside(path)
    with _naming(path, part):
        yield part
        sync(part)
        part.replace(path)
        sync(path.parent)


@contextmanager
def appearing(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """Give a folder to write into, which becomes `path` when all went well; an empty folder may be there already."""
    part = _beside(path)
    try:
        part.mkdir(mode=mode, parents=True)
        yield part
        _sync_all(part)
        part.replace(path)
        sync(path.parent)
    finally:
        from shutil import rmtree  # most users of this module start faster without

        rmtree(part, ignore_errors=True)


def replace_folder(path: Path, new: Path, aside: Path) -> None:
    """Put a finished folder in the place of another, which is moved `aside` for the caller to remove."""
    if path.exists():
        path.replace(aside)
    new.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_all(folder: Path) -> None:
    """Do so for all that is in a folder; several at a time take a tenth of the time."""
    from concurrent.futures import ThreadPoolExecutor  # most users of this module start faster without

    paths = _walk(folder)
    with ThreadPoolExecutor(SYNCS) as threads:
        # A few at a time: all that wait are kept, and of ten thousand regions that is more than all the rest.
        while some := list(islice(paths, 16 * SYNCS)):
            for _ in threads.map(sync, some):
                pass


def _walk(folder: Path) -> Iterator[Path]:
    """Yield a folder and all that is in it, but for links; rglob would remember them all."""
    for place, _, names in os.walk(folder, onerror=_raise):
        yield Path(place)
        yield from (path for name in names if not (path := Path(place, name)).is_symlink())


def _raise(error: OSError) -> None:
    raise error


def append_lines(path: Path, text: str) -> None:
    """Add whole lines to a journal and wait until they are on the disk; what a crash tore off before is cut off.

    Where that fails, as on a full disk, the journal is left as it was.
    """
    with path.open("ab", buffering=0) as file:
        end, rest = end_of_last_line(path), memoryview(text.encode())
        file.truncate(end)
        try:
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                file.truncate(end)
            raise
    if end == 0:
        sync(path.parent)  # its name is on disk, too


def read_last_line(path: Path, block: int = 1 << 16) -> bytes | None:
    """Return the last whole line without its line break, read from the end; None where there is none, or no file."""
    end = end_of_last_line(path) if path.exists() else 0
    if not end:
        return None
    with path.open("rb") as file:
        start, tail = end - 1, b""
        while start > 0 and b"\n" not in tail:
            size = min(block, start)
            start -= size
            file.seek(start)
            tail = file.read(size) + tail
    return tail.rpartition(b"\n")[2]


def read_last_lines(path: Path, count: int, look_back: int = 1 << 14) -> list[str]:
    """Return the last lines that are not blank of the last `look_back` bytes; none where there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - look_back, 0))
            text = file.read(look_back).decode("utf-8", errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]


def end_of_last_line(path: Path, block: int = 1 << 16) -> int:
    """Return the number of bytes up to and including the last line break, looked for from the end."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(end - block, 0)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[BinaryIO]:
    """Hold the lock of a file, which is made and stays; without `wait` BlockingIOError when somebody else has it.

    It gives the file, to be written at its end.
    """
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield file


def remove_parts(path: Path) -> list[Path]:
    """Remove what killed processes had begun to write in the place of `path`; return what that was.

    Only for who holds the lock that every writer of `path` holds: parts of those that still write look the same.
    """
    parts = re.compile(rf"\.+{re.escape(path.name)}(\.[0-9]+{re.escape(PART)})+")  # a part may have a part of its own
    found = sorted(one for one in path.parent.iterdir() if parts.fullmatch(one.name))
    for part in found:
        part.unlink(missing_ok=True)
    return found


@contextmanager
def _naming(path: Path, part: Path) -> Iterator[None]:
    """Let errors name the file that was meant, and leave no part of it."""
    try:
        yield
    except OSError as error:
        if error.filename is None or str(error.filename) == str(part):
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        part.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    """Return whether a path is a device, a pipe or a socket; links are not followed."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode))


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}{PART}")


def _encode(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content
