"""Tables of runs, regions and trials on stdout. Their cells are plain text."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from nnlib.util.columns import Narrow as Narrow
from nnlib.util.columns import cut_text, fit_columns, print_folded, stack_rows, usual_narrow
from nnlib.util.terminal import format_table, print_ruled, width_of

MANY_ROWS = 400  # a frame takes 2.5 ms a row


def print_table(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    narrow: Narrow | None = None,
    framed: bool = True,
) -> None:
    """Print a table; columns whose cells are all figures are aligned to the right.

    Columns that a terminal has no room for are named below it, unless there is no room for a table at all.
    """
    columns = list(zip(*rows, strict=True)) or [()] * len(headings)
    room = width_of(sys.stdout)
    widths = fit_columns(headings, columns, narrow or usual_narrow(headings, columns), room, framed)
    heads = [headings[n] for n in widths]
    if not widths:
        print_folded(title)
        print("\n".join(stack_rows(headings, rows, room)))
        return
    if framed:
        figures = [columns[n] != () and all(_is_figure(cell) for cell in columns[n]) for n in widths]
        cells = [[row[n] for n in widths] for row in rows]
        print_ruled(heads, cells, figures, sys.stdout, title, list(widths.values()))
    else:
        cells = [[cut_text(row[n], width) for n, width in widths.items()] for row in rows]
        print_folded(title)
        print(format_table(heads, cells, [False] * len(heads)))
    left_out = [heading for n, heading in enumerate(headings) if n not in widths]
    if left_out:
        print_folded(f"no room for: {', '.join(left_out)}")


def print_long_table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], narrow: Narrow | None = None
) -> None:
    """Print a table of any length: without a frame, and without folding, where it has many rows."""
    print_table(title, headings, rows, narrow, framed=len(rows) <= MANY_ROWS)


def near_path(path: Path, stream: TextIO) -> str:
    """Return a path for people, on a terminal from the current folder where it lies below that: it may be copied."""
    here = os.path.relpath(path)
    return here if stream.isatty() and not here.startswith("..") else str(path)


def _is_figure(cell: str) -> bool:
    return (cell[:1].isdigit() and "±" not in cell) or cell == "-"  # what has an interval has its point on the left
