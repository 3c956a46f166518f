"""Make a Debian root folder with mmdebstrap, which runs the recipe of ami/provision inside it.

As root mmdebstrap works as it is; an ordinary user needs a range of user numbers (/etc/subuid) for it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nnlib.util.process import catch_signals
from regiondag.errors import PoolError
from regiondag.pool.sandbox import image_environment

# tar ends at the archive's end, before the padding after it; whoever still writes that would die of a broken pipe.
DRAINING = ("sh", "-c", '"$@"; code=$?; cat >/dev/null; exit $code', "sh")

IN_IMAGE = "/usr/local/share/regiondag"
DPKG = "/etc/dpkg/dpkg.cfg.d"
HURRY = f"{DPKG}/regiondag-build"

# Of the host's apt settings these decide whether packages can be fetched at all.
APT_SETTINGS = re.compile(r"Acquire::(Check-Valid-Until|Check-Date|Retries|https?::(Proxy|CAInfo)) ")

# Names of platforms whose wheels run on every Debian from 13 on.
PLATFORMS = tuple(f"manylinux{name}_x86_64" for name in ("_2_28", "_2_27", "_2_24", "_2_17", "2014"))

# Lines of the build's output that are worth a line on the terminal, and what to say.
STEPS = (
    (re.compile(r"^I: running apt-get update"), "reading Debian's package lists"),
    (re.compile(r"^I: (downloading packages|extracting archives|installing essential)"), r"\1"),
    (re.compile(r"^provision: \d+-(.*)"), r"provisioning: \1"),
    (re.compile(r"^I: creating tarball"), "packing"),
)

# Debian packages of programs, and of files, that are not called like them.
PACKAGES = {
    "/usr/share/OVMF/OVMF_CODE_4M.fd": "ovmf",
    "bwrap": "bubblewrap",
    "debugfs": "e2fsprogs",
    "ip": "iproute2",
    "mcopy": "mtools",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.vfat": "dosfstools",
    "nft": "nftables",
    "nsenter": "util-linux",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
    "sfdisk": "fdisk",
    "unshare": "util-linux",
}

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Target:
    """What is to be built: by default the embedded pool's root folder."""

    options: tuple[str, ...] = ()  # of provision.sh
    components: str = "main"  # of Debian; NVIDIA's driver is in non-free
    packages: tuple[str, ...] = ()  # of Debian, besides those of the recipe
    owners: bool = False  # whether files keep their owners, so that the folder can become a disk
    apt_source: Path | None = None  # a file for /etc/apt/sources.list.d, in force from the first update on


def mmdebstrap_argv(
    suite: str,
    root: bool,
    recipe: Path,
    wheels: Path,
    settings: Iterable[str],
    sources: Iterable[str],
    target: Target = Target(),
    output: str = "-",
) -> list[str]:
    """Return the call that writes the image as a tar file to its standard output, or as the folder `output`."""
    slim = (recipe / "slim.dpkg.cfg").read_text().splitlines()
    copy = f"copy-in {shlex.quote(str(recipe))} {shlex.quote(str(wheels))} {IN_IMAGE}"
    sources_d = f"--setup-hook=copy-in {shlex.quote(str(target.apt_source))} /etc/apt/sources.list.d"
    return [
        "mmdebstrap",
        f"--mode={'root' if root else 'unshare'}",
        *(
            "--variant=apt",
            f"--format={'tar' if output == '-' else 'directory'}",
            f"--components={target.components.replace(' ', ',')}",
        ),
        '--aptopt=Acquire::Languages "none"',
        *(f"--aptopt={setting}" for setting in settings),
        *(f"--include={name}" for name in target.packages),
        *(f"--dpkgopt={line}" for line in slim),
        # What is being built need not survive a power failure, and waiting for the disk takes a third of the time.
        f'--setup-hook=mkdir -p "$1{DPKG}" && echo force-unsafe-io >"$1{HURRY}"',
        *([sources_d] if target.apt_source else []),
        f'--customize-hook=mkdir -p "$1{IN_IMAGE}"',
        f"--customize-hook={copy}",
        f'--customize-hook=chroot "$1" sh {IN_IMAGE}/provision/provision.sh {shlex.join(target.options)}'.rstrip(),
        f'--customize-hook=rm "$1{HURRY}"',
        *(suite, output, *sources),
    ]


def apt_settings(dump: str) -> list[str]:
    """Pick from `apt-config dump` what fetching packages on this host depends on (proxy, old snapshots)."""
    return [line.rstrip(";") for line in dump.splitlines() if APT_SETTINGS.match(line)]


def debian_sources(targets: str, suite: str, components: str = "main") -> list[str]:
    """Return apt lines for `suite` on the mirrors of a Debian host; empty means mmdebstrap's own choice.

    `targets` holds lines of origin, release and URI, from `apt-get indextargets`.
    """
    lines = []
    for target in targets.splitlines():
        origin, release, uri = target.split("|")
        if origin == "Debian":
            suffix = next((part for part in ("-security", "-updates", "-backports") if release.endswith(part)), "")
            if suffix != "-backports":
                lines.append(f"deb {uri} {suite}{suffix} {components}")
    unique = list(dict.fromkeys(lines))
    return unique if any(line.endswith(f" {suite} {components}") for line in unique) else []


