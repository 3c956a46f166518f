"""Run programs inside a root folder: argument lists for bubblewrap, for a chroot and for entering either.

The sandbox sees the root folder's programs, the pool's own /tmp, /run and HTCondor folders, and every folder of
the host that holds people's files, at the path it has outside. It has process numbers of its own, so that killing
its first process ends all of it. Two ways lead there:

bwrap    a user namespace made by bubblewrap; the caller's own account is seen as `regiondag` inside
chroot   for root where user namespaces are refused: a mount namespace and a real chroot, as uid 8010

Everything here is pure but for `detect_mode` and the look at the host's folders.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from regiondag.errors import PoolError

Mode = Literal["bwrap", "chroot"]
Kind = Literal["bind", "read-only", "devices", "tmpfs", "proc", "symlink"]

MODE_VARIABLE = "REGIONDAG_SANDBOX"

# The account that ami/provision/10-base.sh makes in every image.
UID = 8010
USER = "regiondag"

# HTCondor's programs look their machine's name up; this one is in the image's /etc/hosts.
HOST_NAME = "localhost"

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Top-level folders of the host that hold the system itself; all others hold somebody's files.
SYSTEM_FOLDERS = frozenset(
    {"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "lost+found", "proc", "run", "sbin"}
    | {"snap", "sys", "tmp", "usr", "var"}
)

# Folders of the image or the kernel: nothing of the host can be put into them.
NEVER_VISIBLE = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/proc", "/sys", "/dev")

# Under /var of a pool; all of it is the pool's own, so nothing of the image's /var is needed.
VAR_FOLDERS = ("lib/condor/execute", "log/condor", "spool/condor", "tmp")

# Of the host's environment these would make the root folder's programs look in folders that it does not have.
UNSET = ("CONDOR_CONFIG", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Mount:
    """One thing that the sandbox sees at `target`; `source` is a path outside, or a symlink's text."""

    kind: Kind
    target: str
    source: str = ""


def visible_folders(root: Path = Path("/"), extra: Iterable[Path] = ()) -> tuple[Path, ...]:
    """Return the host folders that appear at the same path inside, `extra` ones last if not within the others.

    The root folder itself never does, which would hide the image: services start there.
    """
    folders = [path for path in sorted(root.iterdir()) if path.name not in SYSTEM_FOLDERS and _enterable(path)]
    for path in extra:
        if path.is_dir() and path != Path(path.anchor) and not is_visible(path, [*folders, *map(Path, NEVER_VISIBLE)]):
            folders.append(path)
    return tuple(folders)


def is_visible(path: Path, folders: Iterable[Path]) -> bool:
    """Say whether `path` lies in one of `folders`."""
    return any(path.is_relative_to(folder) for folder in folders)


def _enterable(path: Path) -> bool:
    return path.is_dir() and os.access(path, os.R_OK | os.X_OK)


def plan_mounts(root: Path, pool: Path, visible: Sequence[Path]) -> tuple[Mount, ...]:
    """Return what a pool's sandbox consists of: image `root`, changing state in `pool`, host folders `visible`."""
    links = [Mount("symlink", f"/{path.name}", str(path.readlink())) for path in _merged_usr(root)]
    return (
        Mount("read-only", "/usr", f"{root}/usr"),
        Mount("read-only", "/etc", f"{root}/etc"),
        *links,
        Mount("proc", "/proc"),
        Mount("devices", "/dev", "/dev"),
        Mount("read-only", "/sys", "/sys"),
        Mount("bind", "/tmp", f"{pool}/tmp"),  # noqa: S108 - the pool's own, not the host's
        Mount("bind", "/run", f"{pool}/run"),
        Mount("bind", "/var", f"{pool}/var"),
        Mount("read-only", "/etc/condor/condor_config.local", f"{pool}/condor_config.local"),
        *(Mount("bind", str(folder), str(folder)) for folder in visible),
    )


def make_state_folders(pool: Path) -> None:
    """Make the folders of a pool's state that `plan_mounts` mounts; existing ones keep what they hold."""
    for name in ("tmp", "run/condor", "run/lock/condor", *(f"var/{part}" for part in VAR_FOLDERS)):
        (pool / name).mkdir(parents=True, exist_ok=True)
    for name, target in (("run", "/run"), ("lock", "/run/lock")):
        if not (pool / "var" / name).is_symlink():
            (pool / "var" / name).symlink_to(target)


def _merged_usr(root: Path) -> list[Path]:
    return [path for path in sorted(root.iterdir()) if path.is_symlink() and str(path.readlink()).startswith("usr/")]


