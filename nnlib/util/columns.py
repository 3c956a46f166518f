"""What becomes of a table on a terminal that is narrower than it, so that no figure is cut. Pure.

Columns of text are folded first, then columns go in the order that the table says, and where the rest still has no room
the rows stand one below the other, a line for each cell.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nnlib.util.terminal import measure

SHORTEST = 11  # characters to which a column of text is folded


@dataclass(frozen=True, slots=True)
class Narrow:
    """Which columns of a table matter less than others, and which may be folded."""

    drop: tuple[str, ...] = ()  # columns that go, in this order, until the rest fits
    fold: Mapping[str, int] = field(default_factory=dict)  # columns of text, each with how narrow it may become


def fold_text(headings: Sequence[str], columns: Sequence[Sequence[str]]) -> Narrow:
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
        yield from textwrap.wrap(first, room) or [""]
        for heading, cell in zip(headings[1:], cells, strict=True):
            if cell not in ("", "-"):
                text = textwrap.wrap(f"{heading}: {cell}", max(20, room - 2), subsequent_indent="  ")
                yield from (f"  {line}" for line in text)


def cut_text(text: str, width: int) -> str:
    """Return a text of at most `width` columns; what is longer ends with an ellipsis."""
    if measure(text) <= width:
        return text
    while text and measure(text) > width - 1:
        text = text[:-1]
    return f"{text}…"
