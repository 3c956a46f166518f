"""Lines that are drawn in the place of those before, on a terminal that is played."""

from __future__ import annotations

import io
import random
import re

import pytest

from regiondag.monitor.watch_view import Watched, draw
from regiondag.util.redraw import Redraw, can_redraw, height_of
from tests.workflows.monitor.test_watch_view import NOW, random_region, status


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_the_cursor_goes_up_as_many_lines_as_were_shown(terminal):
    redraw = Redraw(terminal)
    redraw.show(["a", "b"])
    redraw.show(["c"])
    redraw.leave()
    redraw.show(["d"])
    assert terminal.getvalue() == "\r\x1b[Ja\nb\n\x1b[2A\r\x1b[Jc\n\r\x1b[Jd\n"


def test_lines_that_a_narrower_terminal_has_folded_are_counted(terminal, monkeypatch):
    redraw = Redraw(terminal)
    redraw.show(["x" * 20, ""])
    monkeypatch.setenv("COLUMNS", "8")
    redraw.show([])
    assert terminal.getvalue().endswith("\x1b[4A\r\x1b[J")


def test_what_is_no_terminal_or_a_dumb_one_is_not_drawn_on(terminal, monkeypatch):
    assert can_redraw(terminal) and not can_redraw(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not can_redraw(terminal)
    assert height_of(terminal) == 24


def screen_of(text: str, columns: int) -> list[str]:
    """Play what a terminal does: fold what is wider, go up, go to the line's begin, clear what is below."""
    rows, row, column = [""], 0, 0
    for part in re.split(r"(\x1b\[\d*[A-Z]|\n|\r)", text):
        if part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1])
        elif part == "\x1b[J":
            rows = [*rows[:row], rows[row][:column]]
        elif part == "\r":
            column = 0
        elif part == "\n":
            row, column = row + 1, 0
        else:
            for letter in part:
                if column == columns:
                    row, column = row + 1, 0
                rows += [""] * (row + 1 - len(rows))
                rows[row] = rows[row][:column].ljust(column) + letter + rows[row][column + 1 :]
                column += 1
        rows += [""] * (row + 1 - len(rows))
    return rows


@pytest.mark.parametrize("columns", [30, 60, 80, 120, 200])
def test_a_watched_run_leaves_nothing_of_the_pictures_before(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    terminal, rng = Terminal(), random.Random(columns)
    terminal.write("==> watch\n")
    redraw, lines = Redraw(terminal), []
    for look in range(8):
        now = status(*(random_region(rng, number) for number in range(rng.choice((2, 5, 300)))))
        watched = Watched()
        watched.look(now, NOW + look)
        lines = draw(now, watched, NOW + look, columns, 24)
        redraw.show(lines)
    shown = [line.rstrip() for line in screen_of(terminal.getvalue(), columns)]
    assert shown[:-1] == ["==> watch", *(line.rstrip() for line in lines)] and shown[-1] == ""
