"""Run a command that may make no user namespaces, nor anything that it starts: clone and unshare fail with EPERM.

usage: python no_user_namespaces.py COMMAND...

As the filter of system calls that containers are given. Of x86-64 only; needs root, so that programs of root still may
gain rights (sudo).
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

NEWUSER = 0x10000000
CLONE, UNSHARE, CLONE3 = 56, 272, 435
ALLOW, REFUSE, UNKNOWN = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 38  # EPERM; ENOSYS: the C library then uses clone
LOAD, JUMP_EQUAL, JUMP_SET, RETURN = 0x20, 0x15, 0x45, 0x06
NUMBER, FIRST_ARGUMENT = 0, 16  # where they stand in seccomp_data

PROGRAM = (
    (LOAD, 0, 0, NUMBER),
    (JUMP_EQUAL, 5, 0, CLONE3),
    (JUMP_EQUAL, 1, 0, CLONE),
    (JUMP_EQUAL, 0, 2, UNSHARE),
    (LOAD, 0, 0, FIRST_ARGUMENT),
    (JUMP_SET, 2, 0, NEWUSER),
    (RETURN, 0, 0, ALLOW),
    (RETURN, 0, 0, UNKNOWN),
    (RETURN, 0, 0, REFUSE),
)


class Filter(ctypes.Structure):
    """The kernel's struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]


def main(command: list[str]) -> None:
    """Refuse it to this process, and become the command."""
    libc = ctypes.CDLL(None, use_errno=True)
    program = b"".join(struct.pack("HBBI", *line) for line in PROGRAM)
    if libc.prctl(22, 2, ctypes.byref(Filter(len(PROGRAM), program)), 0, 0) != 0:  # PR_SET_SECCOMP, a filter
        raise OSError(ctypes.get_errno(), "prctl")
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
