"""Run a program as its job would: the worker's own archive in a folder of its own, to its end, or to a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nnlib.contract import (
    LOG_FILE,
    PROGRAM_CHECKPOINT_FILE,
    PROGRAM_FILE,
    PROGRAM_MODEL_FILE,
    RESULT_FILE,
    TRIAL_FILE,
    Trial,
    read_result,
    trial_to_json,
)
from nnlib.epoch_log import Epoch, read_epochs
from nnlib.util.environment import remove_environment
from nnlib.util.files import link_or_copy
from nnlib.util.packed import list_files
from nnlib.worker.program_archive import CHECKPOINT, PLACE
from regiondag.errors import RegiondagError
from regiondag.pool.process import children
from regiondag.trainers.kit import Tried

TICK = 0.02  # seconds between two looks
OUTPUT = "output.txt"
LAST_LINES = 20
UNKILLABLE = 30.0  # seconds after which what hangs in a system call is left alone
LINGERING = 2.0  # seconds in which what is left of a program may end by itself
# A job has none of its user's variables; these are of the machine.
KEPT = frozenset({"PATH", "HOME", "USER", "LANG", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"})


@dataclass(frozen=True, slots=True)
class Look:
    """How far a job is."""

    seconds: float  # since its start
    epochs: int  # that it has logged in this start
    since_epoch: float  # seconds since the first of them was seen
    saved: bool  # whether something lies in its checkpoint folder


@dataclass(frozen=True, slots=True)
class Interruption:
    """A signal, once the job is so far: SIGTERM to the job, as HTCondor does, SIGKILL to its largest process alone."""

    number: signal.Signals
    ready: Callable[[Look], bool]


@dataclass(frozen=True, slots=True)
class Bench:
    """Where jobs are tried, and by what."""

    folder: Path  # all that they write lies below
    python: str  # the Python that runs jobs
    code: Path  # nnlib's archive
    timeout: float  # seconds for one job
    patience: float  # seconds from SIGTERM to the end
    inputs: tuple[Path, ...] = ()  # files that lie beside each job, besides those of its program

    def try_job(
        self,
        name: str,
        trial: Trial,
        inputs: Mapping[str, Path],
        interruption: Interruption | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Tried:
        """Run the job `trial` in the folder `name`, which a second call finds as the first has left it.

        `inputs` are the archives of its program, and what goes with it, by their names there. No process of it is left.
        """
        place = self.folder / name
        place.mkdir(exist_ok=True)
        if not (place / PROGRAM_FILE).exists():
            for file, source in inputs.items():
                (place / file).symlink_to(source.resolve())  # some are large
            for other in self.inputs:
                link_or_copy(other, place / other.name)
            (place / "tmp").mkdir()
            (place / TRIAL_FILE).write_text(trial_to_json(trial), encoding="utf-8")
        before = set(read_epochs(place / LOG_FILE))
        argv = [self.python, str(self.code), "train", "--trial", TRIAL_FILE]
        with (place / OUTPUT).open("wb") as output:
            process = self._start(argv, place, {**_environment(place), **(variables or {})}, output)
        with process, _ended_below(place):
            run = _Run(self, place, process, before, interruption)
            code = run.follow()
            behind = () if code is None else _wait_for_others(place)
        remove_environment(place)
        return run.tell(trial, code, behind)

    def _start(
        self, argv: Sequence[str], place: Path, environment: Mapping[str, str], output: BinaryIO
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                argv,
                cwd=place,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is ours
            )
        except OSError as error:
            raise RegiondagError(
                f"{self.python} cannot be started: {error.strerror}; give another by --python"
            ) from None


@dataclass(slots=True)
class _Run:
    """A job while it runs."""

    bench: Bench
    place: Path
    process: subprocess.Popen[bytes]
    before: set[Epoch]
    interruption: Interruption | None
    started: float = 0.0
    first_epoch: float | None = None
    signalled: float | None = None
    ended: float = 0.0

    def follow(self) -> int | None:
        """Return its exit code; None where it has no time left, and is killed."""
        self.started = time.monotonic()
        try:
            while (code := self.process.poll()) is None:
                now = time.monotonic()
                if now - self.started > self.bench.timeout:
                    return None
                if self.signalled is not None and now - self.signalled > self.bench.patience:
                    return None
                if self.interruption and self.signalled is None and self.interruption.ready(self._look(now)):
                    self._send(self.interruption.number)  # again at the next look, if the program has ended
                time.sleep(TICK)
            return code
        finally:
            self.ended = time.monotonic()

    def _look(self, now: float) -> Look:
        epochs = len(self._logged())
        if epochs and self.first_epoch is None:
            self.first_epoch = now
        since = now - self.first_epoch if self.first_epoch is not None else 0.0
        saved = False
        with suppress(FileNotFoundError):  # the job removes the folder when it is done
            saved = any(map(os.path.getsize, list_files(self.place / PLACE / CHECKPOINT).values()))
        return Look(now - self.started, epochs, since, saved)

    def _logged(self) -> tuple[Epoch, ...]:
        return tuple(epoch for epoch in read_epochs(self.place / LOG_FILE) if epoch not in self.before)

    def _send(self, number: signal.Signals) -> None:
        """Send the signal, if the program still runs: its job may go on for a little after it."""
        of_program = [pid for pid in find_below(self.place) if pid != self.process.pid]
        if set(of_program).isdisjoint(children(self.process.pid)):
            return
        target = self.process.pid if number == signal.SIGTERM else max(of_program, key=_memory_of)
        with suppress(ProcessLookupError):
            os.kill(target, number)
            self.signalled = time.monotonic()

    def tell(self, trial: Trial, code: int | None, behind: tuple[str, ...]) -> Tried:
        """Return what came of it."""
        lines = (self.place / OUTPUT).read_text(encoding="utf-8", errors="replace").splitlines()
        artifact = _members(self.place / PROGRAM_MODEL_FILE)
        left = self.ended - self.signalled if self.signalled is not None and code is not None else None
        return Tried(
            trial.train.epochs,
            code,
            read_result(self.place / RESULT_FILE),
            self._logged(),
            tuple(line[:500] for line in lines if line.strip())[-LAST_LINES:],
            self.ended - self.started,
            left,
            self.signalled is not None,
            saved=len(_members(self.place / PROGRAM_CHECKPOINT_FILE)),
            artifact=len(artifact),
            artifact_bytes=sum(artifact),
            behind=behind,
        )


def _environment(place: Path) -> dict[str, str]:
    """Return the variables of a job: HTCondor gives it a folder for what is temporary, and none of its user's."""
    return {name: value for name, value in os.environ.items() if name in KEPT} | {"TMPDIR": str(place / "tmp")}


