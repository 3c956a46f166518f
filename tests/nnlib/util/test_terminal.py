import io
import sys

from nnlib.epoch_log import Epoch
from nnlib.util import terminal
from nnlib.util.terminal import print_table, show_progress, show_training


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream):
    with show_training(3, "p@10", stream) as on:
        on.epoch(Epoch(1, 7.25, None, 0.5, 100))
        on.batch(2, 50, 100)
        on.epoch(Epoch(2, 6.5, 0.125, 0.25, 100))
    return stream.getvalue()


def test_one_plain_line_an_epoch_without_a_terminal():
    assert shown(io.StringIO()) == "epoch 1/3 loss 7.25 0.50 s 200/s\nepoch 2/3 loss 6.5 p@10 0.125 0.25 s 400/s\n"


def test_a_bar_on_a_terminal():
    text = shown(Terminal())
    assert "epoch 2/3 loss 6.5 p@10 0.125" in text
    assert "67%" in text


def test_long_epochs_say_where_they_are(monkeypatch):
    monkeypatch.setattr(terminal, "SECONDS_BETWEEN_LINES", 0)
    assert "epoch 2/3: 50 of 100 examples\n" in shown(io.StringIO())


def test_a_bar_of_anything_is_for_terminals(capsys, monkeypatch):
    with show_progress("drawing") as show:
        show(1, 2)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", Terminal())
    with show_progress("drawing") as show:
        show(1, 2)
    assert "drawing" in sys.stderr.getvalue() and "1/2" in sys.stderr.getvalue()


COLUMNS = ["metric", "model", "low"]
ROWS = [["p@10", "0.5", ""], ["loss [mean]", "7.25", "7.125"]]


def test_a_table_is_plain_text_without_a_terminal():
    stream = io.StringIO()
    print_table(COLUMNS, ROWS, stream)
    assert stream.getvalue() == (
        "metric       model    low\n"
        "p@10           0.5\n"
        "loss [mean]   7.25  7.125\n"
    )  # fmt: skip


def test_a_table_is_ruled_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")  # 80 wide, without colours
    stream = Terminal()
    print_table(COLUMNS, ROWS, stream)
    assert stream.getvalue() == (
        "                               \n"
        "  metric        model     low  \n"
        " ───────────────────────────── \n"
        "  p@10            0.5          \n"
        "  loss [mean]    7.25   7.125  \n"
        "                               \n"
    )
