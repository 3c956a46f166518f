"""Lines that are drawn in the place of those before, on a terminal that is played."""

from __future__ import annotations

import io

import pytest

from regiondag.util.redraw import Redraw, can_redraw, height_of


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
