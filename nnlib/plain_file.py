"""Files that others have written, read as such: plain ones alone, up to a size, and never waiting for one.

A link may lead anywhere, whoever opens a pipe waits for its writer, and a file without end fills the memory.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_most(path: Path, most: int) -> bytes:
    """Return the bytes of what a person has named, a link or a pipe such as /dev/stdin, too, but no more than `most`.

    Raises OSError, which says why, where there is more, as of a device without end.
    """
    with path.open("rb") as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes, which are legal at most", str(path))
    return found


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
