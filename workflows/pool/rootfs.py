"""Build and cache the root folder that the embedded pool runs in.

A root folder is built beside its final place and renamed, so one that is there is complete. Its name carries a hash
of the recipe in ami/provision: an edited recipe is another folder. One build at a time per suite, others wait for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnlib.util.files import locked, replace_folder
from regiondag.errors import PoolError
from regiondag.pool.machine import require_machine
from regiondag.pool.rootfs_build import Target, Tell, catch_interrupts, fetch_wheels, root_in, run_mmdebstrap
from regiondag.pool.suites import SUITES
from regiondag.util.resources import resource_dir
from regiondag.util.user_dirs import cache_dir, make_dir

IMAGE_FILE = "etc/regiondag-image"
# provision.sh leaves these out for a root folder.
FOR_MACHINES = re.compile(r"[4-7]\d-|95-scan|scan\.py|pci-option|requirements-")
UNUSED_SECONDS = 30 * 24 * 3600


@dataclass(frozen=True)
class RootImage:
    """A complete root folder."""

    path: Path
    suite: str
    version: tuple[int, int, int]


def recipe_files() -> list[Path]:
    """Return the files of the recipe that a root folder is made with: not those for machines that boot."""
    provision = resource_dir("ami") / "provision"
    return [path for path in sorted(provision.iterdir()) if path.is_file() and not FOR_MACHINES.match(path.name)]


def recipe_hash(files: Iterable[Path], *options: str, base: Path | None = None) -> str:
    """Return twelve digits that change with anything that changes the image; files have their names below `base`."""
    digest = hashlib.sha256(" ".join(options).encode())
    for path in files:
        name = path.relative_to(base) if base else path.name
        digest.update(f"\0{name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def image_path(suite: str, packages: Sequence[str] = ()) -> Path:
    """Return where the root folder of `suite` with these packages is, or will be, by today's recipe."""
    options = (suite, platform.machine(), *sorted(set(packages)))
    return cache_dir() / f"rootfs-{suite}-{recipe_hash(recipe_files(), *options)}"


def ensure_image(suite: str, tell: Tell, rebuild: bool = False, packages: Sequence[str] = ()) -> RootImage:
    """Return the root folder of `suite` with these packages of Debian's; build it if there is none, or to `rebuild`."""
    path = image_path(suite, packages)
    if rebuild or not path.is_dir():
        make_dir(path.parent)
        with hold_build_lock(path.parent / f"rootfs-{suite}.lock", tell), catch_interrupts():
            if rebuild or not path.is_dir():  # another process may have built it meanwhile
                _build(path, suite, tell, packages)
    os.utime(path)
    return read_image(path)


def remove_old_images(keep: Iterable[Path], now: float | None = None) -> None:
    """Remove root folders that no pool was started in for a month: every edit of the recipe leaves one behind."""
    for path in find_unused("rootfs-*-*", keep, now):
        _remove(path)
        path.with_name(f"{path.name}.log").unlink(missing_ok=True)


def find_unused(pattern: str, keep: Iterable[Path], now: float | None = None) -> list[Path]:
    """Return the folders of the cache that nobody has asked for in a month, but for those to `keep`."""
    oldest = (time.time() if now is None else now) - UNUSED_SECONDS
    folders = (path for path in cache_dir().glob(pattern) if path.is_dir() and path not in keep)
    return [path for path in folders if path.stat().st_mtime < oldest]


def read_image(path: Path) -> RootImage:
    """Return what the recipe wrote down about the root folder at `path`."""
    lines = (path / IMAGE_FILE).read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines)
    return RootImage(path, values["SUITE"], parse_version(values["HTCONDOR"]))


def parse_version(text: str) -> tuple[int, int, int]:
    """Return the first dotted number of three parts in `text`.

    >>> parse_version("$CondorVersion: 23.9.6 2026-07-12 PackageID: 23.9.6+dfsg-2.1+b10 $")
    (23, 9, 6)
    """
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    if not found:
        raise PoolError(f"no HTCondor version in {text!r}")
    major, minor, patch = found.groups()
    return int(major), int(minor), int(patch)


def _build(path: Path, suite: str, tell: Tell, packages: Sequence[str]) -> None:
    require_machine(["build"])
    for stale in path.parent.glob(f".building-{suite}-*"):  # of builds that were killed, for we hold the lock
        _remove(stale)
    work = path.parent / f".building-{suite}-{os.getpid()}"
    log = path.parent / f"{path.name}.log"
    started = time.monotonic()

    def step(text: str) -> None:
        tell(f"[{time.monotonic() - started:4.0f} s] {text}")

    besides = "".join(f", {name}" for name in packages)
    tell(f"building Debian {suite} with HTCondor {SUITES[suite]}{besides} in {path} (about 2 minutes, once)")
    try:
        work.mkdir()
        step("fetching Python wheels")
        recipe = resource_dir("ami") / "provision"
        with log.open("w", encoding="utf-8") as output:
            fetch_wheels(recipe / "requirements.txt", work / "wheels", output)
            run_mmdebstrap(suite, recipe, work, output, step, Target(packages=tuple(packages)))
        read_image(root_in(work))
        # With --rebuild, pools that run in the old one keep their mounts. Of a crash of the machine its many files are
        # not kept: it is a cache.
        replace_folder(path, root_in(work), work / "old")
    except PoolError as error:
        raise PoolError(f"{error}\nall of its output is in {log}") from None
    finally:
        _remove(work)
    step(f"done, {_megabytes(path)} MB")


@contextlib.contextmanager
def hold_build_lock(path: Path, tell: Tell) -> Iterator[None]:
    """Let one build at a time run; say so where another one has to be waited for."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(path, wait=False))
        except BlockingIOError:
            tell("another build of this root folder is under way; waiting for it")
            stack.enter_context(locked(path))
        yield


def _remove(path: Path) -> None:
    """Remove a tree as far as it can be; what a killed build's children still write is the next build's to remove."""
    if path.exists():
        subprocess.run(["chmod", "-R", "u+rwX", str(path)], capture_output=True, check=False)
        shutil.rmtree(path, ignore_errors=True)


def _megabytes(path: Path) -> int:
    return int(subprocess.run(["du", "-sm", path], capture_output=True, text=True, check=True).stdout.split()[0])
