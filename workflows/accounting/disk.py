"""What a run takes of the disk, for `limits.disk`."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

from nnlib.util.files import write_atomically
from regiondag.run.layout import RunFolder

FRESH = 60.0  # seconds for which a look is good: a run of ten thousand regions has many files
BLOCK = 512  # bytes of what `st_blocks` counts


def read_taken(run: RunFolder) -> int:
    """Return the bytes that a run takes, as seen within the last minute; looks, and notes it, where nobody has."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if 0 <= time.time() - run.disk.stat().st_mtime < FRESH:
            return int(json.loads(run.disk.read_bytes())["bytes"])
    taken = measure(run.path)
    write_atomically(run.disk, json.dumps({"bytes": taken}) + "\n")
    return taken


def measure(folder: Path) -> int:
    """Return the bytes of the disk that a folder's files take, as `du` does: links are not followed, second names free.

    What vanishes meanwhile takes none.
    """
    taken, seen, folders = 0, set(), [os.fspath(folder)]
    while folders:
        with suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    facts = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif facts.st_nlink > 1:
                        if (identity := (facts.st_dev, facts.st_ino)) in seen:
                            continue
                        seen.add(identity)
                    taken += facts.st_blocks * BLOCK
    return taken
