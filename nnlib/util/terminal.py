"""What a person sees: tables, and how far something is. The only module that imports rich.

Rich is imported where it is used: most commands, and trainings on a worker, show neither.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import argparse

    from nnlib.epoch_log import Epoch

SECONDS_BETWEEN_LINES = 10
USUAL_WIDTH = 80
MOST_OF_LINE, MOST_LINES = 1000, 200  # of what a command says of a file
MOST_OF_CELL = 300  # characters of a table
WHOLE_WIDTH = 1_000_000  # of tables that go into a file or a pipe: nothing is folded


class Loudness(IntEnum):
    """How much a command says beside its data: --quiet, nothing of both, --verbose."""

    QUIET = 0
    USUAL = 1
    VERBOSE = 2


_loudness = Loudness.USUAL


def set_loudness(loudness: Loudness) -> None:
    """Say how much this process says from now on."""
    global _loudness
    _loudness = loudness


def is_quiet() -> bool:
    """Whether nothing is to be said but data, warnings and errors."""
    return _loudness == Loudness.QUIET


def is_verbose() -> bool:
    """Whether it is to be said what is run on the way."""
    return _loudness == Loudness.VERBOSE


def add_loudness(parser: argparse.ArgumentParser) -> None:
    """Declare what every command takes: how much it says on stderr beside its data on stdout."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "-q", "--quiet", action="store_true", help="only data, warnings and errors: no progress, no hints"
    )
    group.add_argument(
        "-v", "--verbose", action="store_true", help="also what is run on the way, and how long it takes"
    )


@contextmanager
def loud_as(arguments: argparse.Namespace) -> Iterator[None]:
    """Say as much as `add_loudness` was told in a block: Python's users may make another call after it."""
    set_loudness(Loudness.QUIET if arguments.quiet else Loudness.VERBOSE if arguments.verbose else Loudness.USUAL)
    try:
        yield
    finally:
        set_loudness(Loudness.USUAL)


def tell(text: str) -> None:
    """Say something to people, at once and on stderr, unless they want it quiet: stdout is for data."""
    if not is_quiet():
        print(text, file=sys.stderr, flush=True)


def bound_text(text: str) -> str:
    """Return what a command says of files that others wrote: spelled out where it would steer a terminal, and bounded.

    A line keeps both of its ends, where something is and what is legal; of many lines the first ones stay.

    >>> bound_text("a" + chr(27) + "[2J, legal: b")
    'a\\\\x1b[2J, legal: b'
    """
    lines = text.split("\n")
    shown = [spell_out(line) if len(line) <= MOST_OF_LINE else _cut(line) for line in lines[:MOST_LINES]]
    return "\n".join([*shown, f"and {len(lines) - MOST_LINES:,} more"] if len(lines) > MOST_LINES else shown)


def _cut(line: str) -> str:
    half = MOST_OF_LINE // 2
    return f"{spell_out(line[:half])} ... {spell_out(line[-half:])}"


def spell_out(text: str) -> str:
    """Return `text`, of one line or several, with what would steer a terminal spelled out."""
    return "".join(one if one.isprintable() or one in "\t\n" else ascii(one)[1:-1] for one in text)


def show_cell(text: str) -> str:
    """Return what stands in a cell of a table, as names may be whatever a file says."""
    return spell_out(text if len(text) <= MOST_OF_CELL else f"{text[:MOST_OF_CELL]}...")


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say what is done in a block, and how long it took, to people who want to know: --verbose."""
    started = time.perf_counter()
    try:
        yield
    finally:
        if is_verbose():
            print(f"{time.perf_counter() - started:8.2f} s  {what}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Shown:
    """What to call on the way: with each epoch at its end, and with (epoch, examples done, of how many) in it."""

    epoch: Callable[[Epoch], None]
    batch: Callable[[int, int, int], None]


@contextmanager
def show_training(epochs: int, metric: str, stream: TextIO | None = None) -> Iterator[Shown]:
    """Show a training: a bar with the speed on a terminal, else a line for each epoch and now and then between."""
    stream = stream or sys.stderr
    started = said = time.perf_counter()
    if is_quiet():
        yield Shown(lambda _: None, lambda *_: None)
        return
    if not stream.isatty():

        def line(epoch: int, done: int, examples: int) -> None:
            nonlocal said
            now = time.perf_counter()
            if now - said >= SECONDS_BETWEEN_LINES:
                said = now
                print(f"epoch {epoch}/{epochs}: {done:,} of {examples:,} examples", file=stream, flush=True)

        yield Shown(lambda epoch: print(describe_epoch(epoch, epochs, metric), file=stream, flush=True), line)
        return
    with _bar("text bar share left", stream, "training", epochs, transient=False) as update:
        last, first = "training", 0.0

        def move(epoch: int, done: int, examples: int) -> None:
            nonlocal first
            position = epoch - 1 + done / examples
            first = first or position  # a training that was resumed starts in the middle
            speed = (position - first) * examples / max(time.perf_counter() - started, 1e-9)
            update(completed=position, description=f"{last}, {speed:,.0f} examples/s")

        def end(epoch: Epoch) -> None:
            nonlocal last
            last = describe_epoch(epoch, epochs, metric)
            update(completed=epoch.epoch, description=last)

        yield Shown(end, move)


def describe_epoch(epoch: Epoch, epochs: int, metric: str) -> str:
    """Return one epoch as a line, such as `epoch 3/30 loss 7.1234 ndcg@20 0.0815 0.21 s 4871/s`."""
    value = "" if epoch.value is None else f" {metric} {epoch.value:.5g}"
    speed = epoch.examples / max(epoch.seconds, 1e-9)
    return f"epoch {epoch.epoch}/{epochs} loss {epoch.loss:.5g}{value} {epoch.seconds:.2f} s {speed:.0f}/s"


@contextmanager
def show_count(total: int, what: str, stream: TextIO | None = None) -> Iterator[Callable[[int], None]]:
    """Give a function to call with how many more are done: a bar with the speed on a terminal, else a last line."""
    stream, started = stream or sys.stderr, time.perf_counter()
    if is_quiet():
        yield lambda _: None
        return
    if stream.isatty():
        with _bar("text bar count left", stream, what, total) as update:
            done = 0

            def advance(count: int) -> None:
                nonlocal done
                done += count
                speed = done / max(time.perf_counter() - started, 1e-9)
                update(completed=done, description=f"{what}, {speed:.0f}/s")

            yield advance
    else:
        yield lambda _: None
    seconds = time.perf_counter() - started
    print(f"{total} {what} in {seconds:.2f} s, {total / max(seconds, 1e-9):.0f}/s", file=stream, flush=True)


@contextmanager
def show_reading(size: int, what: str, stream: TextIO | None = None) -> Iterator[Callable[[int, int], None]]:
    """Give a function to call with the bytes read of `size`, 0: unknown, and the `what` found in them, both so far.

    On a terminal it moves a bar; elsewhere it writes a line now and then, none at all when reading is quick.
    """
    stream, started = stream or sys.stderr, time.perf_counter()
    if is_quiet():
        yield lambda _position, _count: None
        return
    if not stream.isatty():
        said = started

        def report(position: int, count: int) -> None:
            nonlocal said
            now = time.perf_counter()
            if now - said >= SECONDS_BETWEEN_LINES:
                said = now
                part = f", {position / size:.0%}" if position else ""
                speed = f", {count / (now - started):,.0f}/s"
                # How many there are is not known while they are read at once.
                print(f"{count:,} {what}{part}{speed}" if count else f"{what}{part}", file=stream, flush=True)

        yield report
        return
    with _bar("bar share text left" if size else "text", stream, "", size or None) as update:

        def move(position: int, count: int) -> None:
            speed = count / max(time.perf_counter() - started, 1e-9)
            update(completed=position, description=f"{count:,} {what}, {speed:,.0f}/s" if count else what)

        yield move


@contextmanager
def show_progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr while the block runs, if that is a terminal; call what is given with (done, total)."""
    if not sys.stderr.isatty() or is_quiet():
        yield lambda _done, _total: None
        return
    with _bar("text bar count left", sys.stderr, title, None) as update:
        yield lambda done, total: update(completed=done, total=total)


