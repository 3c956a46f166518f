"""The first process of a sandbox made without a user namespace: mount, give up root, run the command.

usage: unshare --mount --pid --fork ... python -m regiondag.pool.chroot PLACE UID MOUNTS COMMAND...
PLACE is an empty folder, MOUNTS a JSON list of `regiondag.pool.sandbox.Mount`. Nothing mounted here is seen outside.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from regiondag.pool.sandbox import HOST_NAME


def main(argv: list[str]) -> None:
    """Build the root, enter it and become the command."""
    place, uid, mounts, *command = argv
    root = Path(place)
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", place)
    for mount in json.loads(mounts):
        _add(mount["kind"], root / mount["target"].lstrip("/"), mount["source"])
    os.chroot(root)
    os.chdir("/")
    socket.sethostname(HOST_NAME)
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
    os.execvp(command[0], command)  # noqa: S606 - there is no shell in between on purpose


def _add(kind: str, target: Path, source: str) -> None:
    if kind == "symlink":
        target.symlink_to(source)
        return
    if kind in ("bind", "read-only") and Path(source).is_file():
        if not target.exists():
            target.touch()
    else:
        target.mkdir(parents=True, exist_ok=True)
    if kind in ("proc", "tmpfs"):
        _mount("-t", kind, kind, str(target))
        return
    _mount("--rbind", source, str(target))
    if kind == "read-only":
        _mount("-o", "remount,bind,ro", str(target))


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
