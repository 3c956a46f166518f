"""Tables and progress bars. The only module of this package that imports rich."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 200  # where stdout is no terminal, lines are not wrapped at 80
MANY_ROWS = 400  # rich takes 2.5 ms to lay out one row


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show progress on stderr while the block runs; call what is given with (done, total)."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout. Cells are plain text: markup in them means nothing."""
    console().print(make_table(title, headings, rows))


def print_long_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of any length on stdout: without a frame, and without folding, where it has many rows."""
    if len(rows) <= MANY_ROWS:
        print_table(title, headings, rows)
        return
    widths = [max(map(cell_len, column)) for column in zip(headings, *rows, strict=True)]
    print(title)
    for row in (headings, *rows):
        cells = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def make_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table; columns whose cells are all figures are aligned to the right."""
    table = Table(title=Text(title), title_justify="left")
    for index, heading in enumerate(headings):
        figures = rows and all(row[index][:1].isdigit() or row[index] == "-" for row in rows)
        table.add_column(Text(heading), justify="right" if figures else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def console() -> Console:
    """Return a console on stdout."""
    return _Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)


class _Console(Console):
    """A console whose reader may go; rich itself would end the process with 1."""

    def on_broken_pipe(self) -> None:
        """Leave what is being raised to the command."""
        raise
