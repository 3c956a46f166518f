"""The archive of a region's program, as its jobs get it: the same files give the same bytes."""

from __future__ import annotations

import tempfile
from importlib.resources import files
from pathlib import Path

from nnlib.contract import CONTAINER_FILE, PROGRAM_FILE, sha256_of
from nnlib.util.packed import pack
from nnlib.worker import program_archive as job
from nnlib.worker.container import Container
from regiondag.study.program import CALL, Program
from regiondag.trainers.environments import identify
from regiondag.util.digests import digest_of_shared


def write_program(program: Program, archive: Path) -> None:
    """Write program.zip: the command, the program's files, and the helpers that it may import."""
    container = _container_of(program)
    environment = identify(program.environment) if program.environment else ""
    sent = (program.downloads, container, program.terms, environment)
    manifest = job.program_to_json(job.Program(program.command, program.retry, *sent))
    helper = f"{job.HELPER}regiondag"
    own = ("trial.py", "call.py") if CALL in program.command else ("trial.py",)
    packed: dict[str, Path | bytes] = {
        job.MANIFEST: manifest.encode(),
        f"{helper}/__init__.py": b"",
        **{f"{helper}/{name}": files("regiondag").joinpath(name).read_bytes() for name in own},
    }
    pack(packed | {f"{job.FILES}{name}": file for name, file in program.files}, archive)


def _container_of(program: Program) -> Container | None:
    """Return the container as the job has it: its archive is another one where the image's file is."""
    if program.container is None:
        return None
    image = program.image
    if image is None:
        return Container(program.container.image)
    return Container(CONTAINER_FILE, digest_of_shared(image))


def digest_of(program: Program) -> str:
    """Return the SHA-256 that the archive of a program has."""
    with tempfile.TemporaryDirectory(prefix="regiondag-") as folder:
        archive = Path(folder) / PROGRAM_FILE
        write_program(program, archive)
        return sha256_of(archive)
