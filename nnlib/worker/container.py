"""A program inside an image: how Apptainer is asked to run it, and what it says where it could not.

Standard library only. The job itself runs outside: an image needs no Python, signals and checkpoints are those of every
program, and an Apptainer that fails is a try of the trial that is counted, where HTCondor's own jobs in containers are
started for ever.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnlib.contract import CONTAINER_FILE
from nnlib.errors import MachineError, NnlibError

PROGRAMS = ("apptainer", "singularity")
USUAL = ("/usr/local/bin", "/usr/bin", "/bin")  # a job's PATH may be empty
BOX = "container"  # the folder of what is temporary in it, besides the program's
HOME, BUILD = "home", "build"  # in it: the program's home, and what an image of a registry is made of
TEMPORARY = "/tmp"  # noqa: S108 - the container's own, a folder in the box
DEVICES = {"/dev/nvidiactl": "--nv", "/dev/kfd": "--rocm"}
FAILED, FATAL = 255, "FATAL:"  # what Apptainer ends with and what it says, where it starts nothing
_NO_PROGRAM = re.compile(r"executable file not found|^stat .*: no such file|^permission denied$|^exec format error")


@dataclass(frozen=True, slots=True)
class Container:
    """An image: CONTAINER_FILE beside the trial, a path of the machine, or what a registry calls it."""

    image: str
    sha256: str = ""  # of the file beside the trial


def find_apptainer() -> str | None:
    """Return Apptainer of this machine, or Singularity."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *USUAL])
    return next((found for name in PROGRAMS if (found := shutil.which(name, path=path))), None)


def wrap(command: Sequence[str], container: Container, folder: Path, place: Path) -> list[str]:
    """Return the call that runs `command` in an image, in the folder `place` of the job's `folder`.

    Of the machine it sees that folder, at the same path, and GPUs; /tmp and its home are the job's own, on its disk.
    Raises MachineError where there is no Apptainer.
    """
    program = find_apptainer()
    if program is None:
        raise MachineError(f"no Apptainer on this machine: neither {' nor '.join(PROGRAMS)} is on PATH")
    box = folder / BOX
    shutil.rmtree(box, ignore_errors=True)
    for name in (HOME, BUILD):
        (box / name).mkdir(parents=True)
    image = str(folder / CONTAINER_FILE) if container.image == CONTAINER_FILE else container.image
    gpus = [option for device, option in DEVICES.items() if Path(device).exists()]
    words = [program, "--silent", "exec", "--contain", "--workdir", str(box), "--home", str(box / HOME)]
    return [*words, "--bind", str(place), "--pwd", str(place), *gpus, image, *command]


def environment_inside(variables: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return a job's variables as its container is started with them: folders of the machine are not there.

    What an image of a registry is made of goes to the job's own folder, if nobody has said another.
    """
    box = folder / BOX
    ours = {"TMPDIR": TEMPORARY, "TMP": TEMPORARY, "TEMP": TEMPORARY}
    kept = {f"{name.upper()}_{what}DIR": str(box / BUILD) for name in PROGRAMS for what in ("CACHE", "TMP")}
    return {**kept, **variables, **ours}


def why_not_started(code: int, last: Sequence[str]) -> NnlibError | None:
    """Return what kept Apptainer from starting the program, by its exit code and last lines; None where it did."""
    said = next((line for line in reversed(last) if line.startswith(FATAL)), "")
    if code != FAILED or not said:
        return None
    text = said.removeprefix(FATAL).strip()
    if _NO_PROGRAM.search(text):
        return NnlibError(f"trainer.command cannot be run in the image: {text}; legal: a program that it holds")
    return MachineError(f"the container cannot be started on this machine: {text}")
