"""What an input is, and how its files are made: small functions that write into a folder with an honest study."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.workflows.conftest import STUDY

Write = Callable[[Path], object]  # into the folder that the command runs in
GB = 1 << 20  # in KB, as `ulimit -v` counts
STEERING = "\x1b[2J\x1b]0;owned\x07\u202e"


@dataclass(frozen=True, slots=True)
class Input:
    """A hostile input, the command that meets it, and what has to come of it."""

    name: str
    write: Write
    command: str  # its words, split at spaces
    says: str = ""  # a regular expression, found in what the command prints
    code: int | tuple[int, ...] = 2
    writes: tuple[str, ...] = ()  # what may be in the folder afterwards that was not before: names at its top

    @property
    def memory(self) -> int:
        """KB of addresses that the command may take: what reads tables and renders runs has threads with stacks.

        CuPy maps cuBLAS when it is imported, where that is installed: .7 GB.
        """
        return (4 if self.command.startswith(("init", "generate")) else 2) * GB


def content(name: str, text: str | bytes) -> Write:
    """Write a file of that content."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return lambda place: _free(place / name).write_bytes(raw)


def study(*changes: tuple[str, str], more: str = "") -> Write:
    """Write the honest study with other texts in some places, and lines behind it."""

    def write(place: Path) -> None:
        text = STUDY
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        (place / "study.yaml").write_text(text + more, encoding="utf-8")

    return write


def link(name: str, target: str) -> Write:
    """Write a symbolic link."""
    return lambda place: _free(place / name).symlink_to(target)


def sparse(name: str, size: int, head: bytes = b"") -> Write:
    """Write a file that is as large as it says and takes no room."""

    def write(place: Path) -> None:
        with _free(place / name).open("wb") as file:
            file.write(head)
            file.truncate(size)

    return write


def several(*writes: Write) -> Write:
    """Write one after the other."""

    def write(place: Path) -> None:
        for one in writes:
            one(place)

    return write


def pipe(name: str) -> Write:
    """Write a pipe that nobody writes into."""
    return lambda place: os.mkfifo(_free(place / name))


def _free(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path


REGION_NAMES = (
    "<script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "</title><img src=x onerror=alert(1)>",
    "&lt;b&gt;",
    "[a](javascript:alert(1))",
    "=cmd|' /C calc'!A0",
    "@SUM(1)",
    "a;b,c\"d'e",
    "{{ 1111 * 1111 }}",
    "{% raw %}",
    "$(HOME)",
    "`touch owned`",
    "; touch owned #",
    "../../etc/passwd",
    "--help",
    "%s%n%d",
    "__proto__",
    "a|b",
    "PARENT a CHILD b",
    "\U0001f600" * 100,
)
