"""Becomes sitecustomize.py of trainings, and starts PRE and POST: it slows them down, and lets faults hit from inside.

A fault is a file beside this one; `claim` takes it, so that one process is hit. Nothing is done outside the run
directory and the job's own folder. Python's standard library alone, which all of these have.
"""

from __future__ import annotations

import atexit
import io
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

EPOCH_SECONDS = 0.1
HERE = os.path.dirname(os.path.abspath(__file__))
_WORDS = sys.orig_argv
ROLE = next((word for word in _WORDS[2:5] if word in ("pre", "post", "train")), "")
RUN = os.path.abspath(_WORDS[_WORDS.index(ROLE) + 1]) if ROLE in ("pre", "post") else ""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def claim(name: str) -> str | None:
    """Take a fault that waits, for this process alone; return what the file says."""
    path, mine = f"{HERE}/{name}", f"{HERE}/{name}.{os.getpid()}"
    try:
        os.rename(path, mine)
    except OSError:
        return None
    with _open(mine) as file:
        return str(file.read())


def told(name: str, what: str) -> None:
    """Note that a fault has hit."""
    with _open(f"{HERE}/{name}.hit", "a") as file:
        file.write(f"{what}\n")


def wait(seconds: float) -> None:
    """Wait; time.sleep fails under libfaketime."""
    select.select((), (), (), seconds)


_open, _fsync = io.open, os.fsync


