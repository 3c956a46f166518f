"""Faults of disks and files: full, cut off, with other bytes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from nnlib.contract import CHECKPOINT_FILE, MODEL_FILE, RESULT_FILE
from regiondag.run.layout import dagman_file
from tests.campaign.running import Running, wait_until
from tests.campaign.schedule import Fault

PATIENCE = 10.0  # seconds to wait for something to hit
OFTEN = 0.01  # seconds between two looks for what is there for a moment only

Inject = Callable[[Running, Fault], str | None]


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Leave no byte on the disk on which `folder` lies, which must be one of ours."""
    ballast = folder / ".ballast"
    if not os.path.ismount(folder):
        raise ValueError(f"{folder} is no disk of its own")
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * (1 << 16))
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0")
    try:
        yield
    finally:
        ballast.unlink(missing_ok=True)  # a worker that starts clears its folder


def full_disk(folder: Callable[[Running], Path]) -> Inject:
    def inject(study: Running, fault: Fault) -> str | None:
        seconds = 1 + 5 * fault.amount
        with filled(folder(study)):
            time.sleep(seconds)
        return f"for {seconds:.1f} s"

    return inject


def truncated(name: str) -> Inject:
    """Cut a file when it has come back as a whole, unless POST was quicker."""

    def hit(study: Running, fault: Fault) -> str | None:
        for path in study.run.path.glob(f"regions/*/trials/*/{name}"):
            result = path.with_name(RESULT_FILE)
            if _came_back(path) and _came_back(result) and not _settled(path):
                said = cut(path, fault.amount)
                if not _settled(path):
                    return f"{path.parent.parent.parent.name}/{path.parent.name}: {said}"
        return None

    def inject(study: Running, fault: Fault) -> str | None:
        patience = 5 * PATIENCE if name == MODEL_FILE else 2 * PATIENCE
        found = wait_until(lambda: hit(study, fault) or study.is_complete(), patience, OFTEN)
        return found if isinstance(found, str) else None

    return inject


def _came_back(path: Path) -> bool:
    """Return whether the file is there and no program of the pool still writes it."""
    try:
        if path.name == RESULT_FILE:
            return bool(json.loads(path.read_text(encoding="utf-8")).get("status") == "ok")
        return path.stat().st_size > 0
    except (OSError, ValueError):
        return False


def _settled(path: Path) -> bool:
    """Return whether the journal has the outcome of the trial whose folder the file lies in."""
    folder = path.parent
    journal = folder.parents[1] / "trials.jsonl"
    trial = int(folder.name) if folder.name.isdigit() else None
    needle = f'"trial": {json.dumps(trial)}, "status": "ok"'
    return any('"settled"' in line and needle in line for line in journal.read_text(encoding="utf-8").splitlines())


def damaged_checkpoint(damage: Callable[[Path, float], str]) -> Inject:
    """Evict a job that has trained for a while, and `cut` or `flip` what it saved before it goes on."""

    def inject(study: Running, fault: Fault) -> str | None:
        found = wait_until(lambda: trained(study.execute), PATIENCE)
        if not isinstance(found, list) or not found:
            return None
        job = found[int(fault.target * len(found))]
        if study.condor("condor_vacate_job", job).returncode:
            return None

        def hit() -> str | None:
            for path in study.spool.glob(f"*/*/cluster{job.split('.')[0]}.*/**/{CHECKPOINT_FILE}"):
                with contextlib.suppress(OSError):
                    if path.stat().st_size:
                        return f"job {job}: {damage(path, fault.amount)}"
            return None

        return wait_until(hit, PATIENCE / 2, OFTEN) or None  # type: ignore[return-value]

    return inject


def cut(path: Path, where: float) -> str:
    """Cut a file off; return what is left of it."""
    size = path.stat().st_size
    os.truncate(path, int(size * where))
    return f"{int(size * where)} of {size}"


def flip(path: Path, where: float) -> str:
    """Change a byte of a file where it lies; return which."""
    with path.open("r+b") as file:
        at = max(1, int(where * path.stat().st_size))
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x20]) if byte else b"x")
    return f"byte {at}"


def trained(execute: Path) -> list[str]:
    """Return the jobs that have at least an epoch behind them."""
    jobs = []
    for log in sorted(execute.glob("dir_*/log.jsonl")):
        with contextlib.suppress(OSError):
            ad = (log.parent / ".job.ad").read_text(encoding="utf-8")
            if log.stat().st_size and (cluster := re.search(r"^ClusterId = (\d+)$", ad, re.MULTILINE)):
                jobs.append(f"{cluster[1]}.0")
    return jobs


def damaged_node_log(damage: Callable[[Path, float], str]) -> Inject:
    """Delete or cut the event log of a DAG's nodes under DAGMan, when it has some."""

    def inject(study: Running, fault: Fault) -> str | None:
        path = dagman_file(study.run.study_dag, "nodes.log")
        if not wait_until(lambda: study.dagmans() and path.exists() and path.stat().st_size, PATIENCE):
            return None
        return damage(path, fault.amount)

    return inject


def deleted(path: Path, _where: float) -> str:
    """Delete a file; return how long it was."""
    size = path.stat().st_size
    path.unlink()
    return f"{path.name}, {size} bytes"


def corrupted(study: Running, fault: Fault) -> str | None:
    """Let a data file have other bytes of the same length, until a while after a transfer could take them."""
    files = sorted(study.run.path.glob("regions/*/data.*.nc"))
    path = files[int(fault.target * len(files))]
    whole = path.read_bytes()
    middle = len(whole) // 2
    other = whole[:middle] + bytes(255 - byte for byte in whole[middle : middle + 64]) + whole[middle + 64 :]
    _replace(path, other)
    time.sleep(1 + 5 * fault.amount)
    _replace(path, whole)
    return f"{path.parent.name}/{path.name} for {1 + 5 * fault.amount:.1f} s"


def _replace(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.fault")
    part.write_bytes(content)
    part.replace(path)
