"""Lines on a terminal that are drawn again in their place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from nnlib.util.terminal import measure, width_of

USUAL_HEIGHT = 24


def can_redraw(stream: TextIO) -> bool:
    """Whether the cursor of what `stream` goes to can be moved."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def height_of(stream: TextIO) -> int:
    """Return how many lines a terminal has."""
    try:
        return os.get_terminal_size(stream.fileno()).lines or USUAL_HEIGHT
    except OSError:
        return USUAL_HEIGHT


class Redraw:
    """Shows some lines, and others in their place the next time."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.shown: tuple[str, ...] = ()

    def show(self, lines: Sequence[str]) -> None:
        """Show lines in place of those before; a terminal that became narrower meanwhile has folded these."""
        width = max(1, width_of(self.stream))
        up = sum(max(1, -(-measure(line) // width)) for line in self.shown)
        back = f"\x1b[{up}A" if up else ""
        self.stream.write(f"{back}\r\x1b[J" + "".join(f"{line}\n" for line in lines))
        self.stream.flush()
        self.shown = tuple(lines)

    def leave(self) -> None:
        """Let what is shown stand; what comes next is drawn below it."""
        self.shown = ()