def fetch_wheels(requirements: Path, target: Path, output: IO[str], python: str = "") -> None:
    """Fetch what Debian does not package, with the pip and the package index of this Python.

    `python` is the version, such as 3.13, of the Python that wheels with compiled code are for.
    """
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    argv += ["--requirement", str(requirements), "--dest", str(target)]
    if python:
        argv += ["--python-version", python, "--implementation", "cp"]
        argv += [option for platform in PLATFORMS for option in ("--platform", platform)]
    if subprocess.run(argv, stdout=output, stderr=output, check=False).returncode != 0:
        raise PoolError(
            f"cannot fetch the wheels of {requirements}; it needs pip ({sys.executable} -m ensurepip) and a route to "
            f"its package index\n{last_lines(Path(output.name))}"
        )


def run_mmdebstrap(
    suite: str, recipe: Path, work: Path, output: IO[str], step: Tell, target: Target = Target()
) -> None:
    """Make the root folder in `work`; all output goes to `output`, the steps of it to `step`.

    Its files are the caller's, or `owners`: then an ordinary user needs `as_owner` for whatever looks into it.
    """
    root = os.geteuid() == 0
    in_place = root and target.owners  # else through a tar file, which gives files the owner that they are to have
    folder = root_in(work)
    folder.parent.mkdir()
    (work / "tmp").mkdir()
    # As an ordinary user mmdebstrap works as another uid, which may not enter the caller's home folder.
    environment = {**image_environment(os.environ), "TMPDIR": str(work / "tmp") if root else "/var/tmp"}  # noqa: S108
    unpack = ["tar", "--extract", "--numeric-owner", "--directory", str(folder), "--exclude=./dev/*"]
    if target.owners and not root:
        # Whom as_owner works as makes the folder itself: it may give away nothing that is ours, nor take what others
        # were faster to make.
        folder.parent.chmod(0o1777)
        make = ["sh", "-c", 'mkdir "$1" && shift && exec "$@"', "sh", str(folder)]
        unpack = as_owner([*make, *unpack, "--same-owner"])
    else:
        folder.mkdir()
        unpack = ["true"] if in_place else [*unpack, "--same-owner" if root else "--no-same-owner"]
    with (
        # Groups of their own: when interrupted, mmdebstrap hangs up on its whole group, which would be us.
        subprocess.Popen(
            _host_argv(suite, recipe, work, target, str(folder) if in_place else "-"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            process_group=0,
        ) as build,
        subprocess.Popen([*DRAINING, *unpack], stdin=build.stdout, stderr=output, process_group=0) as tar,
    ):
        assert build.stdout and build.stderr  # noqa: S101 - for mypy: both are pipes
        build.stdout.close()
        try:
            for line in build.stderr:
                output.write(line)
                output.flush()
                _report(line, step)
        except BaseException:
            _interrupt(build)
            raise
    if build.returncode or tar.returncode:
        raise PoolError(
            f"building the root folder failed (mmdebstrap {build.returncode}, tar {tar.returncode}); it said:\n"
            + last_lines(Path(output.name))
        )


def root_in(work: Path) -> Path:
    """Return where the root folder is in the folder of a build: in one that holds nothing else."""
    return work / "tree" / "root"


def as_owner(argv: Sequence[str]) -> list[str]:
    """Return the call that runs `argv` with the rights over files that kept their owners."""
    return list(argv) if os.geteuid() == 0 else ["mmdebstrap", "--unshare-helper", *argv]


def _host_argv(suite: str, recipe: Path, work: Path, target: Target, output: str) -> list[str]:
    indexes = _host_output("apt-get", "indextargets", "--format", "$(ORIGIN)|$(RELEASE)|$(REPO_URI)")
    settings = apt_settings(_host_output("apt-config", "dump"))
    sources = debian_sources(indexes, suite, target.components)
    return mmdebstrap_argv(suite, os.geteuid() == 0, recipe, work / "wheels", settings, sources, target, output)


def _interrupt(build: subprocess.Popen[str]) -> None:
    """Let mmdebstrap and all it started end as by Ctrl-C: it removes its files, some of which only it may remove."""
    for number, seconds in ((signal.SIGINT, 15), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(build.pid, number)
            build.wait(seconds)
            return


def _report(line: str, step: Tell) -> None:
    for pattern, text in STEPS:
        if found := pattern.match(line):
            step(found.expand(text))


def search_path() -> str:
    """Return where programs are looked for: an ordinary user's PATH often lacks the folders of mkfs and its kin."""
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _is_there(name: str) -> bool:
    return Path(name).exists() if name.startswith("/") else shutil.which(name, path=search_path()) is not None


def install_tools(names: Iterable[str]) -> None:
    """Install host programs that are missing, where root may; else say how."""
    missing = sorted({PACKAGES.get(name, name) for name in names if not _is_there(name)})
    if not missing:
        return
    argv = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise PoolError(f"this needs {', '.join(missing)}; install with:\n  sudo {shlex.join(argv)}")
    print(f"installing {', '.join(missing)}: {shlex.join(argv)}", file=sys.stderr)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PoolError(f"{shlex.join(argv)} failed:\n{done.stderr.strip()}\ntry `apt-get update` first")


def _host_output(*argv: str) -> str:
    if shutil.which(argv[0]) is None:  # not a Debian host
        return ""
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def catch_interrupts() -> contextlib.AbstractContextManager[None]:
    """Let a hang-up or a polite kill end a build as Ctrl-C does, so that it cleans up."""
    return catch_signals((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler)


def last_lines(path: Path, count: int = 12) -> str:
    """Return the end of a log, indented."""
    return "\n".join(f"  {line}" for line in path.read_text(errors="replace").splitlines()[-count:])
