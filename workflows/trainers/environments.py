"""The environment that goes with a program's jobs: what it is made of, its archive, and what is in that."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from nnlib.util.environment import SETTINGS, version_of
from nnlib.util.memory import show_bytes
from nnlib.util.packed import PackedError
from nnlib.util.unpacking import Entry, Kind, list_entries
from regiondag.errors import RegiondagError
from regiondag.study.model import JobRequest, Region
from regiondag.study.program import Environment, Program
from regiondag.trainers.requirements import build, key_of
from regiondag.util.digests import digest_of_shared

Tell = Callable[[str], None]
PYTHONS = ("python", "python3")  # words of a command that mean the environment's
_PYTHON = re.compile(r"(?:[^/]+/)?bin/python(?:3(?:\.[0-9]+)?)?")
_SETTINGS = re.compile(rf"(?:[^/]+/)?{re.escape(SETTINGS)}")
_LIBRARY = re.compile(r".*\.so(?:\.[0-9.]+)?")
_HEAD = 20  # bytes of a program of Linux in which its machine stands
# e_machine of ELF -> Arch of HTCondor's slots
ARCHITECTURES = {62: "X86_64", 183: "aarch64", 21: "ppc64le", 243: "riscv64"}
LONGEST_SETTINGS = 1 << 16


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in an archive."""

    packed: int  # bytes as it is sent
    unpacked: int  # bytes as it lies in the job's folder
    python: bool  # whether it has one of its own
    version: str = ""  # of Python that it needs of the worker, such as 3.13
    architecture: str = ""  # as slots name theirs; empty: it runs on any

    @property
    def usable(self) -> bool:
        """Whether `python` of a command is there."""
        return self.python or bool(self.version)

    @property
    def disk(self) -> int:
        """Bytes that it takes of a job's disk."""
        return self.packed + self.unpacked


def identify(environment: Environment) -> str:
    """Return what changes when the environment does: of a list what it says, of an archive its bytes."""
    if environment.is_list:
        return f"list {key_of(environment)}"
    return f"archive {digest_of_shared(environment.file)}"


def provide(environment: Environment, tell: Tell) -> Path:
    """Return the archive that goes with the jobs; that of a list is built unless it was before."""
    return build(environment, tell) if environment.is_list else environment.file


def provide_all(regions: Iterable[Region], tell: Tell) -> dict[str, Path]:
    """Return the archives of the regions' environments by slug; RegiondagError where one is of no use to its jobs."""
    found: dict[str, Path] = {}
    known: dict[Environment, tuple[Path, Contents]] = {}
    for region in regions:
        environment = region.program and region.program.environment
        if not region.program or not environment:
            continue
        if environment not in known:
            archive = provide(environment, tell)
            known[environment] = (archive, look_into(archive))
            tell(f"environment: {describe_contents(known[environment][1])}")
        found[region.slug], contents = known[environment]
        problem = find_problem(contents, region.program, [region.job, region.final or region.job])
        if problem:
            raise RegiondagError(f"{environment.file}, the environment of {region.name}: {problem}")
    return found


def find_problem(contents: Contents, program: Program, jobs: Iterable[JobRequest]) -> str:
    """Say why an environment is of no use to a program's jobs; nothing where it is."""
    if program.command[0] in PYTHONS and not contents.usable:
        return f"it has no bin/python, which {program.command[0]} in trainer.command would be"
    least = min(job.disk for job in jobs)
    if contents.disk > least:
        return (
            f"it takes {show_bytes(contents.disk)} of a job's disk, {show_bytes(contents.packed)} as it is sent and "
            f"{show_bytes(contents.unpacked)} unpacked; job.disk is {show_bytes(least)}, give it more than both"
        )
    return ""


def describe_contents(contents: Contents) -> str:
    """Return what is in an archive, in words."""
    python = "a Python of its own" if contents.python else "no Python"
    python = f"for Python {contents.version} of the worker" if contents.version else python
    machines = f", for {contents.architecture}" if contents.architecture else ""
    return f"{python}{machines}, {show_bytes(contents.packed)} packed, {show_bytes(contents.unpacked)} unpacked"


def look_into(archive: Path) -> Contents:
    """Read what is in an archive, all of it; RegiondagError where that is no environment."""
    size, own, settings, architecture, has_folder = 0, False, None, "", False
    try:
        for entry in list_entries(archive):
            size += entry.size if entry.kind is Kind.FILE else 0
            has_folder |= entry.name.split("/")[0] == "bin" or "/bin/" in f"/{entry.name}/"
            if _PYTHON.fullmatch(entry.name):
                own |= entry.kind is not Kind.FOLDER
            if entry.kind is not Kind.FILE:
                continue
            if _SETTINGS.fullmatch(entry.name):
                settings = _read(entry, LONGEST_SETTINGS).decode(errors="replace")
            elif not architecture and (_PYTHON.fullmatch(entry.name) or _LIBRARY.fullmatch(entry.name)):
                architecture = _architecture_of(_read(entry, _HEAD))
    except PackedError as error:
        raise RegiondagError(f"{archive}: {error}") from error
    if not has_folder and settings is None:
        raise RegiondagError(f"{archive}: it has no folder bin, legal: an environment, packed with its bin/python")
    version = "" if settings is None else version_of(settings)
    return Contents(archive.stat().st_size, size, own and settings is None, version, architecture)


def _read(entry: Entry, most: int) -> bytes:
    with entry.open() as file:
        return file.read(most)


def _architecture_of(head: bytes) -> str:
    """Return for which machines a program of Linux is, as slots say it; empty where it is none.

    >>> _architecture_of(b"#!/bin/sh")
    ''
    """
    if len(head) < _HEAD or head[:4] != b"\x7fELF":
        return ""
    order = "<" if head[5] == 1 else ">"
    return ARCHITECTURES.get(struct.unpack_from(f"{order}H", head, 18)[0], "")
