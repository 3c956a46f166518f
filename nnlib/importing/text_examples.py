"""DSSTNE's text form of examples: `sample<TAB>feature[,value]:feature[,value]:...`, read in blocks of whole lines.

A sample that comes again replaces what was there. Empty features are skipped, and so are lines without TAB and values
after the first, with a warning. Everything else that is not of this form is an error with file and line.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from nnlib.data.rows import Csr, Floats, Ints, offsets_of
from nnlib.errors import DataError
from nnlib.importing.blocks import BYTE_ORDER_MARK, ROOM, Bytes, read_ahead
from nnlib.importing.index_files import UNKNOWN, Labels
from nnlib.importing.string_ids import WORD
from nnlib.util.arrays import Longs

BLOCK = 1 << 20  # bytes
LONGEST_NUMBER = 40  # bytes
NEWLINE, RETURN, TAB, COLON, COMMA, UNDERSCORE = b"\n\r\t:,_"

Report = Callable[[int, int], None]  # bytes that were read so far, lines so far


@dataclass(slots=True)
class Warnings:
    """What was skipped, and where first."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, place: str, count: int) -> None:
        """Note `count` cases of the same kind."""
        self.counts[what] = self.counts.get(what, 0) + count
        self.first.setdefault(what, place)

    def lines(self) -> list[str]:
        """Return a line for each kind."""
        return [f"{self.first[what]}: {count} {what}, the first here" for what, count in self.counts.items()]


@dataclass(frozen=True, slots=True, eq=False)
class TextExamples:
    """Rows by sample: row `number[i]` is that of sample i of the index, the last row is empty."""

    rows: Csr
    sample: Ints  # of each row but the last
    dropped: int  # entries of features that are not in the index
    warnings: Warnings


def read_examples(
    paths: Sequence[Path], analog: bool, samples: Labels, features: Labels, new_features: bool, report: Report
) -> TextExamples:
    """Read all files; samples that are not in their index are added to it, features too if `new_features`."""
    found = _Found()
    done = 0
    for path in paths:
        line = 1
        with path.open("rb") as file:
            for block, position in read_ahead(_blocks(path, file)):
                lines = _Lines(str(path), line, block)
                found.add(lines, analog, samples, features, new_features)
                line += lines.count
                report(done + position, found.lines + line - 1)
        found.lines += line - 1
        done += path.stat().st_size
    return found.examples(features.next)


