"""Runs that take hours together: each in a process of its own with one thread, kept so that nothing runs twice."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from scripts.bench.common.processes import REPOSITORY, NotMeasuredError

Key = TypeVar("Key")
Run = TypeVar("Run")


class KeptRuns(Generic[Key, Run]):
    """Runs in files; one that was made with another stamp than it would be now, or that `read` refuses, is no run."""

    def __init__(
        self,
        file_of: Callable[[Key], Path],
        stamp_of: Callable[[Key], str],
        read: Callable[[Key, Mapping[str, Any]], Run | None],
        make: Callable[[Key], Mapping[str, Any]],
    ) -> None:
        self._file_of, self._stamp_of, self._read, self._make = file_of, stamp_of, read, make

    def find(self, key: Key) -> Run | None:
        """Return a kept run; None if there is none, or one of another stamp."""
        try:
            raw = json.loads(self._file_of(key).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return self._read(key, raw) if raw["stamp"] == self._stamp_of(key) else None

    def fill(self, keys: Sequence[Key]) -> list[Run]:
        """Make the runs that are missing, saying of each how it ended; return those that are there."""
        for number, key in enumerate(keys, start=1):
            if self.find(key) is None:
                print(f"{number} of {len(keys)}: {key}: {self._made(key)}", file=sys.stderr, flush=True)
        return [run for key in keys if (run := self.find(key)) is not None]

    def fill_all(self, keys: Sequence[Key]) -> list[Run]:
        """Make the runs that are missing; NotMeasuredError where one cannot be made."""
        runs = self.fill(keys)
        if len(runs) < len(keys):
            raise NotMeasuredError(f"{len(runs)} of {len(keys)} runs are there")
        return runs

    def _made(self, key: Key) -> str:
        stamp = self._stamp_of(key)  # before: sources may change meanwhile
        try:
            raw = self._make(key)
        except NotMeasuredError as error:
            return str(error)
        file = self._file_of(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps({"stamp": stamp, **raw}), encoding="utf-8")
        part.replace(file)
        return "done"


def digest_of(patterns: Sequence[str], root: Path = REPOSITORY) -> str:
    """Return a short digest of the files of a checkout that match."""
    files = sorted({file for pattern in patterns for file in root.glob(pattern)})
    return digest(file.read_bytes() for file in files)


def digest(pieces: Iterable[bytes]) -> str:
    """Return a short digest of texts."""
    return hashlib.sha256(b"\0".join(pieces)).hexdigest()[:12]