def _members(archive: Path) -> list[int]:
    """Return the sizes of the files in an archive; none where there is none."""
    try:
        with zipfile.ZipFile(archive) as packed:
            return [info.file_size for info in packed.infolist()]
    except (OSError, zipfile.BadZipFile):
        return []


# --- processes ---------------------------------------------------------------------------------------------


def find_below(folder: Path) -> list[int]:
    """Return the processes that work below a folder, or were started with it in a variable."""
    mine, path = os.getpid(), os.fsencode(folder)
    return [pid for pid in _pids() if pid != mine and _is_below(pid, path)]


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _is_below(pid: int, folder: bytes) -> bool:
    try:
        here = os.fsencode(Path(f"/proc/{pid}/cwd").readlink())
        return here == folder or here.startswith(folder + b"/") or folder + b"/" in _read(pid, "environ")
    except OSError:  # ended, or another user's
        return False


def _read(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


def _memory_of(pid: int) -> int:
    try:
        return int(_read(pid, "statm").split()[1])
    except (OSError, IndexError):
        return 0


def _command_of(pid: int) -> str:
    try:
        return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()[:60] or f"process {pid}"
    except OSError:
        return f"process {pid}"


def _wait_for_others(folder: Path) -> tuple[str, ...]:
    """Return the commands of processes that do not end by themselves once their job has."""
    until = time.monotonic() + LINGERING
    while (left := find_below(folder)) and time.monotonic() < until:
        time.sleep(TICK)
    return tuple(map(_command_of, left))


@contextmanager
def _ended_below(folder: Path) -> Iterator[None]:
    """Kill whatever works below a folder when the block ends, however that is."""
    try:
        yield
    finally:
        until = time.monotonic() + UNKILLABLE
        while (left := find_below(folder)) and time.monotonic() < until:
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(TICK)
