"""Files that others have written, read as such: plain ones alone, up to a size, and never waiting for one.

A link may lead anywhere, whoever opens a pipe waits for its writer, and a file without end fills the memory.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_plain(path: Path, most: int) -> bytes:
    """Return the bytes of a plain file; OSError, which says why, for one of more than `most` bytes, or none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no plain file", str(path))
        if status.st_size > most:
            raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, legal: {most:,} at most", str(path))
        return file.read(most)
