"""An index of a journal: with it, without it and with one of another journal the values are the same."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.contract import Metric
from regiondag.node import journal_index
from regiondag.node.journal_index import read_indexed, renew_index
from regiondag.run.journal import Journal
from regiondag.run.layout import RegionFolder
from regiondag.run.values import Values, read_values
from tests.workflows.run.test_observations import EVENTS


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    monkeypatch.setattr(journal_index, "RENEWED", 1)


@pytest.fixture
def folder(tmp_path):
    return RegionFolder(tmp_path)


def what_they_say(values: Values) -> tuple[object, ...]:
    points = {trial: values.point(trial) for trial in values.places}
    return points, values.told, values.open, values.lines, values.last, values.folded


def read(folder: RegionFolder) -> Values:
    return read_values(Journal(folder.journal))


def settle(folder: RegionFolder, *trials: int) -> None:
    for trial in trials:
        Journal(folder.journal).append("proposed", trial=trial, point={"x": trial})
        Journal(folder.journal).append("settled", trial=trial, status="ok", reason="", value=trial / 8)


@given(events=st.lists(EVENTS, max_size=30), first=st.integers(0, 30), second=st.integers(0, 30))
def test_what_an_index_and_the_lines_after_it_say_the_journal_says(tmp_path_factory, events, first, second):
    folder = RegionFolder(tmp_path_factory.mktemp("region"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_index, "RENEWED", 1)
        done = 0
        for end in sorted([first, second]):
            Journal(folder.journal).append_all(events[done:end])
            renew_index(folder, Metric())
            done = end
        Journal(folder.journal).append_all(events[done:])
        assert what_they_say(read_indexed(folder)) == what_they_say(read(folder))


def test_a_journal_that_is_not_there_has_no_index(folder):
    renew_index(folder, Metric())
    assert not folder.journal_index.exists() and read_indexed(folder).places == {}


def test_an_index_is_made_anew_when_much_was_appended(folder, monkeypatch):
    settle(folder, 0, 1)
    renew_index(folder, Metric())
    known = folder.journal_index.read_bytes()
    before = folder.journal.stat().st_size
    settle(folder, 2)
    appended = folder.journal.stat().st_size - before
    monkeypatch.setattr(journal_index, "RENEWED", appended + 1)
    renew_index(folder, Metric())
    assert folder.journal_index.read_bytes() == known
    monkeypatch.setattr(journal_index, "RENEWED", appended)
    renew_index(folder, Metric())
    assert json.loads(folder.journal_index.read_text())["lines"] == 6


def test_lines_before_the_index_are_not_looked_at_again(folder):
    settle(folder, 0, 1)
    renew_index(folder, Metric())
    first, rest = folder.journal.read_bytes().split(b"\n", 1)
    with folder.journal.open("r+b") as file:  # the same file, as long as before
        file.write(b"x" * len(first) + b"\n" + rest)
    settle(folder, 2)
    assert set(read_indexed(folder).told) == {0, 1, 2} and read_indexed(folder).point(0) == {"x": 0}


@pytest.mark.parametrize("change", ["shorter", "another file", "other lines", "torn", "no index", "odd"])
def test_an_index_of_another_journal_counts_as_none(folder, change):
    settle(folder, 0, 1, 2)
    renew_index(folder, Metric())
    lines = folder.journal.read_bytes().splitlines(keepends=True)
    if change == "shorter":
        with folder.journal.open("r+b") as file:
            file.truncate(len(b"".join(lines[:4])))
    elif change == "another file":
        folder.journal.rename(folder.path / "old")
        folder.journal.write_bytes(b"".join(lines).replace(b"0.25", b"0.75"))
    elif change == "other lines":
        with folder.journal.open("r+b") as file:
            file.write(b"".join(lines[2:] + lines[:2]))
    elif change == "torn":
        folder.journal_index.write_bytes(folder.journal_index.read_bytes()[:-20])
    else:
        folder.journal_index.write_text({"no index": "3", "odd": '{"told": [[1], []]}'}[change])
    assert what_they_say(read_indexed(folder)) == what_they_say(read(folder))


def test_an_index_that_is_of_no_use_is_made_anew(folder):
    settle(folder, 0, 1, 2)
    folder.journal_index.write_text("{")
    renew_index(folder, Metric())
    assert json.loads(folder.journal_index.read_text())["folded"] == folder.journal.stat().st_size