@contextmanager
def _bar(
    parts: str, stream: TextIO, text: str, total: int | None, transient: bool = True
) -> Iterator[Callable[..., None]]:
    """Show a bar made of `parts`; call what is given with what changes: completed, total, description."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    known = {
        "text": TextColumn("{task.description}"),
        "bar": BarColumn(),
        "share": TaskProgressColumn(),
        "count": MofNCompleteColumn(),
        "left": TimeRemainingColumn(),
    }
    columns = (known[part] for part in parts.split())
    with Progress(*columns, console=Console(file=stream), transient=transient) as progress:
        yield partial(progress.update, progress.add_task(text, total=total))


# --- tables ------------------------------------------------------------------------------------------------


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO | None = None) -> None:
    """Print rows under their headings, the first to the left and the others to the right; ruled on a terminal."""
    stream, right = stream or sys.stdout, [number > 0 for number in range(len(headings))]
    rows = [[show_cell(cell) for cell in row] for row in rows]
    if stream.isatty():
        print_ruled(headings, rows, right, stream)
    else:
        print(format_table(headings, rows, right), file=stream)


def format_table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """Return rows under their headings as plain text; `right` says which columns are aligned to the right."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(headings, *rows, strict=True)]
    lines = []
    for row in (headings, *rows):
        padded = [(cell, " " * (width - cell_len(cell))) for cell, width in zip(row, widths, strict=True)]
        cells = (pad + cell if ends else cell + pad for (cell, pad), ends in zip(padded, right, strict=True))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def measure(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def width_of(stream: TextIO) -> int:
    """Return how wide what `stream` goes to is; a file or a pipe is wider than any table."""
    if not stream.isatty():
        return WHOLE_WIDTH
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdigit() and int(wanted):
        return int(wanted)
    try:  # of this stream: another one may be the terminal that rich asks
        return os.get_terminal_size(stream.fileno()).columns or USUAL_WIDTH
    except OSError:
        return USUAL_WIDTH


def print_ruled(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[bool],
    stream: TextIO,
    title: str | None = None,
    widths: Sequence[int] | None = None,
) -> None:
    """Print rows under their headings with lines between them; with a title, in a frame.

    Cells are plain text: markup in them means nothing. A terminal folds what is wider than it, or than `widths` of the
    columns; a file or a pipe has the whole width.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=None if title is None else Text(title),
        title_justify="left",
        box=box.SIMPLE_HEAD if title is None else box.HEAVY_HEAD,
    )
    fixed: Sequence[int | None] = widths or [None] * len(headings)
    for heading, ends, width in zip(headings, right, fixed, strict=True):
        table.add_column(Text(heading), justify="right" if ends else "left", overflow="fold", width=width)
    for row in rows:
        table.add_row(*map(Text, row))
    # Without a height rich takes some pipes for terminals of 80 columns (FORCE_COLOR and TERM=dumb, as in CI).
    width, height = width_of(stream), None if stream.isatty() else 1
    console = Console(file=stream, width=width, height=height)
    with console.capture() as text:  # rich would end the process where its reader has gone
        console.print(table)
    stream.write(text.get())
    stream.flush()  # a reader that has gone is found before anything else is done
