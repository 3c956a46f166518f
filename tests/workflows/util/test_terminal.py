import io
import re
import sys

import pytest

from nnlib.util.columns import Narrow, fit_columns
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


WIDE = ["region", "progress", "done", "failed", "best ndcg@20", "note"]
CELLS = [
    ["Germany", "#" * 20, "12/17", "0", "0.147 ± .012 (1,119)", "some words of text"],
    ["Côte d'Ivoire", "", "by all", "0", "-", ""],
]
NARROW = Narrow(drop=("progress", "failed"), fold={"note": 8, "region": 6})


def widths(room, narrow=NARROW, framed=True):
    return fit_columns(WIDE, list(zip(*CELLS, strict=True)), narrow, room, framed)


def test_a_table_that_has_room_is_as_wide_as_it_is():
    assert widths(500) == {0: 13, 1: 20, 2: 6, 3: 6, 4: 20, 5: 18}
    assert widths(102) == widths(500)  # 83 characters, 6 * 3 + 1 of the frame


def test_text_is_folded_first_then_columns_go_in_their_order():
    assert list(widths(101)) == [0, 1, 2, 3, 4, 5]
    assert sum(widths(101).values()) == 82
    assert list(widths(80)) == [0, 2, 3, 4, 5] and list(widths(60)) == [0, 2, 4, 5]
    assert widths(53) == {0: 6, 2: 6, 4: 20, 5: 8}
    assert widths(52) == {}  # no figure is cut


def test_headings_are_folded_between_words_in_a_frame_alone():
    heads, cells = ["recent popularity"], [["0.102"]]
    assert fit_columns(heads, cells, Narrow(), 14) == {0: 10}
    assert fit_columns(heads, cells, Narrow(), 17, framed=False) == {0: 17}
    assert fit_columns(heads, cells, Narrow(), 16, framed=False) == {}
    assert fit_columns(heads, cells, Narrow(), 5, framed=False, headed=False) == {0: 5}


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 160])
def test_figures_stay_whole_on_any_terminal(monkeypatch, columns):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout", Terminal())
    print_table("a study", WIDE, CELLS, NARROW)
    text = re.sub(r"\x1b\[[0-9;]*m", "", sys.stdout.getvalue())
    assert "0.147 ± .012 (1,119)" in text
    assert max(map(len, text.splitlines())) <= columns
    assert ("no room for: progress" in text) == (53 <= columns < 85)


def test_rows_stand_below_each_other_where_there_is_no_room_for_a_table(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout", Terminal())
    print_table("a study", WIDE, CELLS, NARROW)
    assert sys.stdout.getvalue().splitlines() == [
        "a study",
        "Germany",
        "  progress: ####################",
        "  done: 12/17",
        "  failed: 0",
        "  best ndcg@20: 0.147 ± .012 (1,119)",
        "  note: some words of text",
        "Côte d'Ivoire",
        "  done: by all",
        "  failed: 0",
    ]


def test_a_table_that_says_nothing_of_it_folds_text_alone(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setattr("sys.stdout", Terminal())
    rows = [["n1", "some words that go on and on for longer", "0.123456789 to 0.987654321"]]
    print_table("figures", ["node", "why", "interval"], rows)
    text = sys.stdout.getvalue()
    assert "0.123456789 to 0.987654321" in text and max(map(len, text.splitlines())) <= 50


def test_a_long_table_cuts_text_and_no_figure(monkeypatch):
    monkeypatch.setenv("COLUMNS", "46")
    monkeypatch.setattr(terminal, "MANY_ROWS", 1)
    monkeypatch.setattr("sys.stdout", Terminal())
    print_long_table("a study", WIDE, CELLS, NARROW)
    assert sys.stdout.getvalue().splitlines()[1:] == [
        "region  done    best ndcg@20          note",
        "Germa…  12/17   0.147 ± .012 (1,119)  some wo…",
        "Côte …  by all  -",
        "no room for: progress, failed",
    ]
