"""What a Python that goes with jobs consists of: the one that runs regiondag, with the packages that nnlib needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path, PurePosixPath

from nnlib.util.process import install_line
from regiondag.errors import RegiondagError

# By nnlib; others come along as these require them. Not Numba, which is as large as all else: a machine that keeps
# nothing from one job to the next would compile anew each time, so that NumPy is used there.
NEEDED = ("numpy", "scipy", "netCDF4", "threadpoolctl")
ON_GPUS = re.compile(r"cupy-cuda\d+x|nvidia-.*|cuda-.*", re.IGNORECASE)
EXECUTABLE = "bin/python3"
LIBRARIES = "lib"  # where shared libraries of this system go
# Of the standard library: what no training needs, and what is packages of others.
LEFT_OUT: tuple[str, ...] = ("test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "__pycache__")
LEFT_OUT += ("site-packages", "dist-packages")
# glibc's own, and the driver's: those have to be the machine's.
OF_MACHINE = re.compile(r"(ld-linux.*|lib(c|m|mvec|dl|rt|pthread|util|resolv|anl|nss_\w+|cuda|nvidia-.*))\.so.*")
_LIBRARY = re.compile(r"\.so(\.[0-9.]+)?$")
_FOUND = re.compile(r"\t(\S+) => (/.+) \(0x[0-9a-f]+\)")
_WANTS_GLIBC = re.compile(r"\t\t\S+ \(GLIBC_([0-9.]+)\) => ")


@dataclass(frozen=True, slots=True)
class PythonFiles:
    """Files by their names in the bundle, and the glibc without which they do not run."""

    files: Mapping[str, Path]
    glibc: tuple[int, int]


def list_python(*, gpus: bool) -> PythonFiles:
    """Return what such a Python consists of; `gpus`: with CuPy and the parts of CUDA beside it.

    RegiondagError where a package is missing here, or what installed it has kept no list of its files.
    """
    python = Path(os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable))
    files = {EXECUTABLE: python}
    files |= {f"{_stdlib()}/{name}": path for name, path in _list_stdlib()}
    place = _site_packages(python)
    for package in list_packages(gpus=gpus):
        files |= {f"{place}/{name}": path for name, path in _list_package(package)}
    libraries, glibc = _look_at_libraries([path for name, path in files.items() if is_binary(name)])
    inside = {os.path.realpath(path) for path in files.values()}
    files |= {f"{LIBRARIES}/{name}": path for name, path in libraries.items() if os.path.realpath(path) not in inside}
    return PythonFiles(files, glibc)


def is_binary(name: str) -> bool:
    """Return whether a file of a bundle is the interpreter, or a shared library."""
    return name == EXECUTABLE or bool(_LIBRARY.search(name))


def list_packages(*, gpus: bool) -> list[Distribution]:
    """Return the packages that nnlib's jobs need of those installed here, by name."""
    on_gpus = [one.name for one in distributions() if ON_GPUS.fullmatch(one.name)] if gpus else []
    if gpus and not any(name.lower().startswith("cupy") for name in on_gpus):
        raise RegiondagError(f"job.python: bundle for GPUs takes the CuPy that is installed here, and there is none: "
                             f"{install_line('gpu-cuda13')}; for networks on processors job.gpus: 0")  # fmt: skip
    found, waiting = dict[str, Distribution](), [*NEEDED, *on_gpus]
    while waiting:
        name = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            found[key] = distribution(name)
        except PackageNotFoundError:  # what another system would need
            if name in NEEDED:
                raise RegiondagError(f"job.python: bundle needs {name} here: {install_line()}") from None
            continue
        wanted = (re.match(r"[\w.-]+", line) for line in found[key].requires or () if "extra ==" not in line)
        waiting += [one[0] for one in wanted if one]
    return [found[key] for key in sorted(found)]


def _stdlib() -> str:
    """Return where a Python looks for its standard library, from the folder above `bin`."""
    return f"{sys.platlibdir}/python{{}}.{{}}".format(*sys.version_info)


def _list_stdlib() -> Iterator[tuple[str, Path]]:
    top = Path(sysconfig.get_path("stdlib"))
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT and not name.startswith("config-"))
        for path in (Path(folder, name) for name in names if not name.startswith("_tkinter")):
            if path.is_file():  # also by a link, as of Debian; not one that leads nowhere
                yield path.relative_to(top).as_posix(), path


def _site_packages(python: Path) -> str:
    """Return where this Python, outside of a virtual environment, looks for packages; distributions differ."""
    ask = "import site; print(site.getsitepackages()[-1])"
    done = subprocess.run([python, "-I", "-c", ask], capture_output=True, text=True, check=True)
    return os.path.relpath(done.stdout.strip(), sys.base_prefix)


def _list_package(package: Distribution) -> Iterator[tuple[str, Path]]:
    listed = package.files
    if not listed:
        raise RegiondagError(
            f"job.python: bundle: nothing says which files {package.name} has here, as of a system's own package; "
            "install regiondag by pip into a virtual environment"
        )
    for file in listed:
        name, path = PurePosixPath(file), Path(str(file.locate()))
        if ".." not in name.parts and not {"__pycache__", "tests"} & {*name.parts[:-1]} and path.is_file():
            yield str(name), path


def _look_at_libraries(binaries: Iterable[Path]) -> tuple[dict[str, Path], tuple[int, int]]:
    """Return the shared libraries that programs and libraries take of this system, and the glibc that all need."""
    done = subprocess.run(["ldd", "-v", *binaries], capture_output=True, text=True, errors="replace", check=False)
    libraries, glibc, of = dict[str, Path](), (2, 17), ""
    for line in done.stdout.splitlines():
        if found := _FOUND.match(line):
            libraries.setdefault(found[1], Path(found[2]))
        elif found := _WANTS_GLIBC.match(line):
            if not OF_MACHINE.fullmatch(of):
                glibc = max(glibc, _version(found[1]))
        elif line.endswith(":"):
            of = line.strip().rpartition("/")[2][:-1]
    return {name: path for name, path in libraries.items() if not OF_MACHINE.fullmatch(name)}, glibc


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)
