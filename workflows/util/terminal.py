"""Tables of runs, regions and trials on stdout. Their cells are plain text."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nnlib.util.terminal import format_table, print_ruled

MANY_ROWS = 400  # a frame takes 2.5 ms a row


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table in a frame; columns whose cells are all figures are aligned to the right."""
    columns = list(zip(*rows, strict=True)) or [()] * len(headings)
    figures = [column != () and all(cell[:1].isdigit() or cell == "-" for cell in column) for column in columns]
    print_ruled(headings, rows, figures, sys.stdout, title)


def print_long_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of any length: without a frame, and without folding, where it has many rows."""
    if len(rows) <= MANY_ROWS:
        print_table(title, headings, rows)
    else:
        print(title, format_table(headings, rows, [False] * len(headings)), sep="\n")
