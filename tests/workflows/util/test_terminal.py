import io
import sys

import pytest

from regiondag.util import terminal
from regiondag.util.terminal import print_long_table, print_table

HEADINGS = ["region", "status", "p@10", "trials"]
ROWS = [["Côte d'Ivoire", "done [red]", "0.5", "24/1/0"], ["日本", "waiting", "-", "0/0/0"]]
PAD = " " * 39  # a title is as wide as its table
FRAMED = f"""\
a study{PAD}
┏━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━┳━━━━━━━━┓
┃ region        ┃ status     ┃ p@10 ┃ trials ┃
┡━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━╇━━━━━━━━┩
│ Côte d'Ivoire │ done [red] │  0.5 │ 24/1/0 │
│ 日本          │ waiting    │    - │  0/0/0 │
└───────────────┴────────────┴──────┴────────┘
"""
LONG = """\
a study
region         status      p@10  trials
Côte d'Ivoire  done [red]  0.5   24/1/0
日本           waiting     -     0/0/0
"""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_table_has_a_frame(capsys):
    print_table("a study", HEADINGS, ROWS)
    assert capsys.readouterr().out == FRAMED


def test_a_table_without_rows(capsys):
    print_table("a study", ["a", "b"], [])
    assert capsys.readouterr().out == "a study  \n┏━━━┳━━━┓\n┃ a ┃ b ┃\n┡━━━╇━━━┩\n└───┴───┘\n"


def test_a_long_table_has_none(capsys, monkeypatch):
    monkeypatch.setattr(terminal, "MANY_ROWS", 1)
    print_long_table("a study", HEADINGS, ROWS)
    assert capsys.readouterr().out == LONG


def test_a_terminal_folds_what_is_wider(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")  # 80 wide, without colours
    monkeypatch.setattr("sys.stdout", Terminal())
    print_table("a study", ["region", "champion"], [["Germany", "x" * 100]])
    assert {len(line) for line in sys.stdout.getvalue().splitlines()} == {80}
    assert sys.stdout.getvalue().count("x") == 100


@pytest.mark.parametrize("variables", [{}, {"FORCE_COLOR": "1", "TERM": "dumb"}, {"COLUMNS": "40"}])
def test_what_no_terminal_shows_is_as_wide_as_it_is(capsys, monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    print_table("a study", ["region", "champion"], [["Germany", "hidden 64, " * 40]])
    assert "hidden 64, " * 40 in capsys.readouterr().out
