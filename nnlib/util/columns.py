"""What becomes of a table on a terminal that is narrower than it, so that no figure is cut.

Columns of text are folded first, then columns go in the order that the table says, and where the rest still has no room
the rows stand one below the other, a line for each cell.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from nnlib.util.terminal import bound_text, format_table, measure, show_cell, width_of

SHORTEST = 11  # characters to which a column of text is folded


@dataclass(frozen=True, slots=True)
class Narrow:
    """Which columns of a table matter less than others, and which may be folded."""

    drop: tuple[str, ...] = ()  # columns that go, in this order, until the rest fits
    fold: Mapping[str, int] = field(default_factory=dict)  # columns of text, each with how narrow it may become


def usual_narrow(headings: Sequence[str], columns: Sequence[Sequence[str]]) -> Narrow:
    """Return what may be folded of a table that says nothing of it: columns in which no cell begins like a figure."""
    texts = [not any(cell[:1].isdigit() or cell[:2] in ("-.", "+.", ".") for cell in cells) for cells in columns]
    return Narrow(fold={heading: SHORTEST for heading, text in zip(headings, texts, strict=True) if text})


def fit_columns(
    headings: Sequence[str],
    columns: Sequence[Sequence[str]],
    narrow: Narrow,
    room: int,
    framed: bool = True,
    headed: bool = True,
) -> dict[int, int]:
    """Return the numbers of the columns that `room` characters have room for, each with its width.

    In a frame headings are folded between words; what room is left goes to columns of text first. `headed`: whether the
    headings are shown at all. Nothing where there is no room even for what may not go.
    """
    between, room = (3, room - 1) if framed else (2, room + 2)
    whole, least = [], []
    for heading, cells in zip(headings, columns, strict=True):
        widest = max(map(measure, cells), default=0)
        words = (heading.split(" ") if framed else [heading]) if headed else [""]
        whole.append(max(widest, measure(heading) if headed else 0))
        least.append(max(min(widest, narrow.fold.get(heading, widest)), *map(measure, words)))
    kept = list(range(len(headings)))
    for heading in narrow.drop:
        if sum(least[n] + between for n in kept) <= room:
            break
        kept = [n for n in kept if headings[n] != heading]
    if sum(least[n] + between for n in kept) > room:
        return {}
    widths = {n: least[n] for n in kept}
    left = room - sum(width + between for width in widths.values())
    for n in sorted(kept, key=lambda n: headings[n] not in narrow.fold):
        more = min(left, whole[n] - least[n])
        widths[n], left = widths[n] + more, left - more
    return widths


def stack_rows(headings: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> Iterator[str]:
    """Yield each row as its first cell and, below it, a line for each other one that says something."""
    for first, *cells in rows:
        yield from fold_text(first, room)
        for heading, cell in zip(headings[1:], cells, strict=True):
            if cell not in ("", "-"):
                yield from fold_text(f"  {heading}: {cell}", room, "    ")


def format_fitted(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], narrow: Narrow, room: int
) -> str:
    """Return rows under their headings as plain text that is not wider than `room`; the last line names what is not."""
    rows = [[show_cell(cell) for cell in row] for row in rows]
    columns = list(zip(*rows, strict=True)) or [()] * len(headings)
    widths = fit_columns(headings, columns, narrow, room, framed=False)
    if not widths:
        return "\n".join(stack_rows(headings, rows, room))
    cells = [[cut_text(row[n], width) for n, width in widths.items()] for row in rows]
    text = format_table([headings[n] for n in widths], cells, [right[n] for n in widths])
    left_out = [heading for n, heading in enumerate(headings) if n not in widths]
    return "\n".join([text, *fold_text(f"no room for: {', '.join(left_out)}", room)]) if left_out else text


def fold_text(text: str, room: int, indent: str = "") -> list[str]:
    """Return a text in lines of at most `room` columns, folded between words; `indent` begins all but the first.

    A longer word, such as a path, stays whole.

    >>> fold_text("one two three", 8, "  ")
    ['one two', '  three']
    """
    lines, line = [], ""
    for number, word in enumerate(text.split(" ")):
        longer = f"{line} {word}" if number else word
        if measure(longer) > room and line.strip():
            lines.append(line)
            longer = indent + word
        line = longer
    return [*lines, line]


def print_folded(text: str, stream: TextIO | None = None, indent: str = "  ") -> None:
    """Print a text for people, on a terminal as `fold_text` has it."""
    stream = stream or sys.stdout
    print("\n".join(fold_text(bound_text(text), width_of(stream), indent)), file=stream, flush=True)


def cut_text(text: str, width: int) -> str:
    """Return a text of at most `width` columns; what is longer ends with an ellipsis."""
    if measure(text) <= width:
        return text
    while text and measure(text) > width - 1:
        text = text[:-1]
    return f"{text}…"
