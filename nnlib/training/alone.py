"""One training at a time in a folder, and what killed ones left there. Standard library only, as `stop`."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nnlib.contract import CHECKPOINT_FILE
from nnlib.errors import NnlibError
from nnlib.util.files import locked, remove_parts

LOCK_FILE = "checkpoint.lock"
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # of file systems without any, such as NFS without lockd


@contextmanager
def alone_in(folder: Path, written: Iterable[str] = (CHECKPOINT_FILE,)) -> Iterator[None]:
    """Keep other trainings out of a folder, and remove what killed ones had begun of the files that are `written`.

    The lock is of the kernel, and ends with the process in any case; its file stays, and says who had it last.
    NnlibError names who has it now.
    """
    path = folder / LOCK_FILE
    with ExitStack() as stack:
        try:
            file = stack.enter_context(locked(path, wait=False))
        except BlockingIOError:
            raise NnlibError(
                f"{folder}: {_holder(path)} trains in this folder, and both would lose their checkpoints; legal: "
                "another folder, or this one when that training has ended"
            ) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            print(f"nnlib: {path} cannot be locked ({error.strerror}): nothing keeps a second training out of the "
                  "folder", file=sys.stderr)  # fmt: skip
        else:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
            file.flush()
            for name in written:
                for part in remove_parts(folder / name):
                    print(f"nnlib: removed {part}, which a killed training has left", file=sys.stderr)
        yield


def _holder(path: Path) -> str:
    """Return who has a lock, as far as its file says."""
    try:
        said = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        said = ""
    return said or "another process"
