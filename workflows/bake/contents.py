"""Look into a baked disk without mounting or booting it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from regiondag.bake.disk import ROOT_START, SECTOR
from regiondag.errors import BakeError
from regiondag.pool.rootfs_build import search_path

# Without one of these a machine cannot be a worker; no need to boot it to see that.
NEEDED = (
    "/boot/grub/grub.cfg",
    "/etc/condor/config.d/50-regiondag-worker.config",
    "/etc/regiondag-image",
    "/usr/bin/python3",
    "/usr/local/libexec/regiondag/hardening.py",
    "/usr/local/libexec/regiondag/join.py",
    "/usr/local/libexec/regiondag/lease.py",
    "/usr/local/libexec/regiondag/python",
    "/usr/local/libexec/regiondag/watch.py",
    "/usr/sbin/condor_master",
    "/usr/sbin/condor_startd",
)


def find_missing(disk: Path) -> list[str]:
    """Return which files a worker needs and the disk does not hold."""
    answers = debugfs(disk, [f"stat {path}" for path in NEEDED])
    return [path for path in NEEDED if f"{path}: File not found by ext2_lookup" in answers]


def debugfs(disk: Path, requests: list[str], write: bool = False) -> str:
    """Return what debugfs answers to requests about the root file system of a raw disk."""
    done = subprocess.run(
        ["debugfs", *(["-w"] if write else []), "-f", "-", f"{disk}?offset={ROOT_START * SECTOR}"],
        input="\n".join(requests) + "\n",
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={"PATH": search_path()},
    )
    answers = done.stdout + done.stderr
    if done.returncode != 0 or "Bad magic number" in answers or "while trying to open" in answers:
        raise BakeError(f"{disk} holds no file system where an image of regiondag's has it: {answers.strip()[-300:]}")
    return answers
