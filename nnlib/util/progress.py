"""What a person sees: trainings and predictions on their way, and tables; the only module that imports rich."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from nnlib.epoch_log import Epoch

SECONDS_BETWEEN_LINES = 10


@dataclass(frozen=True, slots=True)
class Shown:
    """What to call on the way: with each epoch at its end, and with (epoch, examples done, of how many) in it."""

    epoch: Callable[[Epoch], None]
    batch: Callable[[int, int, int], None]


@contextmanager
def reporter(epochs: int, metric: str, stream: TextIO | None = None) -> Iterator[Shown]:
    """Show a training: a bar with the speed on a terminal, else a line for each epoch and now and then between."""
    stream = stream or sys.stderr
    started = said = time.perf_counter()
    if not stream.isatty():

        def line(epoch: int, done: int, examples: int) -> None:
            nonlocal said
            now = time.perf_counter()
            if now - said >= SECONDS_BETWEEN_LINES:
                said = now
                print(f"epoch {epoch}/{epochs}: {done:,} of {examples:,} examples", file=stream, flush=True)

        yield Shown(lambda epoch: print(describe_epoch(epoch, epochs, metric), file=stream, flush=True), line)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=stream)) as progress:
        task, last, first = progress.add_task("training", total=epochs), "training", 0.0

        def move(epoch: int, done: int, examples: int) -> None:
            nonlocal first
            position = epoch - 1 + done / examples
            first = first or position  # a training that was resumed starts in the middle
            speed = (position - first) * examples / max(time.perf_counter() - started, 1e-9)
            progress.update(task, completed=position, description=f"{last}, {speed:,.0f} examples/s")

        def end(epoch: Epoch) -> None:
            nonlocal last
            last = describe_epoch(epoch, epochs, metric)
            progress.update(task, completed=epoch.epoch, description=last)

        yield Shown(end, move)


def describe_epoch(epoch: Epoch, epochs: int, metric: str) -> str:
    """Return one epoch as a line, such as `epoch 3/30 loss 7.1234 ndcg@20 0.0815 0.21 s 4871/s`."""
    value = "" if epoch.value is None else f" {metric} {epoch.value:.5g}"
    speed = epoch.examples / max(epoch.seconds, 1e-9)
    return f"epoch {epoch.epoch}/{epochs} loss {epoch.loss:.5g}{value} {epoch.seconds:.2f} s {speed:.0f}/s"


@contextmanager
def counter(total: int, what: str, stream: TextIO | None = None) -> Iterator[Callable[[int], None]]:
    """Give a function to call with how many more are done: a bar with the speed on a terminal, else a last line."""
    stream, started = stream or sys.stderr, time.perf_counter()
    if stream.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(file=stream), transient=True) as progress:
            task, done = progress.add_task(what, total=total), 0

            def advance(count: int) -> None:
                nonlocal done
                done += count
                speed = done / max(time.perf_counter() - started, 1e-9)
                progress.update(task, completed=done, description=f"{what}, {speed:.0f}/s")

            yield advance
    else:
        yield lambda _: None
    seconds = time.perf_counter() - started
    print(f"{total} {what} in {seconds:.2f} s, {total / max(seconds, 1e-9):.0f}/s", file=stream, flush=True)


@contextmanager
def show_reading(size: int, what: str, stream: TextIO | None = None) -> Iterator[Callable[[int, int], None]]:
    """Give a function to call with the bytes read of `size` and the `what` found in them, both so far.

    On a terminal it moves a bar; elsewhere it writes a line now and then, none at all when reading is quick.
    """
    stream, started = stream or sys.stderr, time.perf_counter()
    if not stream.isatty():
        said = started

        def report(position: int, count: int) -> None:
            nonlocal said
            now = time.perf_counter()
            if now - said >= SECONDS_BETWEEN_LINES:
                said = now
                part = f", {position / size:.0%}" if position else ""
                print(f"{count:,} {what}{part}, {count / (now - started):,.0f}/s", file=stream, flush=True)

        yield report
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=stream), transient=True) as progress:
        task = progress.add_task("", total=size)

        def move(position: int, count: int) -> None:
            speed = count / max(time.perf_counter() - started, 1e-9)
            progress.update(task, completed=position, description=f"{count:,} {what}, {speed:,.0f}/s")

        yield move


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO | None = None) -> None:
    """Print rows under their columns, the first to the left and the others to the right; ruled on a terminal."""
    stream = stream or sys.stdout
    if stream.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table

        ruled = Table(box=box.SIMPLE_HEAD)
        for number, column in enumerate(columns):
            ruled.add_column(column, justify="right" if number else "left")
        for row in rows:
            ruled.add_row(*row)
        Console(file=stream, markup=False, highlight=False).print(ruled)
        return
    widths = [max(len(row[n]) for row in (columns, *rows)) for n in range(len(columns))]
    for row in (columns, *rows):
        cells = [
            cell.rjust(width) if n else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip(), file=stream)
