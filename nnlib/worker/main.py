"""`nnlib train`: the worker's side of the contract. Whatever happens, result.json says how the job ended.

Only the standard library is imported before the trial is read, so that a machine without NumPy or netCDF4 still
reports that as its own fault (exit 75).
"""

from __future__ import annotations

import math
import os
import platform
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from nnlib import __version__
from nnlib.contract import (
    CORRUPT,
    ENDED_WELL,
    LOG_FILE,
    MODEL_OUTPUTS,
    PROGRAM_OUTPUTS,
    RESULT_FILE,
    ContractError,
    Exit,
    Result,
    Role,
    Status,
    Trial,
    read_result,
    result_to_json,
    sha256_of,
    trial_from_json,
)
from nnlib.epoch_log import read_epochs
from nnlib.errors import CheckpointedError, EvictedError, MachineError, NnlibError
from nnlib.spec.json_section import SpecError
from nnlib.training.alone import alone_in
from nnlib.training.stop import Stop
from nnlib.util.files import write_atomically
from nnlib.util.machine import code_digest, machine_facts
from nnlib.util.process import select_heeded
from nnlib.util.threads import take_over_blas
from nnlib.worker.teller import Teller

SIMULATED = "NNLIB_SIMULATED_GPUS"  # set by pools that offer GPUs which are not there

WRITTEN = (*MODEL_OUTPUTS.of_final, *PROGRAM_OUTPUTS.of_final)  # in the place of what was there

JOB_AD = "_CONDOR_JOB_AD"  # HTCondor sets it in the environment of its jobs

STATUS = {
    Exit.OK: Status.OK,
    Exit.BUG: Status.MACHINE,
    Exit.DIVERGED: Status.DIVERGED,
    Exit.BAD_INPUT: Status.BAD_INPUT,
    Exit.MACHINE: Status.MACHINE,
    Exit.CHECKPOINTED: Status.EVICTED,
    Exit.EVICTED: Status.EVICTED,
}


def train(trial_file: Path, checkpoint_every: float = math.inf, device: str = "auto") -> int:
    """Run the job of `trial_file`, with all other files beside it; return the exit code.

    After `checkpoint_every` seconds of training it is saved and left with exit code 85, to be started again. With
    `device` gpu it is trained on a GPU or not at all, but for machines whose GPUs are simulated, which say so.

    Raises NnlibError when there is no such folder or another job runs in it, and OSError when not even result.json can
    be written.
    """
    folder = trial_file.parent
    if not folder.is_dir():
        raise NnlibError(f"{folder}: no such folder, legal: the folder of trial.json and its inputs")
    with alone_in(folder, WRITTEN):
        return _train(trial_file, checkpoint_every, device)


def _train(trial_file: Path, checkpoint_every: float, device: str) -> int:
    started, folder = time.monotonic(), trial_file.parent
    before = read_result(folder / RESULT_FILE)  # what an earlier start of this job has left, if anything
    if before and _is_finished(trial_file, before):
        print("nnlib: an earlier start of this job was told to leave when its work was done: nothing is trained again",
              file=sys.stderr)  # fmt: skip
        return int(Exit.OK)
    trial, result, code = None, None, Exit.OK
    (folder / RESULT_FILE).write_bytes(b"")  # from now on an eviction has something to transfer
    (folder / LOG_FILE).touch()
    stop = Stop()
    try:
        with _stopped_by_signals(stop):
            trial = trial_from_json(trial_file.read_text(encoding="utf-8"))
            for name in trial.outputs.of_trial:
                (folder / name).touch()
            teller = Teller()
            teller.begin(0 if trial.recipe else trial.train.epochs, read_epochs(folder / LOG_FILE))
            teller.do("starting")  # else the queue would go on saying what an earlier start of this job has said
            result = _run(trial, folder, stop, checkpoint_every, device, teller)
    except BaseException as error:  # a bug and Ctrl-C too must leave a result behind
        code, reason = _judge(error)
        epochs = len(read_epochs(folder / LOG_FILE))
        result = Result(node=trial.node if trial else "", status=STATUS[code], reason=reason, epochs=epochs)
        print(f"nnlib: {reason}", file=sys.stderr)
    ours = {"python": platform.python_version(), "nnlib": __version__}
    # The seconds before this job was stopped to be started again, here or on another machine.
    evicted = before and before.status is Status.EVICTED and trial and before.node == trial.node
    earlier = before.seconds if before and evicted else 0.0
    result = replace(
        result,
        seconds=round(earlier + time.monotonic() - started, 3),
        host=socket.gethostname(),
        machine=machine_facts(),
        seed=trial.train.seed if trial else None,
        code=code_digest(),
        versions={**result.versions, **ours},
    )
    write_atomically(folder / RESULT_FILE, result_to_json(result))
    return int(code)


