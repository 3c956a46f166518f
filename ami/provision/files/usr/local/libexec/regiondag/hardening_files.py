"""Rules for what lies on a worker's disk: accounts, secrets, programs. hardening.py has the others, and calls these.

Each check yields what is wrong below a root folder; its docstring is the rule.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path

LOCKED = ("*", "!", "!!", "!*")  # fields that no password hashes to
NO_SHELLS = ("/usr/sbin/nologin", "/sbin/nologin", "/bin/false", "/usr/bin/false", "/bin/sync", "/usr/bin/sync")
SYSTEM_ACCOUNTS = range(1, 1000)
# Programs that run as another than who starts them: what Debian's login, mount, ssh and D-Bus bring.
SETUID = {
    *("chage", "chfn", "chsh", "expiry", "gpasswd", "mount", "newgrp", "passwd", "ssh-agent", "su", "umount"),
    *("dbus-daemon-launch-helper", "ssh-keysign", "unix_chkpwd"),
}
CLOUD_INITS = "etc/systemd/network"  # cloud-init gives what it writes there to systemd's network daemon


def read(path: Path) -> str:
    """Return a text; nothing where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def rows(path: Path) -> list[list[str]]:
    """Return the rows of /etc/passwd and its kin."""
    return [line.split(":") for line in read(path).splitlines() if ":" in line]


@cache
def files(root: Path) -> tuple[tuple[Path, os.stat_result], ...]:
    """Return all that lies on the root file system, links left out."""
    found, device = [], root.lstat().st_dev
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = [name for name in folders if (here / name).lstat().st_dev == device]
        for path in (here / name for name in (*folders, *names)):
            status = path.lstat()
            if not stat.S_ISLNK(status.st_mode):
                found.append((path, status))
    return tuple(found)


def check_passwords(root: Path) -> Iterator[str]:
    """No account has a password, so none can be guessed."""
    yield from (f"{row[0]} has one" for row in rows(root / "etc/shadow") if row[1] not in LOCKED)


def check_root(root: Path) -> Iterator[str]:
    """Only root is number 0."""
    yield from (f"{row[0]} is, too" for row in rows(root / "etc/passwd") if row[2] == "0" and row[0] != "root")


def check_shells(root: Path) -> Iterator[str]:
    """The system's own accounts have no shell."""
    for row in rows(root / "etc/passwd"):
        if int(row[2]) in SYSTEM_ACCOUNTS and row[6] not in NO_SHELLS:
            yield f"{row[0]} has {row[6]}"


def check_homes(root: Path) -> Iterator[str]:
    """Nobody reads another's home folder."""
    for home in (root / "root", *(root / "home").glob("*")):
        if home.is_dir() and stat.S_IMODE(home.stat().st_mode) & 0o077:
            yield f"{home} is open to others"


def check_account_files(root: Path) -> Iterator[str]:
    """Root alone writes the lists of accounts, and hashes can be read by root and the group shadow."""
    for name, most in {"passwd": 0o644, "group": 0o644, "shadow": 0o640, "gshadow": 0o640}.items():
        status = (root / "etc" / name).stat()
        if status.st_uid != 0 or stat.S_IMODE(status.st_mode) & ~most:
            yield f"/etc/{name} is {stat.S_IMODE(status.st_mode):o} of {status.st_uid}"


def check_secrets(root: Path) -> Iterator[str]:
    """Tokens, keys and worker.json can be read by root alone."""
    folders = [root / "etc/condor" / name for name in ("tokens.d", "passwords.d")]
    secrets = [path for folder in folders for path in folder.glob("*")] + [root / "etc/regiondag/worker.json"]
    for path in (*secrets, *(root / "etc/ssh").glob("ssh_host_*_key")):
        if path.exists() and (path.stat().st_uid != 0 or stat.S_IMODE(path.stat().st_mode) & 0o077):
            yield f"{path} is {stat.S_IMODE(path.stat().st_mode):o} of {path.stat().st_uid}"


def check_programs(root: Path) -> Iterator[str]:
    """Root owns all programs and settings, and nobody else writes them."""
    for path, status in files(root):
        if path.relative_to(root).parts[0] in ("boot", "etc", "opt", "usr"):
            if path.parent == root / CLOUD_INITS:
                continue
            shared = status.st_mode & 0o022 and not (status.st_mode & stat.S_ISVTX) and status.st_gid != 0
            if status.st_uid != 0 or shared:
                yield f"{path} is {stat.S_IMODE(status.st_mode):o} of {status.st_uid}:{status.st_gid}"


def check_world_writable(root: Path) -> Iterator[str]:
    """No file can be written by everybody, and of a folder that can, nobody removes another's files."""
    for path, status in files(root):
        kind, sticky = stat.S_IFMT(status.st_mode), status.st_mode & stat.S_ISVTX
        if status.st_mode & 0o002 and (kind == stat.S_IFREG or (kind == stat.S_IFDIR and not sticky)):
            yield str(path)  # sockets and devices are meant to be


def check_owners(root: Path) -> Iterator[str]:
    """Every file has an owner and a group that exist."""
    users, groups = ({row[2] for row in rows(root / f"etc/{name}")} for name in ("passwd", "group"))
    for path, status in files(root):
        if str(status.st_uid) not in users or str(status.st_gid) not in groups:
            yield f"{path} is of {status.st_uid}:{status.st_gid}"


def check_setuid(root: Path) -> Iterator[str]:
    """No program runs as another account but those that Debian's login, mount, ssh and D-Bus need."""
    for path, status in files(root):
        if stat.S_ISREG(status.st_mode) and status.st_mode & 0o6000 and path.name not in SETUID:
            yield f"{path} is {stat.S_IMODE(status.st_mode):o}"


def check_capabilities(root: Path) -> Iterator[str]:
    """No program has capabilities of its own."""
    for path, status in files(root):
        if stat.S_ISREG(status.st_mode) and status.st_mode & 0o111:
            try:
                os.getxattr(path, "security.capability")
            except OSError:
                continue
            yield str(path)


CHECKS = (
    *(check_passwords, check_root, check_shells, check_homes, check_account_files, check_secrets, check_programs),
    *(check_world_writable, check_owners, check_setuid, check_capabilities),
)
