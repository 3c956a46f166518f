"""Train a trial of a run once more, here, from the run's own code and inputs. Nothing is written into the run."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nnlib.contract import (
    LOG_FILE,
    RESULT_FILE,
    TRIAL_FILE,
    ContractError,
    Exit,
    Result,
    Status,
    Trial,
    read_result,
    sha256_of,
    trial_from_json,
    trial_to_json,
)
from nnlib.epoch_log import read_epochs
from nnlib.util.environment import remove_environment
from nnlib.util.os_errors import reason_of
from nnlib.util.process import install_line
from regiondag.audit.compare import Record, Replayed
from regiondag.errors import PoolError, RegiondagError, UsageError
from regiondag.pool.pool import Pool
from regiondag.run.history import TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RegionFolder, RunFolder
from regiondag.run.region_spec import read_spec
from regiondag.study.model import GPU_COUNTS
from regiondag.trainers.again import fetch_inputs, list_differences

ARCHIVE = re.compile(r"nnlib-[0-9a-f]{12}\.pyz")
RECIPE_PYTHON = "/usr/local/libexec/regiondag/python"  # what provisioned machines and root folders have
# What a Python has; a job's figures depend on these.
PROBE = """
import importlib.util as u, json, platform, numpy, scipy, netCDF4
gpus = 0
if u.find_spec("cupy"):
    try:
        import cupy
        gpus = cupy.cuda.runtime.getDeviceCount() if cupy.is_available() else 0
    except Exception:
        pass