def _run(trial: Trial, folder: Path, stop: Stop, checkpoint_every: float, device: str, teller: Teller) -> Result:
    if trial.role is Role.FINAL:
        for name in (trial.outputs.model, *trial.outputs.floor):
            (folder / name).write_bytes(b"")
    _verify(trial.sha256, folder)
    if trial.program:
        from nnlib.worker.program_job import run_program  # which needs no library

        return run_program(trial, folder, stop, checkpoint_every, teller)
    threads = take_over_blas()
    try:
        if trial.recipe is not None:
            from nnlib.worker.recipe_job import run_recipe

            return run_recipe(trial, folder, threads, teller)
        from nnlib.worker import job
    except ImportError as error:
        raise MachineError(f"{error}; install it on this machine, or set job.python: bundle") from error
    if device == "gpu" and os.environ.get(SIMULATED):
        print(
            f"nnlib: this machine's GPUs are simulated ({SIMULATED} is set): training on its processors",
            file=sys.stderr,
        )
        device = "cpu"
    return job.run(trial, folder, threads, stop, checkpoint_every, device, teller)


def _verify(digests: Mapping[str, str], folder: Path) -> None:
    """Raise MachineError when an input did not arrive as it was sent."""
    for name, digest in sorted(digests.items()):
        if not (folder / name).is_file():
            raise MachineError(f"{name}: did not arrive on this machine")
        seen = sha256_of(folder / name)
        if seen != digest:
            raise MachineError(f"{name}: sha256 is {seen[:12]}, the trial says {digest[:12]}: {CORRUPT}")


def _judge(error: BaseException) -> tuple[Exit, str]:
    """Return the exit code of an error and a reason to print."""
    if isinstance(error, EvictedError):
        return Exit.EVICTED, "stopped by SIGTERM"
    if isinstance(error, CheckpointedError):
        return Exit.CHECKPOINTED, "checkpoint written, to be started again"
    if isinstance(error, NnlibError):
        return error.exit_code, str(error)
    if isinstance(error, SpecError | ContractError):
        return Exit.BAD_INPUT, str(error)
    if isinstance(error, FileNotFoundError):
        return Exit.BAD_INPUT, f"{error.filename}: no such file; every input must lie beside trial.json"
    if isinstance(error, MemoryError):
        return Exit.MACHINE, f"out of memory: {error}"
    if isinstance(error, OSError):
        return Exit.MACHINE, f"{error.filename or 'a file'}: {error.strerror or error}"
    if isinstance(error, KeyboardInterrupt):
        return Exit.EVICTED, "interrupted"
    traceback.print_exception(error)
    return Exit.BUG, f"a bug of nnlib: {type(error).__name__}: {error}"


def _is_finished(trial_file: Path, result: Result) -> bool:
    """Return whether an earlier start of this very job of HTCondor's has done its work.

    A job that is told to leave is started again elsewhere, whatever it ends with: also one that was measuring its last
    network by then. Jobs of a new try find an empty result.json, and who calls nnlib by hand wants a training.
    """
    if JOB_AD not in os.environ:
        return False
    try:
        trial = trial_from_json(trial_file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ContractError):
        return False
    if result.status not in ENDED_WELL or (result.node, result.code) != (trial.node, code_digest()):
        return False
    model = trial_file.with_name(trial.outputs.model)
    return trial.role is not Role.FINAL or (model.exists() and sha256_of(model) == result.model)


@contextmanager
def _stopped_by_signals(stop: Stop) -> Iterator[None]:
    """Note the first SIGTERM or SIGINT in `stop` while a training looks there, else raise; ignore later ones.

    Both are ignored too while the result is written.
    """

    def pass_over(_number: int, _frame: FrameType | None) -> None:
        pass

    def handle(number: int, _frame: FrameType | None) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, pass_over)  # not SIG_IGN, which a program that is started now would inherit
        if stop.deferred:
            stop.requested = True
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            raise EvictedError

    for each in select_heeded((signal.SIGTERM, signal.SIGINT)):
        signal.signal(each, handle)
    try:
        yield
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
