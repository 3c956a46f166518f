"""Look for secrets in an image's files: python3 scan.py ROOT; exit 1 and a line for each one found.

Keys, tokens and passwords have known places and known forms. Places are looked at everywhere; contents where people and
programs put settings (/etc, /root, /home, /opt, /srv, /var, /usr/local), not in /usr, which holds what Debian packaged.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

READ = ("etc", "root", "home", "opt", "srv", "var", "usr/local")
NOT_READ = ("usr/local/lib/python", "var/lib/dpkg", "var/cache/apt", "usr/local/share/regiondag/provision")
LARGEST = 4 << 20

# Files that must not be there, or must be empty.
PLACES = (
    (re.compile(r"etc/ssh/ssh_host_.*"), "an SSH host key; every machine makes its own"),
    (re.compile(r"etc/condor/(tokens|passwords)\.d/.+"), "a token or key of a pool"),
    (re.compile(r"etc/regiondag/.+"), "settings of one pool"),
    (re.compile(r"etc/machine-id|var/lib/dbus/machine-id"), "a machine's identity"),
    (re.compile(r"(root|home/[^/]+)/\.(ssh|aws|bash_history|netrc|docker|config/regiondag)(/.*)?"), "a person's file"),
    (re.compile(r"var/lib/cloud/.+"), "what cloud-init kept of one machine"),
    (re.compile(r"var/log/.+"), "a log"),
    (re.compile(r"var/lib/systemd/(random-seed|credential\.secret)"), "a machine's random seed or secret"),
)
CONTENTS = (
    (re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s"), "a private key"),
    (re.compile(rb"\b(AKIA|ASIA)[A-Z0-9]{16}\b"), "an AWS access key"),
    (re.compile(rb"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}"), "a token (JWT)"),
    (re.compile(rb"(?i)\baws_secret_access_key\s*[=:]\s*\S{20,}"), "an AWS secret key"),
)
LOCKED = ("*", "!", "!!", "!*")  # fields that no password hashes to


def findings(root: Path) -> Iterator[str]:
    """Yield a line for every secret below `root`."""
    for path in _files(root):
        name = path.relative_to(root).as_posix()
        yield from (f"{name}: {what}" for pattern, what in PLACES if pattern.fullmatch(name) and _holds(path))
        if name.startswith(READ) and not name.startswith(NOT_READ):
            yield from _contents(path, name)
    yield from _passwords(root / "etc/shadow")


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        top = here.relative_to(root).as_posix()
        if top in ("proc", "sys", "dev", "run", "tmp"):
            folders.clear()
            continue
        yield from (here / name for name in sorted(files))


def _holds(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and status.st_size > 0


def _contents(path: Path, name: str) -> Iterator[str]:
    if not _holds(path) or path.lstat().st_size > LARGEST:
        return
    content = path.read_bytes()
    yield from (f"{name}: {what}" for pattern, what in CONTENTS if pattern.search(content))


def _passwords(shadow: Path) -> Iterator[str]:
    lines = shadow.read_text().splitlines() if shadow.is_file() else []
    for line in lines:
        user, password, *_ = line.split(":")
        # An empty field is a door without a lock.
        if password not in LOCKED:
            yield f"etc/shadow: {user} {'has a password' if password else 'needs no password'}"


def main() -> int:
    """Scan; return 1 if something was found."""
    found = list(findings(Path(sys.argv[1])))
    for line in found:
        print(f"scan: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
