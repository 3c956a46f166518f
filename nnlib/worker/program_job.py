"""One job of a program of the user's: unpack it, run it, follow what it reports, keep what it leaves.

Standard library only: a machine that trains with another program needs none of nnlib's libraries.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from nnlib.contract import (
    LOG_FILE,
    PROGRAM_FILE,
    RESULT_FILE,
    TRIAL_FILE,
    Exit,
    Result,
    Role,
    Status,
    Trial,
    sha256_of,
    trial_to_json,
)
from nnlib.epoch_log import Epoch, open_epoch_log, read_epochs
from nnlib.errors import CheckpointedError, DivergedError, EvictedError, MachineError, NnlibError
from nnlib.training.stop import Stop
from nnlib.util.os_errors import describe
from nnlib.util.packed import PackedError, list_files, pack, read_comment, unpack
from nnlib.worker.container import BOX, Container, environment_inside, why_not_started, wrap
from nnlib.worker.downloads import Download, place_downloads
from nnlib.worker.program import TICK, Process
from nnlib.worker.reports import MOST_EPOCHS, Report, parse_line, parse_record
from nnlib.worker.teller import Teller

PLACE = "program"  # the folder in which it runs, with its files in it
MANIFEST = "program.json"  # in the archive
FILES, HELPER = "files/", "helper/"  # and before the names of its files there
CHECKPOINT, ARTIFACT = "checkpoint", "artifact"  # folders of its own: what it goes on from, and what it has made
REPORTS = "reports.jsonl"
PROGRAM_VERSION = 1
SETTLED = 2.0  # seconds for which a checkpoint has not changed before it is taken
UNSETTLED = 20.0  # ... unless it has been changing for so long
LONGEST_RESULT = 1 << 20  # bytes
FULL_DISK = "No space left on device"  # what systems say of one: the machine's fault, whatever the exit code
PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Program:
    """A command, and what counts as the machine's fault: exit codes, and texts among the last lines of output."""

    command: tuple[str, ...]
    retry: tuple[int | str, ...] = ()
    downloads: tuple[Download, ...] = ()
    container: Container | None = None  # in which it runs


def downloads_from_raw(raw: dict[str, Any]) -> tuple[Download, ...]:
    """Return the files from URLs of a program as the archive has it; KeyError or TypeError where it is none."""
    return tuple(Download(str(one["url"]), str(one["name"]), str(one["sha256"])) for one in raw.get("urls", ()))


def program_to_json(program: Program) -> str:
    """Return a program as the archive has it."""
    raw: dict[str, Any] = {"version": PROGRAM_VERSION, "command": program.command, "retry": program.retry}
    if program.downloads:
        raw["urls"] = [{"url": one.url, "name": one.name, "sha256": one.sha256} for one in program.downloads]
    raw |= {"container": asdict(program.container)} if program.container else {}
    return json.dumps(raw, indent=1, ensure_ascii=False) + "\n"


