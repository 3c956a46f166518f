"""A folder of ~/.cache for what is compiled, named by a digest of all that it is compiled from."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

KEPT = 30 * 24 * 3600  # seconds that a file stays without being used: os.utime uses it


def cached(key: str, suffix: str) -> Path:
    """Return where the file of a key is or would be."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regiondag" / "kernel-tests"
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()}{suffix}"


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Give a path to write to, and put what was written in place: another process may be at the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for other in path.parent.glob("*.*"):
        with suppress(FileNotFoundError):  # another process forgets it, too
            if other.stat().st_mtime < time.time() - KEPT:
                other.unlink()
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        new = Path(folder, path.name)
        yield new
        try:
            new.replace(path)
        except OSError:  # no folder takes the place of one that is not empty, as another process has put there
            if not path.is_dir():
                raise