has = {"python": platform.python_version(), "gpus": gpus}
has |= {"numpy": numpy.__version__, "scipy": scipy.__version__, "numba": bool(u.find_spec("numba"))}
print(json.dumps(has))
"""
PROBE_SECONDS = 120
COMPARED = frozenset({Status.OK, Status.PRUNED, Status.DIVERGED, Status.BAD_INPUT})  # how a trial may have ended
BLAS = ("BLIS_", "MKL_", "OPENBLAS_")  # variables of whoever asks that would change the bits; jobs have none of them
STOPPING = 10.0  # seconds that a training gets to end after Ctrl-C


@dataclass(frozen=True, slots=True)
class Case:
    """A trial that has ended: what it was, what came of it, and with which code."""

    folder: RegionFolder
    inputs: RegionFolder  # whose data it was trained on
    node: NodeName
    trial: Trial
    record: Record
    archive: Path


@dataclass(frozen=True, slots=True)
class Python:
    """A Python that can train, and what it has."""

    pool: Pool | None  # inside whose root folder it is; None: here
    path: str
    has: Mapping[str, Any]

    def __str__(self) -> str:
        """Return where it is, in words."""
        return f"{self.path}, inside the pool {self.pool.name!r}" if self.pool else self.path

    def command(self, argv: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> list[str]:
        """Return the call that runs Python with `argv` in `cwd`."""
        whole = ["env", *(f"{name}={value}" for name, value in environment.items()), self.path, *argv]
        return self.pool.command(whole, cwd) if self.pool else whole


def find_case(run: RunFolder, slug: str, number: int | None, digests: Mapping[str, str]) -> Case:
    """Read what is known of a trial; RegiondagError when there is nothing to compare with, or a file was changed."""
    folder, node = run.region(slug), NodeName(slug, number)
    settled = _read_outcome(folder, node)
    place, served_by = folder.trial(node), read_spec(folder.spec).served_by
    if served_by and not place.exists():
        raise RegiondagError(
            f"{node} had no job: what serves the region was made for all; regiondag replay {run.path} {served_by} final"
        )
    try:
        trial = trial_from_json((place / TRIAL_FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ContractError) as error:
        said = reason_of(error) if isinstance(error, OSError) else error
        raise RegiondagError(
            f"{place / TRIAL_FILE}: cannot be read, so nothing can be trained: {said}; `regiondag verify` lists all "
            "changes"
        ) from None
    if served_by:  # its figures are those of the region's customers, those of the job of everybody
        settled = replace(settled, metrics={}, baseline={}, compared={})
    result, digest = _result(place / RESULT_FILE)
    record = Record(settled, result, digest, _losses(place), _digest(place / trial.outputs.model))
    archive = _archive(run, digests, result)
    inputs = run.region(served_by) if served_by else folder
    for name, wanted in trial.sha256.items():
        _check_input(inputs.path, name, wanted)
    return Case(folder, inputs, node, trial, record, archive)


def _read_outcome(folder: RegionFolder, node: NodeName) -> TrialOutcome:
    history = Journal(folder.journal).read()
    settled = history.last_outcome(node.number)
    if settled is None:
        known = node.number is None or node.number in history.proposals
        raise RegiondagError(
            f"{node} has not ended: there is nothing to compare with; `regiondag status` says where the run stands"
            if known
            else f"{node} never ran, it was not even proposed; `regiondag study show` lists the trials that were"
        )
    if settled.status not in COMPARED:
        raise RegiondagError(
            f"{node} came to nothing that could be compared: {settled.status}, {settled.reason}. "
            "`regiondag trial rerun` runs it again"
        )
    return settled


def _archive(run: RunFolder, digests: Mapping[str, str], result: Result | None) -> Path:
    """Return the code that trained the trial; RegiondagError when the run has it no longer."""
    archives = {name: digest for name, digest in digests.items() if ARCHIVE.fullmatch(name)}
    wanted = result.code if result else ""
    fitting = [name for name, digest in archives.items() if wanted in ("", digest)]
    if not fitting:
        raise RegiondagError(
            f"the trial was trained by code with the sha256 {wanted[:12]}, which the run does not have; "
            f"it has {', '.join(archives) or 'none'}; restore it, or `regiondag trial rerun` trains it anew"
        )
    path = run.path / fitting[0]
    _check_digest(path, archives[fitting[0]], "manifest.json")
    return path


def _check_input(folder: Path, name: str, wanted: str) -> None:
    if Path(name).name != name:
        raise RegiondagError(f"{TRIAL_FILE} names the input {name!r}, legal: a file of the region's folder")
    _check_digest(folder / name, wanted, TRIAL_FILE)


def _check_digest(path: Path, wanted: str, source: str) -> None:
    seen = _digest(path)
    if seen != wanted:
        found = f"its sha256 is {seen[:12]}" if seen else "it is missing"
        raise RegiondagError(f"{path}: {found}, {source} says {wanted[:12]}; `regiondag verify` lists all changes")


# --- which Python ------------------------------------------------------------------------------------------


def choose_python(record: Record, pool: Pool | None, near: Path) -> Python:
    """Return the Python whose libraries are those of the trial, else the first that can train at all.

    Looked for here, and inside the embedded pool, which sees the folder `near`.
    """
    places: list[tuple[Pool | None, str]] = [(None, sys.executable)]
    places += [(None, RECIPE_PYTHON)] if Path(RECIPE_PYTHON).exists() else []
    places += [(pool, RECIPE_PYTHON)] if pool and pool.kind == "embedded" else []
    wanted = record.result.versions if record.result else {}
    usable: list[Python] = []
    for where, program in places:
        found = _probe(where, program, near)
        if found is None:
            continue
        if _fits(found, wanted):
            return found
        usable.append(found)
    if not usable:
        raise RegiondagError(f"{sys.executable} has no NumPy, SciPy and netCDF4; to install them: {install_line()}")
    return usable[0]


def _fits(python: Python, wanted: Mapping[str, str]) -> bool:
    """Whether a Python is as the one that trained; a program's environment needs its version, too."""
    if "numpy" in wanted:
        return all(python.has[name] == wanted.get(name, python.has[name]) for name in ("numpy", "scipy"))
    return not wanted or _minor(str(python.has["python"])) == _minor(wanted.get("python", ""))


def _minor(version: str) -> str:
    """Return of 3.13.5 the 3.13."""
    return ".".join(version.split(".")[:2])


def _probe(pool: Pool | None, program: str, near: Path) -> Python | None:
    asked = Python(pool, program, {})
    try:
        argv = asked.command(["-c", PROBE], near, {})
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PROBE_SECONDS)
        return Python(pool, program, json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, PoolError):
        return None


# --- training ----------------------------------------------------------------------------------------------


@contextmanager
def folder_for(case: Case, python: Python, out: Path | None) -> Iterator[Path]:
    """Give an empty folder to train in: `out`, which stays, or a temporary one."""
    run = case.folder.run.path
    if out is None:
        # The pool has a /tmp of its own; what it sees is where the run lies.
        base = None if python.pool is None else run.parent
        with tempfile.TemporaryDirectory(prefix=".replay-", dir=base) as name:
            yield Path(name)
        return
    out = out.resolve()
    if out.is_relative_to(run):
        raise UsageError(f"--out {out} lies in the run directory, which stays as it is; choose another folder")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out {out} exists and is not an empty folder; choose another one")
    out.mkdir(parents=True, exist_ok=True)
    yield out