def fill_in(argument: str, values: Mapping[str, Any]) -> str:
    """Return an argument with its placeholders replaced; KeyError names one that has no value.

    >>> fill_in("--lr={learning_rate}", {"learning_rate": 0.1}), fill_in("{{}}", {})
    ('--lr=0.1', '{}')
    """

    def value_of(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        value = values[found[1]]
        return str(value).lower() if isinstance(value, bool) else str(value)

    return PLACEHOLDER.sub(value_of, argument)


def placeholders_of(argument: str) -> list[str]:
    """Return the names that stand in braces in an argument.

    >>> placeholders_of("{a}-{{b}}-{c}")
    ['a', 'c']
    """
    return [found[1] for found in PLACEHOLDER.finditer(argument) if found[1]]


def run_program(
    trial: Trial, folder: Path, stop: Stop, every: float = math.inf, teller: Teller | None = None
) -> Result:
    """Run the program of `trial`, whose archive lies in `folder`, and return what it came to.

    Its checkpoint folder goes on to its next start wherever that is. Raises NnlibError where it reports nothing,
    DivergedError where it fails, MachineError where that was the machine's fault, EvictedError and CheckpointedError
    once a stop was asked for, or after `every` seconds when it has saved itself anew.
    """
    job = _Job(trial, folder.resolve(), stop, every, teller or Teller())
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
    add_to_log: Any = None
    values: list[float] = field(default_factory=list)  # of the metric, an epoch each
    last: Report | None = None
    offset: int | None = None  # what is added to the program's epochs, so that they begin with 1
    reported: bool = False  # by its reports, besides which lines do not count
    started: float = 0.0

    @property
    def place(self) -> Path:
        return self.folder / PLACE

    def set_up(self) -> Program:
        """Unpack the program, its helper and its checkpoint, and write the trial for it."""
        whole = self.folder / f"{PLACE}.whole"
        shutil.rmtree(whole, ignore_errors=True)
        try:
            unpack(self.folder / PROGRAM_FILE, whole)
            raw = json.loads((whole / MANIFEST).read_text(encoding="utf-8"))
            container = Container(**raw["container"]) if "container" in raw else None
            program = Program(tuple(raw["command"]), tuple(raw["retry"]), downloads_from_raw(raw), container)
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
            "metric": {"name": trial.metric.name, "mode": "min" if trial.metric.minimize else "max"},
            CHECKPOINT: str(self.place / CHECKPOINT),
            ARTIFACT: str(self.place / ARTIFACT),
        }

    def run(self, program: Program) -> Result:
        """Run it to its end, and say what it came to."""
        self.started = time.monotonic()
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
            command[0] = sys.executable  # the one that runs jobs here; `python` may be none, or another
        if self.stop.requested:
            raise EvictedError
        self.teller.begin(self.trial.train.epochs, read_epochs(self.folder / LOG_FILE)[: len(self.values)])
        with Process(command, self.place, environment, self.place / REPORTS, wrapped=container is not None) as process:
            code, pruned = self._follow(process)
            self._read(process)
            self._read_result()
            return self._judge(code, pruned, program, process)

    def _environment(self) -> dict[str, str]:
        helper, path = str(self.place / f".{HELPER}"), os.environ.get("PYTHONPATH")
        return {
            **os.environ,
            "REGIONDAG_TRIAL": str(self.place / TRIAL_FILE),
            "REGIONDAG_REPORTS": str(self.place / REPORTS),
            "PYTHONPATH": os.pathsep.join([helper, path] if path else [helper]),
            "PYTHONUNBUFFERED": "1",  # else a line arrives when it is too late to prune
        }

    def _follow(self, process: Process) -> tuple[int, bool]:
        """Return how it ended, and whether because others were better; raise when it was stopped to go on later."""
        while (code := process.wait(TICK)) is None:
            self._read(process)
            if self.stop.requested:
                break
            if self._is_behind():
                process.end()
                return 0, True
            if time.monotonic() - self.started >= self.every and self._has_saved_itself():
                self._leave(process)
                raise CheckpointedError
        if self.stop.requested:  # also where it has ended: it had the signal, too, as when all of a group gets it
            self._leave(process)
            raise EvictedError
        assert code is not None, "else it was stopped"
        return code, False

    def _leave(self, process: Process) -> None:
        """End the program, and keep what it goes on from."""
        process.end()
        self._read(process)  # what it has reported since, or the epochs of its checkpoint would be missing
        self._save()

    def _read(self, process: Process) -> None:
        """Take up what it has reported since the last look."""
        for text in process.reports():
            try:
                report = parse_record(text, self.trial.metric)
            except ValueError as error:
                raise NnlibError(f"the program's report is none: {error}") from error
            self.reported = True
            if report is not None:
                self._take_up(report)
        for line in process.lines():
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
            self.last = found
        except ValueError as error:
            raise NnlibError(f"the program's {RESULT_FILE}: {error}") from error

    def _take_up(self, report: Report) -> None:
        self.last = report
        value = report.figures[self.trial.metric.name]
        if report.epoch is None and self.offset is not None:
            return  # what it says once more, at the end
        if report.epoch is None:
            epoch = len(self.values) + 1
        else:
            if self.offset is None:
                self.offset = 1 if report.epoch == 0 else 0
            epoch = report.epoch + self.offset
        if not 1 <= epoch <= MOST_EPOCHS or not math.isfinite(value):
            return
        del self.values[epoch - 1 :]
        first = len(self.values) + 1
        self.values += [value] * (epoch - len(self.values))
        seconds = time.monotonic() - self.started
        for number in range(first, epoch + 1):  # those that it did not report are as the next one
            one = Epoch(number, report.figures.get("loss", math.nan), value, seconds)
            self.add_to_log(one)
            self.teller.epoch(one)

    def _is_behind(self) -> bool:
        """Whether the trial may end, as others were better by the epoch that it has come to."""
        minimize = self.trial.metric.minimize
        for epoch, rung in self.trial.rungs:
            if epoch <= len(self.values):
                best = (min if minimize else max)(self.values[:epoch])
                if best > rung if minimize else best < rung:
                    return True
        return False

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
            pack(files, part, f"{self._identity()} {'' if self.offset is None else self.offset}")
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
            identity, _, offset = read_comment(archive).partition(" ")
            if identity != self._identity():
                return
            unpack(archive, self.place / CHECKPOINT)
            self.values = [one.value for one in read_epochs(self.folder / LOG_FILE) if one.value is not None]
            if self.values:  # else it has nothing more to say where it had ended when it was stopped
                self.last = Report({self.trial.metric.name: self.values[-1]})
            self.offset = int(offset) if offset in ("0", "1") else None
        except PackedError as error:
            print(f"nnlib: {error}: the program starts from the beginning", file=sys.stderr)
            shutil.rmtree(self.place / CHECKPOINT)
            (self.place / CHECKPOINT).mkdir()

    def _judge(self, code: int, pruned: bool, program: Program, process: Process) -> Result:
        if code != 0:
            self._fail(code, program, process)
        name = self.trial.metric.name
        if self.last is None:
            raise NnlibError(
                f"the program ended with 0 and reported no {name}; legal: a printed line such as {name}=0.5, a "
                f"{RESULT_FILE} in its folder with {{{json.dumps(name)}: 0.5}}, or regiondag.trial's report({name}=0.5)"
            )
        value = self.last.figures[name]
        if not math.isfinite(value):
            raise DivergedError(f"{name} is {value}")
        self._discard()
        metrics = {key: number for key, number in self.last.figures.items() if math.isfinite(number)}
        counted = self.offset is not None  # else reports are of something else, such as the folds of a validation
        result = Result(
            node=self.trial.node,
            status=Status.PRUNED if pruned else Status.OK,
            reason=f"ended after epoch {len(self.values)}: others were better by then" if pruned else "",
            value=value,
            metrics=metrics,
            stderr=self.last.stderr,
            curve=tuple(self.values),
            best_epoch=len(self.values) if counted else 0,
            epochs=len(self.values),
            backend=PLACE,
        )
        if self.trial.role is not Role.FINAL:
            return result
        model, left = self.folder / self.trial.outputs.model, list_files(self.place / ARTIFACT)
        pack(left, model)
        reason = "" if left else f"the program has left nothing in its folder {ARTIFACT}, so the model is empty"
        return replace(result, model=sha256_of(model), reason=reason)

    def _discard(self) -> None:
        (self.folder / self.trial.outputs.checkpoint).write_bytes(b"")

    def _fail(self, code: int, program: Program, process: Process) -> None:
        """Raise what an exit code says, with the last line that the program has printed."""
        for line in process.last:
            print(f"nnlib: the program's last lines: {line}", file=sys.stderr)
        if program.container and self.last is None and (failed := why_not_started(code, process.last)):
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
