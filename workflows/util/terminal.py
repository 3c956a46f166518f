"""Tables of runs, regions and trials on stdout. Their cells are plain text."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nnlib.util.terminal import WHOLE_WIDTH, format_table, measure, print_ruled, width_of

MANY_ROWS = 400  # a frame takes 2.5 ms a row


@dataclass(frozen=True, slots=True)
class Narrow:
    """What becomes of a table on a terminal that is narrower than it, so that no figure is cut."""

    drop: tuple[str, ...] = ()  # columns that go, in this order, until the rest fits
    fold: Mapping[str, int] = field(default_factory=dict)  # columns of text, each with how narrow it may become


AS_IT_IS = Narrow()


def print_table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], narrow: Narrow = AS_IT_IS, framed: bool = True
) -> None:
    """Print a table; columns whose cells are all figures are aligned to the right.

    Columns that a terminal has no room for are named below it.
    """
    columns = list(zip(*rows, strict=True)) or [()] * len(headings)
    room = WHOLE_WIDTH if narrow is AS_IT_IS else width_of(sys.stdout)
    widths = fit_columns(headings, columns, narrow, room, framed)
    heads = [headings[n] for n in widths]
    if framed:
        figures = [columns[n] != () and all(_is_figure(cell) for cell in columns[n]) for n in widths]
        cells = [[row[n] for n in widths] for row in rows]
        print_ruled(heads, cells, figures, sys.stdout, title, None if narrow is AS_IT_IS else list(widths.values()))
    else:
        cells = [[_cut(row[n], width) for n, width in widths.items()] for row in rows]
        print(title, format_table(heads, cells, [False] * len(heads)), sep="\n")
    left_out = [heading for n, heading in enumerate(headings) if n not in widths]
    if left_out:
        print(f"no room for: {', '.join(left_out)}")


def print_long_table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], narrow: Narrow = AS_IT_IS
) -> None:
    """Print a table of any length: without a frame, and without folding, where it has many rows."""
    print_table(title, headings, rows, narrow, framed=len(rows) <= MANY_ROWS)


def fit_columns(
    headings: Sequence[str], columns: Sequence[Sequence[str]], narrow: Narrow, room: int, framed: bool = True
) -> dict[int, int]:
    """Return the numbers of the columns that `room` characters have room for, each with its width.

    In a frame headings are folded between words; what room is left goes to columns of text first. A table that is
    still too wide then is left to the terminal.
    """
    between, room = (3, room - 1) if framed else (2, room + 2)
    whole, least = [], []
    for heading, cells in zip(headings, columns, strict=True):
        widest = max(map(measure, cells), default=0)
        words = heading.split(" ") if framed else [heading]
        whole.append(max(widest, measure(heading)))
        least.append(max(min(widest, narrow.fold.get(heading, widest)), *map(measure, words)))
    kept = list(range(len(headings)))
    for heading in narrow.drop:
        if sum(least[n] + between for n in kept) <= room:
            break
        kept = [n for n in kept if headings[n] != heading]
    widths = {n: least[n] for n in kept}
    left = max(0, room - sum(width + between for width in widths.values()))
    for n in sorted(kept, key=lambda n: headings[n] not in narrow.fold):
        more = min(left, whole[n] - least[n])
        widths[n], left = widths[n] + more, left - more
    return widths


def _is_figure(cell: str) -> bool:
    return (cell[:1].isdigit() and "±" not in cell) or cell == "-"  # what has an interval has its point on the left


def _cut(text: str, width: int) -> str:
    """Return a text of at most `width` columns; what is longer ends with an ellipsis."""
    if measure(text) <= width:
        return text
    while measure(text) > width - 1:
        text = text[:-1]
    return f"{text}…"