class _Slow:
    """A file whose writes take their time."""

    def __init__(self, file: IO[Any], write: Callable[[IO[Any], Any], int]) -> None:
        self._file, self.write = file, lambda data: write(file, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __iter__(self) -> Any:
        return iter(self._file)

    def __enter__(self) -> _Slow:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _epoch(file: IO[Any], data: Any) -> int:
    wait(EPOCH_SECONDS)
    if claim("gpu") is not None:
        told("gpu", str(os.getpid()))
        raise sys.modules["nnlib.errors"].MachineError("the GPU failed: CUDARuntimeError: device is lost (simulated)")
    return file.write(data)


def _pieces(file: IO[Any], data: Any) -> int:
    for first in range(0, len(data), 16):
        file.write(data[first : first + 16])
        file.flush()
        wait(0.03)
    return len(data)


def _opened(file: Any, mode: str = "r", *words: Any, **options: Any) -> Any:
    opened = _open(file, mode, *words, **options)
    name = os.path.basename(file) if isinstance(file, (str, os.PathLike)) else ""
    if name == "log.jsonl" and "+" in mode:
        return _Slow(opened, _epoch)
    if name == "trials.jsonl" and "a" in mode and os.path.exists(f"{HERE}/slow"):
        return _Slow(opened, _pieces)
    return opened


class Disk:
    """What a script has written and not flushed, to be taken back when the power is cut."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.files: dict[str, bytes | None] = {}  # what the file had when it was opened; None: it was not there
        self.names: list[tuple[str, str, str, bytes | None]] = []  # step, path, to which path, what was there

    def saw(self, event: str, words: tuple[Any, ...]) -> None:
        """Note what is about to be done (an event of Python's audit)."""
        if event == "open" and len(words) > 2 and isinstance(words[2], int) and words[2] & WRITING:
            path = self._inside(words[0])
            if path and path not in self.files:
                self.files[path] = self._content(path)
                if self.files[path] is None:
                    self.names.append(("new", path, "", None))
        elif event in ("os.rename", "os.link"):
            source, target = self._inside(words[0]), self._inside(words[1])
            if source and target:
                self.names.append((event, source, target, self._content(target)))
                if event == "os.rename" and source in self.files:
                    self.files[target] = self.files.pop(source)
        elif event == "os.remove" and (path := self._inside(words[0])):
            self.names.append(("remove", path, "", self._content(path)))
            self.files.pop(path, None)

    def flushed(self, path: str) -> None:
        """Note that a file's bytes, or a folder's names, are on the disk."""
        self.files.pop(path, None)
        if os.path.isdir(path):
            self.names = [step for step in self.names if os.path.dirname(step[2] or step[1]) != path]

    def cut_power(self) -> int:
        """Take back what was not flushed; return how many files and names that were."""
        count = len(self.files) + len(self.names)
        for path, before in self.files.items():
            if os.path.exists(path):
                self._put(path, before or b"")
        for step, path, target, before in reversed(self.names):
            if step == "os.rename" and os.path.exists(target):
                os.rename(target, path)
            if step == "os.link" and before is None and os.path.exists(target):
                os.remove(target)
            if step == "new" and os.path.exists(path):
                os.remove(path)
            if before is not None:
                self._put(target or path, before)
        return count

    def _inside(self, path: Any) -> str:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return ""
        full = os.path.abspath(os.fsdecode(path))
        return full if full.startswith(f"{self.root}/") and not full.endswith("lock") else ""

    @staticmethod
    def _content(path: str) -> bytes | None:
        if not os.path.isfile(path):
            return None
        with _open(path, "rb") as file:
            return bytes(file.read())

    @staticmethod
    def _put(path: str, content: bytes) -> None:
        with _open(path, "wb") as file:
            file.write(content)


class Flushes:
    """Counts the flushes of a script and ends it at one of them, its file half written or its power cut."""

    def __init__(self, how: str, wanted: int) -> None:
        self.how, self.wanted, self.count = how, wanted, 0
        self.disk, self.busy = Disk(RUN), False
        if how == "power":
            sys.addaudithook(self._audit)
        atexit.register(self._give_back)

    def _audit(self, event: str, words: tuple[Any, ...]) -> None:
        if not self.busy and event in ("open", "os.rename", "os.link", "os.remove"):
            self.busy = True
            try:
                self.disk.saw(event, words)
            finally:
                self.busy = False

    def before(self, descriptor: int) -> None:
        """End this process where its turn has come."""
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        self.count += 1
        if self.count < self.wanted:
            self.disk.flushed(path)
            return
        self.busy = True
        if self.how == "power":
            what = f"{self.disk.cut_power()} writes and names taken back"
        else:
            what = "a folder's names"
            if os.path.isfile(path):
                size = os.path.getsize(path)
                begun = self._begin(path)
                os.truncate(path, begun + (size - begun) // 2)
                what = f"{begun + (size - begun) // 2} of {size} bytes"
        told("flush", f"flush {self.count}, {os.path.basename(path)}: {what}")
        os.kill(os.getpid(), signal.SIGKILL)

    @staticmethod
    def _begin(path: str) -> int:
        """Return where the last line begins: what was flushed before stays."""
        if not path.endswith(".jsonl"):
            return 0
        with _open(path, "rb") as file:
            return bytes(file.read()).rstrip(b"\n").rfind(b"\n") + 1

    def _give_back(self) -> None:
        """Let the next script be hit, as this one has fewer flushes."""
        with _open(f"{HERE}/flush-{ROLE}", "w") as file:
            file.write(f"{self.how} {1 + self.wanted % max(self.count, 1)}")


_flushes: Flushes | None = None


def _flush(descriptor: Any) -> None:
    number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
    if os.path.exists(f"{HERE}/slow-disk"):
        told("slow-disk", ROLE)
        wait(1.5)
    if os.path.exists(f"{HERE}/refuse"):
        _refuse("fsync", os.readlink(f"/proc/self/fd/{number}"))
    if _flushes:
        _flushes.before(number)
    _fsync(number)


def _refuse(step: str, path: str) -> None:
    """Raise what the file `refuse` says: the error's number, the step, and the end of the names that it is about."""
    try:
        with _open(f"{HERE}/refuse") as file:
            code, wanted, ending = file.read().split("|")
    except (OSError, ValueError):
        return
    if step == wanted and path.endswith(ending):
        told("refuse", f"{ROLE} {os.path.basename(path)}")
        raise OSError(int(code), os.strerror(int(code)), path)


_looking = False


def _refusing(event: str, words: tuple[Any, ...]) -> None:
    global _looking
    if _looking or event not in ("open", "os.rename", "os.mkdir") or not isinstance(words[0], (str, os.PathLike)):
        return
    path = os.path.abspath(os.fsdecode(words[0]))
    if not path.startswith(f"{RUN}/"):
        return
    _looking = True
    try:
        if os.path.exists(f"{HERE}/refuse"):
            writes = event != "open" or bool(words[2] & WRITING)
            _refuse("write" if writes else "read", path)
    finally:
        _looking = False


def _flip() -> None:
    """Let a byte of a data file have other bits, as if the transfer had."""
    for path in sorted(Path.cwd().glob("data.*.nc")):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0x10
        path.unlink()
        path.write_bytes(content)
        told("flip", path.name)
        return


io.open = _opened
os.fsync = _flush  # type: ignore[assignment]
if RUN:
    sys.addaudithook(_refusing)
    if found := claim(f"flush-{ROLE}"):
        how, _, wanted = found.partition(" ")
        _flushes = Flushes(how, int(wanted))
if ROLE == "train" and os.path.exists("trial.json") and claim("flip") is not None:
    _flip()
if __name__ == "__main__":  # of PRE and POST, which start without site: python -S HOOK CODE ...
    import runpy

    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
