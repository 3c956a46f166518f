import io

from nnlib.progress import reporter
from nnlib.train import Epoch


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream):
    with reporter(3, "p@10", stream) as report:
        report(Epoch(1, 7.25, None, 0.5))
        report(Epoch(2, 6.5, 0.125, 0.25))
    return stream.getvalue()


def test_one_plain_line_an_epoch_without_a_terminal():
    assert shown(io.StringIO()) == "epoch 1/3 loss 7.25 0.50 s\nepoch 2/3 loss 6.5 p@10 0.125 0.25 s\n"


def test_a_bar_on_a_terminal():
    text = shown(Terminal())
    assert "epoch 2/3 loss 6.5 p@10 0.125" in text
    assert "2/3" in text
