"""Build and cache the root folder that the embedded pool runs in.

mmdebstrap unpacks a minimal Debian, then runs the recipe of ami/provision inside it; the result is unpacked beside
its final place and renamed, so a folder of that name is always complete. Its name carries a hash of the recipe:
an edited recipe is another folder. One build at a time per suite, others wait for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from workflows.dirs import cache_dir
from workflows.errors import PoolError
from workflows.resources import resource_dir

# Debian releases whose HTCondor series the project supports.
SUITES = {"trixie": "23.9", "forky": "25.14"}

IN_IMAGE = "/usr/local/share/regiondag"
IMAGE_FILE = "etc/regiondag-image"
UNUSED_SECONDS = 30 * 24 * 3600

# Of the host's apt settings these decide whether packages can be fetched at all.
APT_SETTINGS = re.compile(r"Acquire::(Check-Valid-Until|Check-Date|Retries|https?::(Proxy|CAInfo)) ")

# Lines of the build's output that are worth a line on the terminal, and what to say.
STEPS = (
    (re.compile(r"^I: running apt-get update"), "reading Debian's package lists"),
    (re.compile(r"^I: (downloading packages|extracting archives|installing essential)"), r"\1"),
    (re.compile(r"^provision: \d+-(.*)"), r"provisioning: \1"),
    (re.compile(r"^I: creating tarball"), "packing"),
)

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Image:
    """A complete root folder."""

    path: Path
    suite: str
    version: tuple[int, int, int]


def recipe_files() -> list[Path]:
    """Return every file of the recipe."""
    return sorted(path for path in (resource_dir("ami") / "provision").rglob("*") if path.is_file())


def recipe_hash(files: Iterable[Path], suite: str, machine: str) -> str:
    """Return twelve digits that change with anything that changes the image."""
    digest = hashlib.sha256(f"{suite} {machine}".encode())
    for path in files:
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def image_path(suite: str) -> Path:
    """Return where the root folder of `suite` is, or will be, by today's recipe."""
    return cache_dir() / f"rootfs-{suite}-{recipe_hash(recipe_files(), suite, platform.machine())}"


def ensure_image(suite: str, tell: Tell, rebuild: bool = False) -> Image:
    """Return the root folder of `suite`; build it if there is none or `rebuild` asks for a new one."""
    path = image_path(suite)
    if rebuild or not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(path.parent / f"rootfs-{suite}.lock", tell):
            if rebuild or not path.is_dir():  # another process may have built it meanwhile
                _build(path, suite, tell)
    os.utime(path)
    return read_image(path)


def remove_old_images(keep: Iterable[Path], now: float | None = None) -> None:
    """Remove root folders that no pool was started in for a month: every edit of the recipe leaves one behind."""
    oldest = (time.time() if now is None else now) - UNUSED_SECONDS
    for path in cache_dir().glob("rootfs-*-*"):
        if path.is_dir() and path not in keep and path.stat().st_mtime < oldest:
            _remove(path)
            path.with_name(f"{path.name}.log").unlink(missing_ok=True)


def read_image(path: Path) -> Image:
    """Return what the recipe wrote down about the root folder at `path`."""
    lines = (path / IMAGE_FILE).read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines)
    return Image(path, values["SUITE"], parse_version(values["HTCONDOR"]))


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


def mmdebstrap_argv(
    suite: str, root: bool, recipe: Path, wheels: Path, settings: Iterable[str], sources: Iterable[str]
) -> list[str]:
    """Return the call that writes the image as a tar file to its standard output."""
    slim = (recipe / "slim.dpkg.cfg").read_text().splitlines()
    copy = f"copy-in {shlex.quote(str(recipe))} {shlex.quote(str(wheels))} {IN_IMAGE}"
    return [
        "mmdebstrap",
        f"--mode={'root' if root else 'unshare'}",
        *("--variant=apt", "--format=tar"),
        '--aptopt=Acquire::Languages "none"',
        *(f"--aptopt={setting}" for setting in settings),
        *(f"--dpkgopt={line}" for line in slim),
        f'--customize-hook=mkdir -p "$1{IN_IMAGE}"',
        f"--customize-hook={copy}",
        f'--customize-hook=chroot "$1" sh {IN_IMAGE}/provision/provision.sh',
        *(suite, "-", *sources),
    ]


def apt_settings(dump: str) -> list[str]:
    """Pick from `apt-config dump` what fetching packages on this host depends on (proxy, old snapshots)."""
    return [line.rstrip(";") for line in dump.splitlines() if APT_SETTINGS.match(line)]


def debian_sources(targets: str, suite: str) -> list[str]:
    """Return apt lines for `suite` on the mirrors of a Debian host; empty means mmdebstrap's own choice.

    `targets` holds lines of origin, release and URI, from `apt-get indextargets`.
    """
    lines = []
    for target in targets.splitlines():
        origin, release, uri = target.split("|")
        if origin == "Debian":
            suffix = next((part for part in ("-security", "-updates", "-backports") if release.endswith(part)), "")
            if suffix != "-backports":
                lines.append(f"deb {uri} {suite}{suffix} main")
    unique = list(dict.fromkeys(lines))
    return unique if any(line.endswith(f" {suite} main") for line in unique) else []


