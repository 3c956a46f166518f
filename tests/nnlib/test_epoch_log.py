"""The log of a training: what was written is read, whatever a kill has left behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.epoch_log import Epoch, open_epoch_log, read_epochs

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
EPOCHS = st.lists(st.tuples(NUMBERS, st.none() | NUMBERS, NUMBERS, st.integers(0, 10**9)), max_size=6).map(
    lambda found: tuple(Epoch(number, *rest) for number, rest in enumerate(found, start=1))
)


def written(path: Path, epochs: tuple[Epoch, ...]) -> Path:
    path.touch()
    with open_epoch_log(path) as add:
        for epoch in epochs:
            add(epoch)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


@given(EPOCHS)
def test_what_was_written_is_read(folder, epochs):
    path = folder / "whole"
    path.unlink(missing_ok=True)
    assert read_epochs(written(path, epochs)) == epochs


@given(EPOCHS, st.data())
def test_a_torn_log_tells_of_its_whole_lines(folder, epochs, data):
    path = folder / "torn"
    path.unlink(missing_ok=True)
    whole = written(path, epochs).read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    assert read_epochs(path) == epochs[: whole[:cut].count(b"\n")]


@given(EPOCHS, st.binary(max_size=200))
def test_nothing_after_it_breaks_the_reader(folder, epochs, noise):
    path = folder / "noise"
    path.unlink(missing_ok=True)
    whole = written(path, epochs).read_bytes()
    path.write_bytes(whole + noise)
    assert read_epochs(path)[: len(epochs)] == epochs


@pytest.mark.parametrize(
    "line",
    [
        '{"epoch": 3, "loss": 1, "value": null, "seconds": 1, "examples": 1}',  # the second one is missing
        '{"epoch": 2, "loss": "x", "value": null, "seconds": 1, "examples": 1}',
        '{"epoch": 2, "loss": 1}',
        "[2]",
        "2",
        "[" * 100_000,
    ],
)
def test_it_ends_before_what_is_no_next_epoch(tmp_path, line):
    path = written(tmp_path / "log.jsonl", (Epoch(1, 0.5, None, 0.1, 10),))
    path.write_text(path.read_text() + line + "\n")
    assert read_epochs(path) == (Epoch(1, 0.5, None, 0.1, 10),)


def test_without_a_log_there_are_no_epochs(tmp_path):
    assert read_epochs(tmp_path / "log.jsonl") == ()


def test_the_epochs_before_are_kept_and_later_ones_replaced(tmp_path):
    first = tuple(Epoch(number, 1 / number, None, 0.1, 10) for number in (1, 2, 3))
    path = written(tmp_path / "log.jsonl", first)
    written(path, (Epoch(3, 0.25, None, 0.1, 10),))
    assert read_epochs(path) == (*first[:2], Epoch(3, 0.25, None, 0.1, 10))


def test_an_attempt_that_ends_before_its_first_epoch_leaves_the_log_alone(tmp_path):
    path = written(tmp_path / "log.jsonl", (Epoch(1, 0.5, None, 0.1, 10),))
    before = path.read_bytes()
    with open_epoch_log(path):
        pass
    assert path.read_bytes() == before
