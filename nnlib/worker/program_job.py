"""One job of a program of the user's: unpack it, run it, follow what it reports, keep what it leaves.

Standard library only: a machine that trains with another program needs none of nnlib's libraries.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nnlib.contract import (
    ENVIRONMENT_FILE,
    LOG_FILE,
    PROGRAM_FILE,
    RESULT_FILE,
    TRIAL_FILE,
    Exit,
    Result,
    Role,
    Status,
    Terms,
    Trial,
    sha256_of,
    trial_to_json,
)
from nnlib.epoch_log import Epoch, open_epoch_log, read_epochs
from nnlib.errors import CheckpointedError, DivergedError, EvictedError, MachineError, NnlibError
from nnlib.training.stop import Stop
from nnlib.util.environment import Environment, set_up_environment
from nnlib.util.os_errors import describe
from nnlib.util.packed import PackedError, list_files, pack, read_comment, unpack
from nnlib.worker.container import BOX, environment_inside, why_not_started, wrap
from nnlib.worker.curve import Curve
from nnlib.worker.downloads import place_downloads
from nnlib.worker.metric_files import MetricFiles
from nnlib.worker.program import TICK, Process
from nnlib.worker.program_archive import (
    ARTIFACT,
    CHECKPOINT,
    FILES,
    HELPER,
    PLACE,
    PROGRAM_VERSION,
    Program,
    fill_in,
    read_program,
)
from nnlib.worker.reports import Report, number_of, parse_line, parse_record
from nnlib.worker.teller import Teller

REPORTS = "reports.jsonl"
SETTLED = 2.0  # seconds for which a checkpoint has not changed before it is taken
UNSETTLED = 20.0  # ... unless it has been changing for so long
LONGEST_RESULT = 4 << 20  # bytes
BEHIND, OUT_OF_TIME = "behind", "out of time"  # why a program was ended early
FULL_DISK = "No space left on device"  # what systems say of one: the machine's fault, whatever the exit code


def run_program(
    trial: Trial, folder: Path, stop: Stop, every: float = math.inf, teller: Teller | None = None
) -> Result:
    """Run the program of `trial`, whose archive lies in `folder`, and return what it came to.

    Its checkpoint folder goes on to its next start wherever that is. Raises NnlibError where it reports nothing,
    DivergedError where it fails, MachineError where that was the machine's fault, EvictedError and CheckpointedError
    once a stop was asked for, or after `every` seconds when it has saved itself anew.
    """
    job = _Job(trial, folder.resolve(), stop, every, teller or Teller(), Curve(trial.metric))
    stop.deferred = True
    place = folder / PLACE
    shutil.rmtree(place, ignore_errors=True)  # of an earlier start of this job
    try:
        program = job.set_up()
        with open_epoch_log(folder / LOG_FILE) as add_to_log:
            job.add_to_log = add_to_log
            return job.run(program)
    finally:
        for name in (PLACE, BOX):
            shutil.rmtree(folder / name, ignore_errors=True)


@dataclass(slots=True)
class _Job:
    """A program's job while it runs."""

    trial: Trial
    folder: Path
    stop: Stop
    every: float
    teller: Teller
    curve: Curve
    terms: Terms = field(default_factory=Terms)
    files: MetricFiles | None = None
    environment: Environment | None = None
    add_to_log: Any = None
    reported: bool = False  # by its reports, besides which lines do not count
    started: float = 0.0
    earlier: float = 0.0  # seconds that it had before the checkpoint from which it goes on

    @property
    def place(self) -> Path:
        return self.folder / PLACE

    @property
    def left(self) -> float:
        """How many seconds it still has."""
        now = time.monotonic() - self.started if self.started else 0.0
        return self.terms.seconds - self.earlier - now if self.terms.seconds else math.inf

    def set_up(self) -> Program:
        """Unpack the program, its helper and its checkpoint, and write the trial for it."""
        digest = self.trial.sha256.get(ENVIRONMENT_FILE)
        if digest:
            self.teller.do("unpacking its environment")
            archive = self.folder / ENVIRONMENT_FILE
            self.environment = set_up_environment(archive, digest, self.folder, self._look)
        whole = self.folder / f"{PLACE}.whole"
        shutil.rmtree(whole, ignore_errors=True)
        try:
            unpack(self.folder / PROGRAM_FILE, whole)
            program = read_program(whole)
            self.terms = program.terms
            (whole / FILES).mkdir(exist_ok=True)
            (whole / FILES).replace(self.place)
            (whole / HELPER).replace(self.place / f".{HELPER}")
        except (PackedError, OSError, ValueError, KeyError, TypeError) as error:
            raise MachineError(f"{PROGRAM_FILE}: cannot be unpacked: {error}") from error
        finally:
            shutil.rmtree(whole, ignore_errors=True)
        place_downloads(program.downloads, self.folder, self.place)
        for name in (CHECKPOINT, ARTIFACT):
            (self.place / name).mkdir()
        self._restore()
        if self.terms.kind:
            self.files = MetricFiles(self.place, self.terms.kind, self.terms.path, self.trial.metric.name)
        facts = json.dumps(self.facts(), indent=1, ensure_ascii=False, sort_keys=True)
        (self.place / TRIAL_FILE).write_text(f"{facts}\n", encoding="utf-8")
        return program

    def facts(self) -> dict[str, Any]:
        """Return what the program is told, in its trial.json."""
        trial = self.trial
        return {
            "version": PROGRAM_VERSION,
            "region": trial.region,
            "trial": None if trial.role is Role.FINAL else trial.number,
            "role": trial.role.value,
            "hyperparameters": dict(trial.hyperparameters),
            "seed": trial.train.seed,
            "epochs": trial.train.epochs,
            "seconds": max(1, int(self.left)) if self.terms.seconds else None,
            "metric": {"name": trial.metric.name, "mode": "min" if trial.metric.minimize else "max"},
            CHECKPOINT: str(self.place / CHECKPOINT),
            ARTIFACT: str(self.place / ARTIFACT),
        }

    def run(self, program: Program) -> Result:
        """Run it to its end, and say what it came to."""
        values = {**self.trial.hyperparameters, **self.facts(), "metric": self.trial.metric.name}
        try:
            command = [fill_in(argument, values) for argument in program.command]
        except KeyError as error:
            raise NnlibError(f"trainer.command: {{{error.args[0]}}} has no value in this trial") from None
        environment, container = self._environment(), program.container
        if container:
            command = wrap(command, container, self.folder, self.place)
            environment = environment_inside(environment, self.folder)
        elif command[0] in ("python", "python3"):
            # The one that runs jobs here, or that of its environment; `python` may be none, or another.
            command[0] = str(self.environment.python) if self.environment else sys.executable
        self._look()
        self.teller.begin(self.trial.train.epochs, read_epochs(self.folder / LOG_FILE)[: len(self.curve.values)])
        self.started = time.monotonic()
        with Process(command, self.place, environment, self.place / REPORTS, wrapped=container is not None) as process:
            code, why = self._follow(process)
            self._read(process, ended=True)
            self._read_result()
            return self._judge(code, why, program, process)

    def _look(self) -> None:
        """Leave at once where nothing has begun."""
        if self.stop.requested:
            raise EvictedError

    def _environment(self) -> dict[str, str]:
        ours = self.environment.variables(os.environ) if self.environment else dict(os.environ)
        helper, path = str(self.place / f".{HELPER}"), ours.get("PYTHONPATH")
        return {
            **ours,
            "REGIONDAG_TRIAL": str(self.place / TRIAL_FILE),
            "REGIONDAG_REPORTS": str(self.place / REPORTS),
            "PYTHONPATH": os.pathsep.join([helper, path] if path else [helper]),
            "PYTHONUNBUFFERED": "1",  # else a line arrives when it is too late to prune
        }

    def _follow(self, process: Process) -> tuple[int, str]:
        """Return how it ended, and why it was ended early, if it was; raise when it was stopped to go on later."""
        while (code := process.wait(TICK)) is None:
            self._read(process)
            if self.stop.requested:
                break
            if self.curve.is_behind(self.trial.rungs):
                process.end()
                return 0, BEHIND
            if self.left <= 0:
                process.end()
                return 0, OUT_OF_TIME
            if time.monotonic() - self.started >= self.every and self._has_saved_itself():
                self._leave(process)
                raise CheckpointedError
        if self.stop.requested:  # also where it has ended: it had the signal, too, as when all of a group gets it
            self._leave(process)
            raise EvictedError
        assert code is not None, "else it was stopped"
        return code, ""

    def _leave(self, process: Process) -> None:
        """End the program, and keep what it goes on from."""
        process.end()
        self._read(process, ended=True)  # what it has reported since, or the epochs of its checkpoint would be missing
        self._save()

    def _read(self, process: Process, *, ended: bool = False) -> None:
        """Take up what it has reported since the last look."""
        reports, lines = process.reports(), process.lines()
        if self.files:
            for found in self.files.look(ended=ended):
                self._take_up(found)
            return
        for text in reports:
            try:
                report = parse_record(text, self.trial.metric)
            except ValueError as error:
                raise NnlibError(f"the program's report is none: {error}") from error
            self.reported = True
            if report is not None:
                self._take_up(report)
        for line in lines:
            printed = None if self.reported else parse_line(line, self.trial.metric)
            if printed is not None:
                self._take_up(printed)

    def _read_result(self) -> None:
        """Take up what it has written into result.json, the last word of all."""
        path = self.place / RESULT_FILE
        if path.is_symlink() or not path.is_file():
            return
        with path.open("rb") as file:
            text = file.read(LONGEST_RESULT + 1)
        try:
            if len(text) > LONGEST_RESULT:
                raise ValueError(f"longer than {LONGEST_RESULT >> 20} MB")
            found = parse_record(text.decode(), self.trial.metric)
            if found is None:
                raise ValueError(f"{self.trial.metric.name} is not among its figures")
            self.curve.last = found
        except ValueError as error:
            raise NnlibError(f"the program's {RESULT_FILE}: {error}") from error

    def _take_up(self, report: Report) -> None:
        new, seconds = self.curve.take_up(report), time.monotonic() - self.started
        for number in new:
            value = report.figures[self.trial.metric.name]
            one = Epoch(number, report.figures.get("loss", math.nan), value, seconds)
            self.add_to_log(one)
            self.teller.epoch(one)

    def _has_saved_itself(self) -> bool:
        """Whether the program has written a checkpoint since the time came to save it, and is done with that."""
        newest, now = 0.0, time.time()
        for path in list_files(self.place / CHECKPOINT).values():
            with suppress(FileNotFoundError):  # it was renamed just now
                newest = max(newest, path.stat().st_mtime)
        late = time.monotonic() - self.started - self.every
        return now - late <= newest and (newest <= now - SETTLED or late > UNSETTLED)

    def _identity(self) -> str:
        """Return what distinguishes this training from every other one whose checkpoint could lie here."""
        return hashlib.sha256(trial_to_json(replace(self.trial, rungs=())).encode()).hexdigest()

    def _save(self) -> None:
        """Pack what the program goes on from; nothing where it has saved nothing."""
        files = list_files(self.place / CHECKPOINT)
        if not files:
            return
        part = self.folder / f"{self.trial.outputs.checkpoint}.part"
        try:
            offset, seconds = self.curve.offset, self.earlier + time.monotonic() - self.started
            pack(files, part, f"{self._identity()} {'' if offset is None else offset} {seconds:.1f}")
            part.replace(self.folder / self.trial.outputs.checkpoint)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise MachineError(f"what the program has saved cannot be packed: {describe(error)}") from error

    def _restore(self) -> None:
        """Give the program what an earlier start has saved; what is damaged or of another trial is no start."""
        archive = self.folder / self.trial.outputs.checkpoint
        if not archive.exists() or not archive.stat().st_size:
            return
        try:
            identity, offset, seconds, *_ = [*read_comment(archive).split(" "), "", ""]
            if identity != self._identity():
                return
            unpack(archive, self.place / CHECKPOINT)
            values = [one.value for one in read_epochs(self.folder / LOG_FILE) if one.value is not None]
            self.curve.restore(values, int(offset) if offset in ("0", "1") else None)
            self.earlier = number_of(seconds) or 0.0
        except PackedError as error:
            print(f"nnlib: {error}: the program starts from the beginning", file=sys.stderr)
            shutil.rmtree(self.place / CHECKPOINT)
            (self.place / CHECKPOINT).mkdir()

    def _judge(self, code: int, why: str, program: Program, process: Process) -> Result:
        if code != 0:
            self._fail(code, program, process)
        name, curve = self.trial.metric.name, self.curve
        counts, epoch = curve.last, len(curve.values)
        if self.terms.best and self.trial.role is Role.TUNE:  # the last training says at its end what its test gave
            counts, epoch = curve.best()
        if counts is None:
            raise self._silent(why)
        value = counts.figures[name]
        if not math.isfinite(value):
            raise DivergedError(f"{name} is {value}")
        self._discard()
        early = {
            BEHIND: f"ended after epoch {len(curve.values)}: others were better by then",
            OUT_OF_TIME: f"ended after its {self.terms.seconds} seconds",
        }
        result = Result(
            node=self.trial.node,
            status=Status.PRUNED if why == BEHIND else Status.OK,
            reason=early.get(why, ""),
            value=value,
            metrics={key: number for key, number in counts.figures.items() if math.isfinite(number)},
            stderr=counts.stderr,
            cases=counts.cases,
            folds=counts.folds,
            curve=tuple(curve.values),
            best_epoch=epoch if curve.counted else 0,
            epochs=len(curve.values),
            backend=PLACE,
        )
        if self.trial.role is not Role.FINAL:
            return result
        model, left = self.folder / self.trial.outputs.model, list_files(self.place / ARTIFACT)
        pack(left, model)
        empty = "" if left else f"the program has left nothing in its folder {ARTIFACT}, so the model is empty"
        return replace(result, model=sha256_of(model), reason="; ".join(filter(None, (result.reason, empty))))

    def _silent(self, why: str) -> NnlibError:
        """Return what is wrong where it has said nothing of the metric."""
        name = self.trial.metric.name
        if why == OUT_OF_TIME:
            return DivergedError(f"the program reported no {name} in its {self.terms.seconds} seconds")
        ways = (
            f"a printed line such as {name}=0.5, a {RESULT_FILE} in its folder with {{{json.dumps(name)}: 0.5}}, or "
            f"regiondag.trial's report({name}=0.5)"
        )
        if self.files:
            ways = f"{name} in the files of trainer.metric.report, where there are {self.files.say_where()}"
        return NnlibError(f"the program ended with 0 and reported no {name}; legal: {ways}")

    def _discard(self) -> None:
        (self.folder / self.trial.outputs.checkpoint).write_bytes(b"")

    def _fail(self, code: int, program: Program, process: Process) -> None:
        """Raise what an exit code says, with the last line that the program has printed."""
        for line in process.last:
            print(f"nnlib: the program's last lines: {line}", file=sys.stderr)
        if program.container and self.curve.last is None and (failed := why_not_started(code, process.last)):
            raise failed
        end = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        text = f"the program {end}" + (f": {process.why}" if process.last else "")
        if code == Exit.CHECKPOINTED:
            self._save()
            raise CheckpointedError
        said = "\n".join(process.last)
        retry = any(one == code if isinstance(one, int) else one in said for one in (*program.retry, FULL_DISK))
        if retry or code < 0 or code == Exit.MACHINE:
            self._save()
            raise MachineError(text)
        if code == Exit.BAD_INPUT:
            raise NnlibError(text)
        raise DivergedError(text)
