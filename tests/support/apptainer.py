"""Apptainer for the pool tests: Debian's package, which trixie and forky lack, from sid, unpacked where a pool sees it.

It is fetched once, by apt's own client and keys, and never installed: 20 MB and some seconds.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from regiondag.pool.rootfs_build import debian_sources
from regiondag.util.user_dirs import cache_dir

PACKAGES = ("apptainer", "squashfs-tools", "squashfuse", "libsquashfuse0", "libfuse3-4", "fuse3", "liblzo2-2")
LIBRARIES = ("mksquashfs", "unsquashfs", "squashfuse", "squashfuse_ll", "fusermount3")  # that need some of those
# It looks for its settings, and for where it mounts, below the folder of its programs and that of its helper.
LINKS = {"usr/etc": "../etc", "usr/lib/etc": "../../etc", "usr/var": "../var", "usr/lib/var": "../../var"}


class AbsentError(Exception):
    """Why there is no Apptainer for the tests."""


def fetch_apptainer() -> Path:
    """Return the folder of its programs, for PATH; AbsentError says why there is none."""
    folder = cache_dir() / "apptainer-sid"
    if not folder.is_dir():
        part = folder.with_name(f".{folder.name}.part")
        try:
            subprocess.run(["rm", "-rf", str(part)], check=True)
            _download(part / "apt")
            _unpack(part / "apt", part)
            subprocess.run(["rm", "-rf", str(part / "apt")], check=True)
            part.rename(folder)
        except (OSError, subprocess.SubprocessError) as error:
            raise AbsentError(f"Debian's package cannot be fetched: {error}") from error
    return folder / "usr" / "bin"


def _download(apt: Path) -> None:
    for name in ("state/lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True)
    (apt / "state" / "status").touch()
    asked = ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(RELEASE)|$(REPO_URI)"]
    here = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    lines = [line for line in debian_sources(here, "sid") if line.endswith(" sid main")][:1]
    if not lines:
        raise AbsentError("this machine's apt knows no mirror of Debian")
    (apt / "sources.list").write_text("".join(f"{line}\n" for line in lines))
    places = {"State": "state", "State::status": "state/status", "Cache": "cache", "Etc::sourcelist": "sources.list"}
    options = [f"-oDir::{name}={apt / place}" for name, place in places.items()]
    options += ["-oDir::Etc::sourceparts=/dev/null", "-oAPT::Sandbox::User="]
    for words in (["update"], ["download", *PACKAGES]):
        subprocess.run(["apt-get", *options, *words], cwd=apt, capture_output=True, check=True, timeout=120)


def _unpack(apt: Path, folder: Path) -> None:
    for package in apt.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True)
    for name, target in LINKS.items():
        (folder / name).symlink_to(target)
    for program in (folder / "usr" / "bin" / name for name in LIBRARIES):
        program.rename(program.with_name(f"{program.name}.bin"))
        program.write_text('#!/bin/sh\nLD_LIBRARY_PATH="${0%/*}/../lib/x86_64-linux-gnu" exec "$0.bin" "$@"\n')
        program.chmod(0o755)