def train_again(case: Case, python: Python, place: Path) -> Replayed:
    """Train in `place`; RegiondagError when this machine could not. What the training prints goes to stderr."""
    _write_trial(case, place)
    for name in case.trial.sha256:
        (place / name).symlink_to(case.inputs.path / name)
    fetch_inputs(case.trial, place)
    backend = case.record.result.backend if case.record.result else ""
    device = "gpu" if backend == "cupy" and python.has["gpus"] else "cpu"
    environment = {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))), "NNLIB_DEVICE": device}
    environment |= _name_gpus(case.record.result, python) if device == "gpu" else {}
    environment["NNLIB_CONVOLUTIONS"] = _convolver(case.record.result) if device == "gpu" else "own"
    environment["NNLIB_BACKEND"] = "numba" if backend == "numba" and python.has["numba"] else "numpy"
    argv = [str(case.archive), "train", "--trial", TRIAL_FILE, "--device", device]
    code = _run(python.command(argv, place, environment), place)
    remove_environment(place)
    result, digest = _result(place / RESULT_FILE)
    if code not in (Exit.OK, Exit.DIVERGED, Exit.BAD_INPUT) or result is None:
        reason = result.reason if result else f"exit code {code} and no result"
        raise RegiondagError(f"{case.node} could not be trained here with {python}: {reason}")
    return Replayed(result, digest, _losses(place), _digest(place / case.trial.outputs.model))


def _name_gpus(result: Result | None, python: Python) -> dict[str, str]:
    """Let a training that several GPUs shared have as many of them here, if there are: its bits need no more than one.

    Who has named some to this process has decided.
    """
    most = min(result.ranks if result else 1, python.has["gpus"])
    count = max((count for count in GPU_COUNTS if count <= most), default=1)
    named = count > 1 and "CUDA_VISIBLE_DEVICES" not in os.environ
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(count)))} if named else {}


def _convolver(result: Result | None) -> str:
    """Return what computes convolutions on a GPU, as it was when the trial ran."""
    return "cudnn" if result is not None and "cudnn" in result.versions else "own"


def _write_trial(case: Case, place: Path) -> None:
    """Write the trial; the precision that was chosen where it was trained is kept to here."""
    trial, result = case.trial, case.record.result
    if result is not None and result.precision and trial.train.precision.lower() == "auto":
        train = replace(trial.train, precision=result.precision)
        (place / TRIAL_FILE).write_text(trial_to_json(replace(trial, train=train)), encoding="utf-8")
    else:
        shutil.copyfile(case.folder.trial(case.node) / TRIAL_FILE, place / TRIAL_FILE)


def _run(argv: Sequence[str], cwd: Path) -> int:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(BLAS)}
    process = subprocess.Popen(argv, cwd=cwd, env=environment, stdout=subprocess.DEVNULL)
    try:
        return process.wait()
    except BaseException:  # Ctrl-C: the training is told to stop, too, and is not left behind
        process.terminate()
        try:
            process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise


def model_differences(case: Case, python: Python, place: Path) -> list[str]:
    """Return in what two models differ, as `nnlib diff` of the run's own code says it."""

    def ask_nnlib(argv: Sequence[str]) -> list[str]:
        whole = python.command([str(case.archive), *argv], place, {})
        done = subprocess.run(whole, cwd=place, capture_output=True, text=True, check=False)
        return (done.stdout or done.stderr).splitlines()

    model = case.trial.outputs.model
    recorded = case.folder.trial(case.node) / model
    return list_differences(case.trial, recorded, place / model, ask_nnlib)


# --- files -------------------------------------------------------------------------------------------------


def _result(path: Path) -> tuple[Result | None, str]:
    """Return a result, None for a file that is none, and the file's SHA-256."""
    return read_result(path), _digest(path)


def _digest(path: Path) -> str:
    return sha256_of(path) if path.is_file() and path.stat().st_size else ""


def _losses(place: Path) -> tuple[float, ...]:
    """Return the loss after each epoch; of a program that reports none, the metric."""
    found = read_epochs(place / LOG_FILE)
    return tuple(epoch.loss if math.isfinite(epoch.loss) else epoch.value or 0.0 for epoch in found)