def _blocks(path: Path, file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield whole lines, and how many bytes of the file were read."""
    lines = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
    try:
        rest, size = lines.read(len(BYTE_ORDER_MARK)).removeprefix(BYTE_ORDER_MARK), BLOCK
        while more := lines.read(size):
            data = rest + more
            end = data.rfind(b"\n") + 1
            if end:
                yield data[:end], file.tell()
            rest, size = data[end:], BLOCK if end else max(BLOCK, len(data))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}; make or copy it again") from error
    if rest:
        yield rest + b"\n", file.tell()


class _Lines:
    """A block of lines, cut at their first TAB and after it at each colon and comma."""

    def __init__(self, file: str, first: int, block: bytes) -> None:
        self.file, self.first = file, first
        self.letters: Bytes = np.frombuffer(block + bytes(ROOM), dtype=np.uint8)
        self.words = np.ndarray(len(self.letters) - WORD + 1, "<u8", self.letters, strides=(1,))
        body = self.letters[: len(block)]
        newlines = np.flatnonzero(body == NEWLINE)
        self.count = len(newlines)
        self._newlines = newlines
        self._check_text(block, body)
        tabs = np.flatnonzero(body == TAB)
        tab_lines = np.searchsorted(newlines, tabs)
        again = np.flatnonzero(tab_lines[1:] == tab_lines[:-1])
        if len(again):
            raise DataError(f"{self.place(int(tabs[again[0] + 1]))}: more than one TAB, legal: one, after the sample")
        tab = np.full(self.count, len(block), dtype=np.int64)  # where each line's is; none: behind everything
        tab[tab_lines] = tabs
        cuts = np.flatnonzero((body == COLON) | (body == COMMA) | (body == TAB) | (body == NEWLINE))
        cuts = cuts[(cuts >= tab[np.searchsorted(newlines, cuts)]) | (body[cuts] == NEWLINE)]
        self.starts = np.concatenate(([0], cuts[:-1] + 1))
        self.after = body[cuts]  # what stands behind each field
        self.before = np.concatenate(([NEWLINE], self.after[:-1])).astype(np.uint8)
        ends = cuts - ((self.after == NEWLINE) & (cuts > self.starts) & (body[cuts - 1] == RETURN))
        self.lengths = ends - self.starts

    def place(self, byte: int) -> str:
        """Return file and line of a byte."""
        return f"{self.file}:{self.first + int(np.searchsorted(self._newlines, byte))}"

    def text(self, field: int) -> str:
        """Return a field."""
        start = int(self.starts[field])
        return self.letters[start : start + int(self.lengths[field])].tobytes().decode()

    def check(self, wrong: NDArray[np.bool_], fields: Longs, words: str) -> None:
        """Raise DataError for the first field that is wrong."""
        if np.any(wrong):
            field = int(fields[np.argmax(wrong)])
            raise DataError(f"{self.place(int(self.starts[field]))}: {words.format(self.text(field))}")

    def _check_text(self, block: bytes, body: Bytes) -> None:
        if not body.all():
            raise DataError(f"{self.place(int(np.argmin(body)))}: a zero byte; this is no text file")
        if body.max() >= 128:
            try:
                block.decode()
            except UnicodeDecodeError as error:
                raise DataError(f"{self.place(error.start)}: cannot be read: {error}; legal: UTF-8 text") from error


class _Found:
    """What was read so far."""

    def __init__(self) -> None:
        self.lines = self.dropped = 0
        self.warnings = Warnings()
        self._samples: list[Ints] = []  # of each line
        self._counts: list[Longs] = []
        self._features: list[Ints] = []
        self._values: list[Floats] = []

    def add(self, lines: _Lines, analog: bool, samples: Labels, features: Labels, new_features: bool) -> None:
        """Add a block of lines."""
        begin = np.flatnonzero((lines.before == NEWLINE) & (lines.after == TAB))
        self._warn(lines)
        lines.check(lines.lengths[begin] == 0, begin, "an empty sample, legal: sample<TAB>feature:feature")
        label = np.flatnonzero((lines.before == TAB) | (lines.before == COLON))
        valued = lines.after[label] == COMMA
        empty = lines.lengths[label] == 0
        lines.check(empty & valued, label, "a value without a feature, legal: feature,value")
        label, valued = label[~empty], valued[~empty]
        if analog:
            legal = ", legal with --type analog: feature,value"
            lines.check(~valued, label, "feature {!r} has no value" + legal)
            values = _parse(lines, label + 1, "value {!r} is not a finite number" + legal)
        units = features.numbers(lines.words, lines.starts[label], lines.lengths[label], new_features)
        known = units != UNKNOWN
        self.dropped += int(len(units) - np.count_nonzero(known))
        owner = np.searchsorted(lines.starts[begin], lines.starts[label[known]]) - 1
        self._samples.append(samples.numbers(lines.words, lines.starts[begin], lines.lengths[begin], True))
        self._counts.append(np.bincount(owner, minlength=len(begin)))
        self._features.append(units[known])
        if analog:
            self._values.append(values[known])

    def examples(self, width: int) -> TextExamples:
        """Return all rows; of samples that came again only the last."""
        counts = np.concatenate([*self._counts, np.zeros(1, dtype=np.int64)])  # the last row is empty
        units = np.concatenate([*self._features, np.zeros(0, dtype=np.int32)])
        values = np.concatenate(self._values) if self._values else None
        sample = np.concatenate([*self._samples, np.zeros(0, dtype=np.int32)])
        return TextExamples(Csr(offsets_of(counts), units, width, values), sample, self.dropped, self.warnings)

    def _warn(self, lines: _Lines) -> None:
        bare = np.flatnonzero((lines.before == NEWLINE) & (lines.after == NEWLINE) & (lines.lengths > 0))
        more = np.flatnonzero((lines.before[1:] == COMMA) & (lines.before[:-1] == COMMA)) + 1
        for what, fields in (("lines without TAB skipped", bare), ("values after the first skipped", more)):
            if len(fields):
                self.warnings.add(what, lines.place(int(lines.starts[fields[0]])), len(fields))


def _parse(lines: _Lines, fields: Longs, words: str) -> Floats:
    """Return fields as numbers."""
    starts, lengths = lines.starts[fields], lines.lengths[fields]
    lines.check((lengths == 0) | (lengths > LONGEST_NUMBER), fields, words)
    place = np.arange(int(lengths.max(initial=1)))
    letters = lines.letters[np.minimum(starts[:, None] + place, len(lines.letters) - 1)]
    letters[place >= lengths[:, None]] = 0
    texts = np.ascontiguousarray(letters).view(f"S{len(place)}")[:, 0]
    try:
        values = texts.astype(np.float64)
    except ValueError:
        values = np.array([_number(text) for text in texts.tolist()])
    most = np.finfo(np.float32).max
    lines.check(~(np.abs(values) <= most) | np.any(letters == UNDERSCORE, axis=1), fields, words)
    return values.astype(np.float32)


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan
