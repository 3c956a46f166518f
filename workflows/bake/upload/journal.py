"""What is known of an image's uploads to one AWS region, so that a killed one goes on: ami/REGION.jsonl.

One JSON object a line, only ever appended to. `begin` starts an attempt; what follows belongs to it:
    {"event": "begin", "disk": SHA256, "token": ..., "encryption": "", "time": ...}
    {"event": "snapshot", "id": "snap-...", "time": ...}
    {"event": "block", "number": 7, "sha256": ...}      AWS has acknowledged this block
    {"event": "completing"}                             all blocks are there; AWS is asked to close the snapshot
    {"event": "registered", "image": "ami-..."}
    {"event": "dropped", "id": "snap-..."}              a snapshot of an earlier attempt is deleted or gone
From the first line on that is no such record (a torn one), the rest is forgotten: those blocks are sent again.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnlib.util.files import locked, sync
from regiondag.errors import BakeError, UsageError

_SHA256 = re.compile(r"[0-9a-f]{64}")
_SNAPSHOT = re.compile(r"snap-[0-9a-f]+")


@dataclass(slots=True)
class UploadAttempt:
    """One attempt to upload a disk."""

    disk: str  # its sha256
    token: str  # makes a repeated request for the snapshot give the same one
    encryption: str  # how the snapshot is encrypted, as `Encryption.text` has it
    started: float = 0.0  # Unix time of the snapshot's start
    snapshot: str = ""
    blocks: dict[int, str] = field(default_factory=dict)  # number: sha256
    completing: bool = False
    image: str = ""

    def same(self, disk: str, encryption: str) -> bool:
        """Whether this attempt uploads that disk, encrypted in that way."""
        return (self.disk, self.encryption) == (disk, encryption)


@dataclass(slots=True)
class Uploads:
    """A journal, read."""

    attempt: UploadAttempt | None = None  # the last one
    leftovers: list[str] = field(default_factory=list)  # snapshots of earlier attempts of which no AMI was made

    def fold(self, record: dict[str, Any]) -> None:
        """Take one line in; ValueError, TypeError or KeyError where it is none of a journal."""
        event = record["event"]
        if event == "begin":
            self.leave()
            disk = _check(_SHA256, record["disk"])
            self.attempt = UploadAttempt(disk, str(record["token"]), str(record["encryption"]), float(record["time"]))
            return
        if event == "dropped":
            self.leftovers = [one for one in self.leftovers if one != record["id"]]
            return
        attempt = self.attempt
        if attempt is None:
            raise ValueError(f"{event} before begin")
        if event == "snapshot":
            attempt.snapshot, attempt.started = _check(_SNAPSHOT, record["id"]), float(record["time"])
        elif event == "block":
            number = record["number"]
            if type(number) is not int or number < 0:
                raise ValueError(f"no number of a block: {number!r}")
            attempt.blocks[number] = _check(_SHA256, record["sha256"])
        elif event == "completing":
            attempt.completing = True
        elif event == "registered":
            attempt.image = str(record["image"])
        else:
            raise ValueError(f"unknown event {event!r}")

    def leave(self) -> None:
        """End the attempt; a snapshot of which no AMI was made is left over."""
        if self.attempt and self.attempt.snapshot and not self.attempt.image:
            self.leftovers.append(self.attempt.snapshot)
        self.attempt = None


def parse(text: bytes) -> tuple[Uploads, int]:
    """Return what a journal says, and how many of its bytes are good."""
    uploads, good = Uploads(), 0
    for line in text.splitlines(keepends=True):
        try:
            record = json.loads(line) if line.endswith(b"\n") else None
            if not isinstance(record, dict):
                break
            uploads.fold(record)
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            break
        good += len(line)
    return uploads, good


class UploadJournal:
    """An open journal, locked: only one process uploads an image to a region."""

    def __init__(self, path: Path, descriptor: int, uploads: Uploads) -> None:
        self.path = path
        self.uploads = uploads
        self._descriptor = descriptor

    def append(self, event: str, **values: Any) -> None:
        """Write one line and take it in. All but a block's wait until they are on disk."""
        record = {"event": event, **values}
        if event in ("begin", "snapshot"):
            record["time"] = round(time.time(), 3)
        line = (json.dumps(record) + "\n").encode()
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
            if event != "block":
                os.fsync(self._descriptor)
        except OSError as error:
            raise BakeError(
                f"{self.path}: cannot be written: {error.strerror}; the upload stops here, for it could not be resumed "
                "later. Make room, then the same command goes on where it stopped"
            ) from None
        self.uploads.fold(record)


def read_journal(path: Path) -> Uploads:
    """Return what a journal says, without opening it for an upload; nothing if there is none."""
    try:
        return parse(path.read_bytes())[0]
    except FileNotFoundError:
        return Uploads()


@contextmanager
def open_journal(path: Path) -> Iterator[UploadJournal]:
    """Open a journal, or begin one, for this process alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(path, wait=False))
        except BlockingIOError:
            raise UsageError(f"another process uploads this image to {path.stem} at the moment; wait for it") from None
        file = stack.enter_context(path.open("ab+", buffering=0))
        file.seek(0)
        uploads, good = parse(file.read())
        file.truncate(good)
        if not good:
            sync(path.parent)  # its name is on disk before anything is uploaded
        yield UploadJournal(path, file.fileno(), uploads)


def _check(pattern: re.Pattern[str], value: Any) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"not {pattern.pattern}: {value!r}")
    return value
