"""The metric in files that a program writes while it runs: CSV, MLflow's file store, TensorBoard's events.

Standard library only. Nothing in such files is trusted: what is read is bounded, and what cannot be read is passed
over. A line that is not whole yet is read when it is.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from nnlib.worker.event_file import read_records, scalars_of
from nnlib.worker.reports import EPOCH, MOST_FIGURES, Report, is_name, number_of

CSV, MLFLOW, TENSORBOARD = "csv", "mlflow", "tensorboard"
KINDS = (CSV, MLFLOW, TENSORBOARD)
PAUSE = 1.0  # seconds between two looks
MOST_FILES = 64
MOST_FOUND = 10_000  # names that are looked through for them
MOST_BYTES = 4 << 20  # of a file at a look
MOST_TOLD = 20  # names that an error tells of
MOST_EPOCHS_KNOWN = 100_000  # steps whose epochs are kept


@dataclass(slots=True)
class Tail:
    """What was read of a file."""

    path: Path
    offset: int = 0  # bytes that were read
    head: bytes = b""  # its first line
    taken: int = 0  # values that were read
    passed: int = 0  # values that are read once more, as the file was written anew


@dataclass(slots=True)
class MetricFiles:
    """The files of a program in its folder `place`, as far as they were read.

    `pattern`, from `place` on, names files (csv), stores such as `mlruns`, or folders with events; `*` is any part of a
    name. What lies there when this is made was reported before, and is no report.
    """

    place: Path
    kind: str
    pattern: str
    metric: str
    tails: dict[Path, Tail] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)  # of figures that are there
    epochs: dict[tuple[Path, int], float] = field(default_factory=dict)  # (folder, step) -> epoch, where that is said
    waiting: list[tuple[Path, int, float]] = field(default_factory=list)  # (folder, step, value) of the last look
    looked: float = -PAUSE

    def __post_init__(self) -> None:
        """Pass over what is there."""
        self.look(ended=True)

    def look(self, *, ended: bool = False) -> list[Report]:
        """Return what was written since the last look, which was PAUSE ago at least, or the program has `ended`."""
        if not ended and time.monotonic() - self.looked < PAUSE:
            return []
        self.looked = time.monotonic()
        found: list[Report] = []
        for tail in self._find():
            before = -1
            while before < tail.offset:  # all of it at the end
                before = tail.offset
                with suppress(OSError):
                    found += self._read(tail)
                if not ended:
                    break
        return found + self._point_reports(ended)

    def say_where(self) -> str:
        """Return what was looked for, and what is there, for an error."""
        text = f"{self.kind} {self.pattern}: {len(self.tails)} files"
        others = ", ".join(sorted(self.names)[:MOST_TOLD])
        return f"{text}, with {others}" if others else text

    def _find(self) -> list[Tail]:
        pattern = {CSV: "", MLFLOW: "/*/*/metrics/", TENSORBOARD: "/**/*tfevents*"}[self.kind]
        pattern = self.pattern.rstrip("/") + pattern + (self.metric if self.kind == MLFLOW else "")
        top = self.place.resolve()
        with suppress(OSError, ValueError):
            for path in islice(sorted(islice(self.place.glob(pattern), MOST_FOUND)), MOST_FILES):
                known = path in self.tails or len(self.tails) < MOST_FILES
                # Neither a link nor behind one; nor a pipe, which would keep its reader waiting.
                if known and path.resolve() == top / path.relative_to(self.place) and path.is_file():
                    self.tails.setdefault(path, Tail(path))
        return list(self.tails.values())

    def _read(self, tail: Tail) -> list[Report]:
        if self.kind == TENSORBOARD:
            self._read_events(tail)
            return []
        lines = list(_read_lines(tail, headed=self.kind == CSV))
        if self.kind == CSV:
            return list(self._rows(tail, lines))
        for line in lines:
            self._take_point(tail.path, line)
        if lines and self.metric != EPOCH:
            self._read_epochs(tail.path)
        return []

    def _rows(self, tail: Tail, lines: list[str]) -> Iterator[Report]:
        columns = [name.strip() for name in _cells(tail.head.decode("utf-8-sig", "replace"))]
        self.names |= set(columns[:MOST_FIGURES])
        for line in lines:
            pairs = zip(columns, _cells(line), strict=False)
            known = {name: number for name, text in pairs if is_name(name) and (number := number_of(text)) is not None}
            if self.metric not in known:
                continue
            if tail.passed:
                tail.passed -= 1
                continue
            tail.taken += 1
            others = dict(islice(known.items(), MOST_FIGURES)) | {self.metric: known[self.metric]}
            yield Report(*_split(others, self.metric))

    # --- points: a value at a step, whose epoch may be told beside it ------------------------------------------

    def _take_point(self, path: Path, line: str) -> None:
        """Read `timestamp value step` of MLflow's."""
        parts = line.split()
        value = number_of(parts[1]) if len(parts) == 3 else None
        if value is not None and parts[2].isdecimal() and len(parts[2]) < 16:
            self.waiting.append((path.parent, int(parts[2]), value))

    def _read_epochs(self, path: Path) -> None:
        """Read the epochs that stand beside a metric of MLflow's, step by step."""
        store = path.parents[len(Path(self.metric).parts) - 1]
        self.names |= {one.name for one in islice(store.iterdir(), MOST_TOLD)}
        beside = store / EPOCH
        if not beside.is_file() or beside.is_symlink():
            return
        with beside.open("rb") as file:
            lines = file.read(MOST_BYTES).decode(errors="replace").split("\n")[:-1]
        for parts in map(str.split, lines):
            epoch = number_of(parts[1]) if len(parts) == 3 else None
            if epoch is not None and parts[2].isdecimal() and len(parts[2]) < 16:
                self._note_epoch(path.parent, int(parts[2]), epoch)

    def _read_events(self, tail: Tail) -> None:
        with tail.path.open("rb") as file:
            file.seek(tail.offset)
            for record, behind in read_records(file, tail.offset, MOST_BYTES):
                tail.offset = behind
                for step, tag, value in scalars_of(record):
                    if len(self.names) < MOST_FIGURES:
                        self.names.add(tag)
                    if tag == self.metric:
                        self.waiting.append((tail.path.parent, step, value))
                    elif tag == EPOCH:
                        self._note_epoch(tail.path.parent, step, value)

    def _note_epoch(self, folder: Path, step: int, epoch: float) -> None:
        if len(self.epochs) < MOST_EPOCHS_KNOWN:
            self.epochs[folder, step] = epoch

    def _point_reports(self, ended: bool) -> list[Report]:
        """Return the points that can be told of: loggers write a value before the epoch that belongs to it."""
        tell, self.waiting = self.waiting, []
        told = any(folder == of for of, _ in self.epochs for folder, _, _ in tell[:1])
        if told and not ended:
            tell, self.waiting = (
                [one for one in tell if one[:2] in self.epochs],
                [one for one in tell if one[:2] not in self.epochs],
            )
        return [
            Report(*_split({self.metric: value, EPOCH: self.epochs.get((folder, step), float(step))}, self.metric))
            for folder, step, value in tell
        ]


def _split(figures: dict[str, float], metric: str) -> tuple[dict[str, float], int | None]:
    epoch = figures.pop(EPOCH, None) if metric != EPOCH else None
    whole = epoch is not None and epoch >= 0 and epoch.is_integer()
    return figures, int(epoch) if whole and epoch is not None else None


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _read_lines(tail: Tail, headed: bool) -> Iterator[str]:
    """Yield the whole lines that were added to a file; of one that was written anew those that are new."""
    with tail.path.open("rb") as file:
        first = file.readline(MOST_BYTES) if headed else b""
        if headed and not first.endswith(b"\n"):
            return
        if first != tail.head or tail.path.stat().st_size < tail.offset:
            tail.head, tail.offset, tail.passed, tail.taken = first, len(first), tail.taken, tail.taken
        file.seek(tail.offset)
        new = file.read(MOST_BYTES)
    end = new.rfind(b"\n") + 1 or (len(new) if len(new) == MOST_BYTES else 0)  # no line is as long as that
    tail.offset += end
    for line in new[:end].split(b"\n"):
        if line.strip():
            yield line.decode(errors="replace")