def bwrap_argv(mounts: Iterable[Mount], command: Sequence[str]) -> list[str]:
    """Return the bubblewrap call that runs `command` as the first process of a new sandbox."""
    options = {
        "bind": "--bind",
        "read-only": "--ro-bind",
        "devices": "--dev-bind",
        "tmpfs": "--tmpfs",
        "proc": "--proc",
        "symlink": "--symlink",
    }
    argv = ["bwrap", "--unshare-user", "--uid", str(UID), "--gid", str(UID), "--unshare-pid", "--as-pid-1"]
    argv += ["--unshare-uts", "--hostname", HOST_NAME]
    for mount in mounts:
        argv.append(options[mount.kind])
        if mount.source:
            argv.append(mount.source)
        argv.append(mount.target)
    return [*argv, "--chdir", "/", "--", *command]


def chroot_argv(mounts: Iterable[Mount], place: Path, command: Sequence[str]) -> list[str]:
    """Return the call that does the same with unshare and chroot; `place` is an empty folder to mount it on."""
    plan = json.dumps([asdict(mount) for mount in mounts])
    return [
        *("unshare", "--mount", "--propagation", "private", "--uts", "--pid", "--fork", "--kill-child=KILL", "--"),
        *(sys.executable, "-m", "regiondag.pool.chroot", str(place), str(UID), plan, *command),
    ]


def start_argv(mode: Mode, mounts: Iterable[Mount], place: Path, command: Sequence[str]) -> list[str]:
    """Return the call that starts a sandbox in the given mode."""
    if mode == "bwrap":
        return bwrap_argv(mounts, command)
    return chroot_argv(mounts, place, command)


def enter_argv(mode: Mode, pid: int) -> list[str]:
    """Return the prefix of a call that runs a program in the sandbox whose first process is `pid`."""
    argv = ["nsenter", "--target", str(pid), "--mount", "--uts", "--pid"]
    if mode == "bwrap":
        return [*argv, "--user", "--preserve-credentials", "--"]
    return [*argv, "--root", "--setuid", str(UID), "--setgid", str(UID), "--"]


def environment_argv(cwd: Path, settings: Mapping[str, str]) -> list[str]:
    """Return the prefix that gives a program its folder and environment once it is inside."""
    unset = [word for name in UNSET for word in ("--unset", name)]
    values = {"PATH": SEARCH_PATH, "LC_ALL": "C.UTF-8", **settings}
    return ["env", "--chdir", str(cwd), *unset, *(f"{name}={value}" for name, value in values.items())]


def image_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what an image's programs start with: the host's environment, without what would set them up otherwise."""
    kept = {name: value for name, value in environ.items() if name not in UNSET and not name.startswith("_CONDOR_")}
    return {**kept, "PATH": f"{environ.get('PATH', '')}:{SEARCH_PATH}"}


def detect_mode(environ: Mapping[str, str] = os.environ) -> Mode:
    """Return the way that works on this host, tried with a harmless command; REGIONDAG_SANDBOX forces one."""
    wanted = environ.get(MODE_VARIABLE, "")
    if wanted not in ("", "bwrap", "chroot"):
        raise PoolError(f"{MODE_VARIABLE} is {wanted!r}; it can be 'bwrap' or 'chroot', or stay unset")
    problems: dict[str, str] = {}
    modes: tuple[Mode, ...] = ("bwrap", "chroot")
    for mode in modes:
        if wanted in ("", mode):
            problems[mode] = _try(mode)
            if not problems[mode]:
                return mode
    lines = [f"{mode}: {problem}" for mode, problem in problems.items()]
    raise PoolError(
        "\n  ".join(["this machine refuses the namespaces that the embedded pool runs in:", *lines])
        + "\nwhat can be done: regiondag doctor"
    )


def _try(mode: Mode) -> str:
    """Return why `mode` does not work here, or an empty string."""
    if mode == "bwrap":
        tool = "bwrap"
        argv = ["bwrap", "--unshare-user", "--uid", str(UID), "--gid", str(UID), "--unshare-pid"]
        argv += ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc", "true"]
    else:
        tool = "unshare"
        argv = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "--pid",
            "--fork",
            "mount",
            "-t",
            "proc",
            "x",
            "/proc",
        ]
        if os.geteuid() != 0:
            return "needs root"
    if shutil.which(tool) is None:
        return f"{tool} is not installed"
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or f"{tool} exits with {done.returncode}"
