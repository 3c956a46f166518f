"""What is in an environment's archive, and whether jobs can use it."""

from __future__ import annotations

import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from nnlib.util.packed import pack
from regiondag.errors import RegiondagError
from regiondag.study.model import JobRequest
from regiondag.study.program import Environment, Program
from regiondag.trainers.environments import (
    Contents,
    describe_contents,
    find_problem,
    identify,
    look_into,
    provide,
)

ELF = b"\x7fELF\x02\x01\x01" + bytes(11) + struct.pack("<H", 183)
MB = 1 << 20


def write(folder: Path, **files: bytes) -> Path:
    pack({name.replace("__", "/"): content for name, content in files.items()}, folder / "env.zip")
    return folder / "env.zip"


def test_a_python_of_its_own_says_for_which_machines(tmp_path):
    seen = look_into(write(tmp_path, bin__python3=ELF, lib__x=bytes(1000)))
    assert (seen.python, seen.version, seen.architecture) == (True, "", "aarch64")
    assert seen.unpacked == 1000 + len(ELF) and seen.packed == (tmp_path / "env.zip").stat().st_size
    assert describe_contents(seen).startswith("a Python of its own, for aarch64, ")


def test_the_folder_may_be_packed_with_its_name(tmp_path):
    seen = look_into(write(tmp_path, env__bin__python=b"#!/bin/sh"))
    assert (seen.python, seen.architecture) == (True, "")


def test_a_virtual_environment_needs_the_workers(tmp_path):
    settings = {"pyvenv.cfg": b"version = 3.13\n", "lib/x.so": ELF, "bin/python": b""}
    pack(settings, tmp_path / "env.zip")
    seen = look_into(tmp_path / "env.zip")
    assert (seen.python, seen.version, seen.usable) == (False, "3.13", True)
    assert describe_contents(seen).startswith("for Python 3.13 of the worker, for aarch64")


def test_a_link_may_be_its_python(tmp_path):
    with tarfile.open(tmp_path / "env.tar", "w") as tape:
        info = tarfile.TarInfo("bin/python")
        info.type, info.linkname = tarfile.SYMTYPE, "python3"
        tape.addfile(info)
    assert look_into(tmp_path / "env.tar").python


def test_what_is_no_environment_is_named(tmp_path):
    with pytest.raises(RegiondagError, match="it has no folder bin"):
        look_into(write(tmp_path, lib__x=b""))
    (tmp_path / "env.tar.gz").write_bytes(b"x")
    with pytest.raises(RegiondagError, match=r"env\.tar\.gz: "):
        look_into(tmp_path / "env.tar.gz")


def test_a_job_has_to_hold_it_packed_and_unpacked():
    job, program = JobRequest(disk=100 * MB), Program(("python", "train.py"))
    contents = Contents(packed=40 * MB, unpacked=61 * MB, python=True)
    assert find_problem(replace(contents, unpacked=60 * MB), program, [job]) == ""
    assert find_problem(contents, program, [job, replace(job, disk=200 * MB)]) == (
        "it takes 101.0 MiB of a job's disk, 40.0 MiB as it is sent and 61.0 MiB unpacked; job.disk is 100.0 MiB, give "
        "it more than both"
    )


def test_python_has_to_be_in_it_where_the_command_says_so():
    contents, job = Contents(packed=1, unpacked=1, python=False), JobRequest()
    assert "it has no bin/python" in find_problem(contents, Program(("python", "train.py")), [job])
    assert find_problem(contents, Program(("Rscript", "train.R")), [job]) == ""


def test_an_archive_is_what_its_bytes_are(tmp_path):
    environment = Environment(write(tmp_path, bin__python=b"1"))
    first = identify(environment)
    assert provide(environment, print) == environment.file
    assert first.startswith("archive ") and identify(environment) == first
    write(tmp_path, bin__python=b"22")
    assert identify(environment) != first
