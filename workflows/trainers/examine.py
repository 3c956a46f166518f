"""Try a program in all that may happen to a trial, and say what was seen."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from nnlib.contract import (
    CONTAINER_FILE,
    ENVIRONMENT_FILE,
    PROGRAM_FILE,
    Exit,
    Metric,
    Role,
    Status,
    TrainSettings,
    Trial,
    sha256_of,
)
from nnlib.util.terminal import is_verbose, tell
from regiondag.study.constraints import Constraint
from regiondag.study.program import Program, program_trial
from regiondag.study.space import Point, Space
from regiondag.trainers import kit
from regiondag.trainers.archive import write_program
from regiondag.trainers.environments import provide
from regiondag.trainers.kit import Finding, Tried, Verdict
from regiondag.trainers.points import EPOCHS, another_point, end_points, usual_point
from regiondag.trainers.trying import Bench, Interruption, Look
from regiondag.util.digests import digest_of_shared

NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
ENDED = (Exit.OK, Exit.EVICTED)
FEW = 3  # epochs, so that one is left to a program that ends the second one before it leaves
MORE = 10  # times the epochs where a program had ended before a signal came
MOST_EPOCHS = 20_000
HALFWAY = 0.5  # of the whole time of a program that reports no epochs on the way
PART = 0.25  # of the time of the first epoch: so far into the second one, where nothing is saved
# A limit that no file may grow beyond is what comes next to a full disk without being root; it holds for the program.
TOO_LARGE = "File too large"  # which the system says then, in place of what jobs take for a full disk
FULL_DISK = """
import os, resource, sys
words = sys.argv[1:]
if words[0] in ("python", "python3"):
    words[0] = sys.executable
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
os.execvp(words[0], words)
"""
FULL_DISK_IN_IMAGE = "trap '' XFSZ; ulimit -f 0; exec \"$@\""  # which may hold no Python


@dataclass(frozen=True, slots=True)
class Subject:
    """A program, and the study that it would be tried for."""

    program: Program
    metric: Metric
    train: TrainSettings
    region: str = "region"
    space: Space = ()
    constraints: tuple[Constraint, ...] = ()
    gpus: bool | None = None  # whether its jobs ask for GPUs; None: not known


def examine(subject: Subject, bench: Bench) -> Iterator[Finding]:
    """Yield what each try has shown, as it ends; where the first one fails, nothing else is tried."""
    return _Examination(subject, bench).findings()


@dataclass(slots=True)
class _Examination:
    subject: Subject
    bench: Bench
    tries: dict[str, Tried] = field(default_factory=dict)
    sent: dict[str, Path] = field(default_factory=dict)  # what goes with the program, by its name there
    digests: dict[str, str] = field(default_factory=dict)  # and their SHA-256

    def __post_init__(self) -> None:
        """Find what goes with the program: an image, or an environment, which is built where it has to be."""
        if self.subject.program.image:
            self.sent[CONTAINER_FILE] = self.subject.program.image
        if self.subject.program.environment:
            self.sent[ENVIRONMENT_FILE] = provide(self.subject.program.environment, tell)
        self.digests.update({name: digest_of_shared(file) for name, file in self.sent.items()})

    def findings(self) -> Iterator[Finding]:
        usual = usual_point(self.subject.space, self.subject.constraints)
        start = self._try("start", usual)
        yield kit.check_start(start)
        if start.status is not Status.OK:
            yield kit.check_behind(self.tries.items())
            yield Finding("all else", Verdict.UNTRIED, "the start has to work first")
            return
        yield kit.check_budget(start)
        again = self._try("same seed", usual)
        yield kit.check_seed(start, again)
        other = another_point(self.subject.space, usual, self.subject.constraints)
        yield kit.check_another(start, self._try("another point", other) if other else None)
        for name, point in end_points(self.subject.space, self.subject.constraints).items():
            yield kit.check_end(name, self._try(name, point))
        yield from self._stop(usual, start, again)
        killed, _ = self._interrupt("SIGKILL", usual, start, signal.SIGKILL)
        yield kit.check_kill(killed)
        yield kit.check_gpu(self._try("no GPU", usual, variables=NO_GPU), self.subject.gpus)
        final = self._try("last training", usual, role=Role.FINAL)
        yield kit.check_final(final)
        full = self._try("full disk", usual, role=Role.FINAL, limited=True)
        yield kit.check_full_disk(full, final)
        yield kit.check_behind(self.tries.items())

    def _stop(self, usual: Point, start: Tried, again: Tried) -> Iterator[Finding]:
        stopped, name = self._interrupt("SIGTERM", usual, start, signal.SIGTERM)
        yield kit.check_stop(stopped, min(self.bench.patience, self.bench.timeout))
        resumed = whole = None
        if stopped.was_stopped:
            resumed = self._run(name, "resume", self._trial(usual, stopped.epochs))
        if again.value == start.value and resumed is not None and resumed.value is not None and stopped.saved:
            same = stopped.epochs == start.epochs
            whole = start if same else self._try("undisturbed", usual, epochs=stopped.epochs)
            whole = whole if whole.value is not None else None
        yield kit.check_resume(stopped, resumed, whole)

    def _interrupt(self, name: str, point: Point, start: Tried, number: signal.Signals) -> tuple[Tried, str]:
        """Send a signal in the middle of a training, of more epochs where it had ended; return its folder, too."""
        epochs = max(start.epochs, FEW)
        while True:
            place = f"{name}-{epochs}"
            interruption = Interruption(number, _midway(start))
            tried = self._run(place, name, self._trial(point, epochs), interruption)
            heeds = len(start.log) - start.epochs in (0, 1)  # else it trains as long as ever
            tried = replace(tried, whole=epochs if heeds else len(start.log))
            if number == signal.SIGTERM:
                done = tried.was_done and tried.code in ENDED
            else:  # all its epochs reported: its training had just ended, and what was killed was the shell around it
                done = heeds and len(tried.log) >= epochs
            late = done or not tried.signalled
            failed = tried.code not in ENDED and not done
            if not late or failed or epochs * MORE > MOST_EPOCHS:
                return (replace(tried, signalled=False, left=None) if late else tried), place
            epochs *= MORE

    def _try(
        self,
        name: str,
        point: Point,
        *,
        epochs: int | None = None,
        role: Role = Role.TUNE,
        limited: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> Tried:
        trial = self._trial(point, epochs, role, limited=limited)
        return self._run(name.replace(" ", "-"), name, trial, limited=limited, variables=variables)

    def _trial(self, point: Point, epochs: int | None, role: Role = Role.TUNE, *, limited: bool = False) -> Trial:
        subject = self.subject
        epochs = epochs or subject.train.epochs
        if EPOCHS in point:
            point = {**point, EPOCHS: epochs}
        return program_trial(
            f"{subject.region}_tried",
            subject.region,
            -1 if role is Role.FINAL else 0,
            role,
            space=subject.space,
            point=point,
            train=replace(subject.train, epochs=epochs),
            metric=subject.metric,
            sha256={PROGRAM_FILE: sha256_of(self._archive(limited=limited)), **self.digests},
        )

    def _archive(self, *, limited: bool) -> Path:
        """Return the archive of the program, which is made once."""
        path = self.bench.folder / f"{'limited-' * limited}{PROGRAM_FILE}"
        if not path.exists():
            program = self.subject.program
            if limited:
                limit = ("sh", "-c", FULL_DISK_IN_IMAGE, "sh") if program.container else ("python", "-c", FULL_DISK)
                command = (*limit, *program.command)
                program = replace(program, command=command, retry=(*program.retry, TOO_LARGE))
            write_program(program, path)
        return path

    def _run(
        self,
        place: str,
        name: str,
        trial: Trial,
        interruption: Interruption | None = None,
        *,
        limited: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> Tried:
        tell(f"{name}: {trial.train.epochs} epochs")
        inputs = {PROGRAM_FILE: self._archive(limited=limited), **self.sent}
        tried = self.bench.try_job(place, trial, inputs, interruption, variables)
        self.tries[name] = tried
        if is_verbose():
            tell("".join(f"  {line}\n" for line in tried.output).rstrip("\n"))
        return tried


def _midway(start: Tried) -> Callable[[Look], bool]:
    """Return what says that a job is in its second epoch, or halfway where `start` has reported none on the way."""

    def ready(look: Look) -> bool:
        if look.epochs:
            return look.saved or look.since_epoch >= PART * (look.seconds - look.since_epoch)
        return len(start.log) <= 1 and look.seconds >= HALFWAY * start.seconds

    return ready
