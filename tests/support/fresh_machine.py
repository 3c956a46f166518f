"""A machine as its installer left it, for as long as a test takes: a root folder of Debian's essential packages.

    with FreshMachine("trixie", folder) as machine:                # needs root; why_not() says why it would not work
        machine.copy_in(checkout, "/home/anna/regiondag")          # hers from then on
        done = machine.run("cd regiondag && scripts/quickstart")   # as anna, an ordinary user, without a terminal
        machine.run("apt-get update", user="root")

It has processes, mounts and a name of its own, and this machine's network. What is written there lies in `folder`.
All of it hangs on one process that ends when its standard input does, so also when Python is killed.

namespaces=False   a kernel that refuses user namespaces, as most containers do: clone and unshare fail with EPERM
container=True     root has no right to mount, and /proc/sys may only be read, as in a container that was not asked
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from pathlib import Path

from nnlib.util.files import locked
from regiondag.pool.process import children
from regiondag.pool.rootfs_build import apt_settings, debian_sources
from regiondag.util.user_dirs import cache_dir

USER, UID = "anna", 1000
HOME = f"/home/{USER}"
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BOOT = Path(__file__).with_name("fresh_machine_boot.sh")
SECCOMP = Path(__file__).with_name("no_user_namespaces.py")
UNSHARE = ("unshare", "--mount", "--propagation", "private", "--uts", "--ipc", "--pid", "--fork", "--kill-child=KILL")
SUDO = ("sudo",)

# Of this machine's settings those by which packages are fetched.
FETCHING = re.compile(r"PIP_\w+|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|\w+_(proxy|PROXY)")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
TRUSTED = "/etc/ssl/trusted.crt"  # there: a package of its own would overwrite it under the first name


def why_not() -> str:
    """Return why no such machine can be made here, or nothing."""
    if os.geteuid() != 0:
        return "fresh machines are made by root only"
    if shutil.which("mmdebstrap") is None:
        return "no mmdebstrap: apt-get install mmdebstrap"
    tried = subprocess.run([*UNSHARE, "mount", "-t", "proc", "proc", "/proc"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else f"no namespaces here: {tried.stderr.decode().strip()}"


def packed(suite: str, packages: Sequence[str]) -> Path:
    """Return the cached tar file of a root folder: Debian's essential packages, apt, and `packages`."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    targets = ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(RELEASE)|$(REPO_URI)"]
    known = subprocess.run(targets, capture_output=True, text=True, check=False).stdout
    argv = ["mmdebstrap", "--mode=root", "--variant=minbase", '--aptopt=Acquire::Languages "none"']
    argv += [f"--aptopt={setting}" for setting in apt_settings(dump)]
    argv += ["--dpkgopt=force-unsafe-io", *([f"--include={','.join(packages)}"] if packages else [])]
    name = hashlib.sha256(repr((argv, suite)).encode()).hexdigest()[:12]
    path = cache_dir() / f"fresh-{suite}-{name}.tar"
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_suffix(".lock")):
        if not path.exists():
            part = path.with_name(f".{path.name}")  # mmdebstrap tells the format by the ending
            subprocess.run([*argv, suite, part, *debian_sources(known, suite)], check=True, capture_output=True)
            part.rename(path)
    return path


def pip_settings() -> str:
    """Return this machine's configuration of pip, all its files as one."""
    both = ConfigParser(interpolation=None)
    both.read(Path(path).expanduser() for path in ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf"))
    text = io.StringIO()
    both.write(text)
    return text.getvalue()


class FreshMachine:
    """One machine; `folder`, which must not exist, holds its files and is removed at the end."""

    def __init__(
        self, suite: str, folder: Path, *, sudo: bool = True, namespaces: bool = True, container: bool = False
    ) -> None:
        self.root = folder
        self._tar = packed(suite, SUDO if sudo else ())
        self._sudo, self._namespaces, self._container = sudo, namespaces, container

    def __enter__(self) -> FreshMachine:
        self.root.mkdir()
        subprocess.run(
            ["tar", "--extract", "--numeric-owner", "--file", self._tar, "--directory", self.root], check=True
        )
        self._furnish()
        argv = [*UNSHARE, "sh", str(BOOT), str(self.root), "container" if self._container else "machine"]
        self._switch = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert self._switch.stdout is not None
        assert self._switch.stdout.readline() == b"ready\n"
        [self._pid] = children(self._switch.pid)
        return self

    def __exit__(self, *_: object) -> None:
        self._switch.communicate(timeout=30)
        shutil.rmtree(self.root)

    def _furnish(self) -> None:
        """Give it an ordinary user and the way to the packages."""
        etc = self.root / "etc"
        with (etc / "passwd").open("a") as passwd, (etc / "group").open("a") as group:
            passwd.write(f"{USER}:x:{UID}:{UID}::{HOME}:/bin/bash\n")
            group.write(f"{USER}:x:{UID}:\n")
        with (etc / "shadow").open("a") as shadow:  # without a password, but no account that is locked
            shadow.write(f"{USER}:*:19000:0:99999:7:::\n")
        (self.root / HOME[1:]).mkdir()
        os.chown(self.root / HOME[1:], UID, UID)
        if self._sudo:
            (etc / "sudoers.d" / USER).write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n")
        shutil.copy("/etc/resolv.conf", etc / "resolv.conf")
        (etc / "pip.conf").write_text(pip_settings().replace(CERTIFICATES, TRUSTED))
        texts = [*os.environ.values(), pip_settings()]
        for source in sorted({match for text in texts for match in re.findall(r"(?<![\w/])/opt/[\w/-]+", text)}):
            (self.root / source[1:]).mkdir(parents=True, exist_ok=True)  # packages on disk: the boot script mounts them
        if Path(CERTIFICATES).exists():
            (self.root / TRUSTED[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CERTIFICATES, self.root / TRUSTED[1:])

    def copy_in(self, source: Path, target: str) -> None:
        """Copy a folder or a file to a path of the machine; it is the ordinary user's."""
        place = self.root / target.lstrip("/")
        new = [folder for folder in (place, *place.parents) if not folder.exists()]
        place.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "--recursive", "--preserve=mode,timestamps", source, place], check=True)
        subprocess.run(["chown", "--recursive", f"{UID}:{UID}", new[-1] if new else place], check=True)

    def run(
        self, script: str, user: str = USER, settings: Mapping[str, str] | None = None, seconds: float = 900
    ) -> subprocess.CompletedProcess[str]:
        """Run a script of `sh` in the user's home, without a terminal; stdout and stderr come as one."""
        home = HOME if user == USER else "/root"
        values = {"PATH": SEARCH_PATH, "HOME": home, "USER": user, "LOGNAME": user, "TERM": "dumb"}
        here = {name: value for name, value in os.environ.items() if FETCHING.fullmatch(name)}
        fetching = {name: value.replace(CERTIFICATES, TRUSTED) for name, value in here.items()}
        values |= {**fetching, **(settings or {})}
        argv = [] if self._namespaces else [sys.executable, str(SECCOMP)]
        argv += ["nsenter", f"--target={self._pid}", "--mount", "--uts", "--ipc", "--pid", "--root", "--"]
        argv += ["setpriv", *(["--bounding-set=-sys_admin"] if self._container else [])]
        argv += ["--reuid=0"] if user == "root" else [f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
        argv += ["env", "--ignore-environment", f"--chdir={home}", *(f"{name}={values[name]}" for name in values)]
        return subprocess.run(
            [*argv, "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
