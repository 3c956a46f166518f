"""The environment that goes with a program's job: unpacked beside it, and made to work where it lies now.

Either it has a Python of its own (as conda-pack makes them), or it is a virtual environment (pyvenv.cfg), which takes
this machine's, if that is of its version. Standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nnlib.errors import MachineError, NnlibError
from nnlib.util.os_errors import describe, reason_of
from nnlib.util.packed import PackedError
from nnlib.util.unpacking import unpack_tree

PLACE = "environment"  # the folder of the job in which it lies
MARK = ".whole"  # in it once it works: the SHA-256 of its archive
SETTINGS = "pyvenv.cfg"
PYTHON = re.compile(r"python3?(\.[0-9]+)?")
CONDA_UNPACK = "conda-unpack"  # which puts the new place into the files that name the old one
LONGEST_UNPACK = 600.0  # seconds
FOREIGN = ("PYTHONHOME", "PYTHONPATH")  # of the machine's own Python


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment that works."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its Python; there need not be one."""
        plain, numbered = self.folder / "bin" / "python", self.folder / "bin" / "python3"
        return numbered if numbered.exists() and not plain.exists() else plain

    def variables(self, before: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a process that works in it; `before` are those of this machine."""
        kept = {name: value for name, value in before.items() if name not in FOREIGN}
        name = "VIRTUAL_ENV" if (self.folder / SETTINGS).exists() else "CONDA_PREFIX"
        path = os.pathsep.join([str(self.folder / "bin"), before.get("PATH", os.defpath)])
        return {**kept, name: str(self.folder), "PATH": path, "PYTHONNOUSERSITE": "1"}


def set_up_environment(
    archive: Path, digest: str, folder: Path, look: Callable[[], None] = lambda: None
) -> Environment:
    """Unpack an archive, whose SHA-256 is `digest`, in a job's folder, unless it lies there; `look` may stop that.

    Raises NnlibError where no machine could use it, MachineError where another one may.
    """
    place = Environment(folder / PLACE)
    mark = place.folder / MARK
    if mark.is_file() and mark.read_text(encoding="utf-8") == digest:
        return place
    whole = folder / f"{PLACE}.whole"
    remove_environment(folder)
    try:
        outside = unpack_tree(archive, whole, look)
        top, outside = _find_top(whole, outside)
        top.replace(place.folder)
    except PackedError as error:
        raise NnlibError(f"trainer.environment: {error}") from error
    except OSError as error:
        raise MachineError(f"the environment cannot be unpacked: {describe(error)}") from error
    finally:
        shutil.rmtree(whole, ignore_errors=True)
    if (place.folder / SETTINGS).is_file():
        outside = _use_this_python(place.folder, outside)
    if outside:
        name, target = next(iter(outside.items()))
        raise NnlibError(f"trainer.environment: {name} is a link to {target}, which does not go with it; pack it whole")
    look()
    _relocate(place)
    mark.write_text(digest, encoding="utf-8")
    return place


def remove_environment(folder: Path) -> None:
    """Remove what a job has unpacked. The job leaves that to who made its folder: it is started again there, or soon
    all of the folder goes.
    """
    for name in (PLACE, f"{PLACE}.whole"):
        shutil.rmtree(folder / name, ignore_errors=True)


def version_of(settings: str) -> str:
    """Return the version of Python that a virtual environment is of, by its pyvenv.cfg; empty where it says none.

    >>> version_of("home = /usr/bin\\nversion_info = 3.13.5.final.0\\n")
    '3.13'
    """
    found = re.search(r"^version(?:_info)? *= *([0-9]+\.[0-9]+)", settings, re.MULTILINE)
    return found[1] if found else ""


def _find_top(whole: Path, outside: dict[str, str]) -> tuple[Path, dict[str, str]]:
    """Return the folder that has `bin`: that of the archive, or the only one in it."""
    inside = list(whole.iterdir())
    if (whole / "bin").is_dir() or len(inside) != 1 or not (inside[0] / "bin").is_dir() or inside[0].is_symlink():
        return whole, outside
    return inside[0], {name.partition("/")[2]: target for name, target in outside.items()}


def _use_this_python(folder: Path, outside: Mapping[str, str]) -> dict[str, str]:
    """Let a virtual environment take the Python of this machine; return the links that still lead out."""
    settings = (folder / SETTINGS).read_text(encoding="utf-8", errors="replace")
    python = Path(os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable))
    wanted, seen = version_of(settings), "{}.{}".format(*sys.version_info)
    if wanted and wanted != seen:
        raise MachineError(
            f"trainer.environment is for Python {wanted}, this machine's is {seen} ({python}); for requirements.txt "
            f'say python: "{seen}", or send an environment with a Python of its own'
        )
    system = re.search(r"^include-system-site-packages *= *true", settings, re.MULTILINE)
    lines = [f"home = {python.parent}", f"include-system-site-packages = {'true' if system else 'false'}"]
    (folder / SETTINGS).write_text("\n".join([*lines, f"version = {seen}", ""]), encoding="utf-8")
    (folder / "bin").mkdir(exist_ok=True)
    names = {name.removeprefix("bin/") for name in outside if PYTHON.fullmatch(name.removeprefix("bin/"))}
    for name in {*names, "python", "python3"}:
        link = folder / "bin" / name
        if link.is_symlink() or not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(python)
    return {name: target for name, target in outside.items() if name.removeprefix("bin/") not in names}


def _relocate(place: Environment) -> None:
    """Let conda-unpack put the folder's name where the files of the environment name another one."""
    script = place.folder / "bin" / CONDA_UNPACK
    if not script.is_file():
        return
    try:
        done = subprocess.run(
            [str(place.python), str(script)],
            cwd=place.folder,
            env=place.variables(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LONGEST_UNPACK,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        said = reason_of(error) if isinstance(error, OSError) else f"not done after {LONGEST_UNPACK:.0f} s"
        raise MachineError(f"{CONDA_UNPACK} of the environment does not work on this machine: {said}") from error
    if done.returncode != 0:
        last = (done.stderr + done.stdout).strip().splitlines()[-1:]
        raise MachineError(f"{CONDA_UNPACK} of the environment ended with {done.returncode}: {''.join(last):.500}")