def _build(path: Path, suite: str, tell: Tell) -> None:
    _check_tools()
    for stale in path.parent.glob(f".building-{suite}-*"):  # we hold the lock: nobody works on these
        _remove(stale)
    work = path.parent / f".building-{suite}-{os.getpid()}"
    log = path.parent / f"{path.name}.log"
    started = time.monotonic()

    def step(text: str) -> None:
        tell(f"[{time.monotonic() - started:4.0f} s] {text}")

    tell(f"building Debian {suite} with HTCondor {SUITES[suite]} in {path} (about 2 minutes, once)")
    try:
        work.mkdir()
        step("fetching Python wheels")
        recipe = resource_dir("ami") / "provision"
        with log.open("w", encoding="utf-8") as output:
            _fetch_wheels(recipe / "requirements.txt", work / "wheels", output)
            _run_mmdebstrap(suite, recipe, work, output, step)
        read_image(work / "root")
        if path.exists():  # --rebuild: pools that run in the old one keep their mounts
            path.rename(work / "old")
        (work / "root").rename(path)
    except PoolError as error:
        raise PoolError(f"{error}\nall of its output is in {log}") from None
    finally:
        _remove(work)
    step(f"done, {_megabytes(path)} MB")


def _fetch_wheels(requirements: Path, target: Path, output: IO[str]) -> None:
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    argv += ["--requirement", str(requirements), "--dest", str(target)]
    if subprocess.run(argv, stdout=output, stderr=output, check=False).returncode != 0:
        raise PoolError(
            f"cannot fetch the wheels of {requirements}; it needs pip ({sys.executable} -m ensurepip) and a route to "
            f"its package index\n{_last_lines(Path(output.name))}"
        )


def _run_mmdebstrap(suite: str, recipe: Path, work: Path, output: IO[str], step: Tell) -> None:
    root = os.geteuid() == 0
    argv = mmdebstrap_argv(
        suite,
        root,
        recipe,
        work / "wheels",
        apt_settings(_host_output("apt-config", "dump")),
        debian_sources(_host_output("apt-get", "indextargets", "--format", "$(ORIGIN)|$(RELEASE)|$(REPO_URI)"), suite),
    )
    (work / "root").mkdir()
    (work / "tmp").mkdir()
    # As an ordinary user mmdebstrap works as another uid, which may not enter the caller's home folder.
    environment = {**os.environ, "TMPDIR": str(work / "tmp") if root else "/var/tmp"}  # noqa: S108
    owner = "--same-owner" if root else "--no-same-owner"
    unpack = ["tar", "--extract", "--numeric-owner", owner, "--directory", str(work / "root"), "--exclude=./dev/*"]
    with (
        subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=environment
        ) as build,
        subprocess.Popen(unpack, stdin=build.stdout, stderr=output) as tar,
    ):
        assert build.stdout and build.stderr  # noqa: S101 - for mypy: both are pipes
        build.stdout.close()
        try:
            for line in build.stderr:
                output.write(line)
                output.flush()
                _report(line, step)
        except KeyboardInterrupt:  # the terminal has told mmdebstrap too; let it remove its own files first
            build.wait()
            raise
    if build.returncode or tar.returncode:
        raise PoolError(
            f"building the root folder failed (mmdebstrap {build.returncode}, tar {tar.returncode}); it said:\n"
            + _last_lines(Path(output.name))
        )


def _report(line: str, step: Tell) -> None:
    for pattern, text in STEPS:
        if found := pattern.match(line):
            step(found.expand(text))


def _check_tools() -> None:
    """Make sure that mmdebstrap is there and may do its work."""
    install_tools(["mmdebstrap", "tar"])
    if os.geteuid() == 0:
        return
    user = getpass.getuser()
    ranges = Path("/etc/subuid")
    has_range = ranges.exists() and re.search(rf"^({re.escape(user)}|{os.getuid()}):", ranges.read_text(), re.M)
    if not shutil.which("newuidmap") or not has_range:
        raise PoolError(
            "building the root folder as an ordinary user needs a range of user numbers; run once:\n"
            "  sudo apt-get install -y uidmap\n"
            f"  sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}\n"
            f"or copy a {cache_dir()}/rootfs-* that somebody else has built"
        )


def install_tools(names: Iterable[str]) -> None:
    """Install host programs that are missing, where root may; else say how."""
    packages = {"bwrap": "bubblewrap", "nsenter": "util-linux", "unshare": "util-linux"}
    missing = sorted({packages.get(name, name) for name in names if shutil.which(name) is None})
    if not missing:
        return
    if "mmdebstrap" in missing and not Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists():
        missing.append("debian-archive-keyring")  # Ubuntu does not bring Debian's keys
    argv = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise PoolError(f"the embedded pool needs {', '.join(missing)}; install with:\n  sudo {shlex.join(argv)}")
    print(f"installing {', '.join(missing)}: {shlex.join(argv)}", file=sys.stderr)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PoolError(f"{shlex.join(argv)} failed:\n{done.stderr.strip()}\ntry `apt-get update` first")


def _host_output(*argv: str) -> str:
    if shutil.which(argv[0]) is None:  # not a Debian host
        return ""
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


@contextlib.contextmanager
def _only_one(path: Path, tell: Tell) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("another build of this root folder is under way; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove(path: Path) -> None:
    """Remove a tree, also one with folders that its owner made unwritable."""
    if path.exists():
        subprocess.run(["chmod", "-R", "u+rwX", str(path)], capture_output=True, check=False)
        shutil.rmtree(path)


def _last_lines(path: Path, count: int = 12) -> str:
    return "\n".join(f"  {line}" for line in path.read_text(errors="replace").splitlines()[-count:])


def _megabytes(path: Path) -> int:
    return int(subprocess.run(["du", "-sm", path], capture_output=True, text=True, check=True).stdout.split()[0])
