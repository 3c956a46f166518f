"""The journal of an upload: what it says after any tear, and that nothing in it can mislead the next run."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.bake.upload import journal
from regiondag.bake.upload.journal import Uploads, open_journal, parse, read_journal
from regiondag.errors import UsageError

HEX = st.text("0123456789abcdef", min_size=64, max_size=64)
IDS = st.integers(0, 2**64).map(lambda number: f"snap-{number:017x}")
BEGINS = st.fixed_dictionaries(
    {"event": st.just("begin"), "disk": HEX, "token": st.text(), "encryption": st.text(), "time": st.floats(0, 2e9)}
)
OTHERS = st.one_of(
    st.fixed_dictionaries({"event": st.just("snapshot"), "id": IDS, "time": st.floats(0, 2e9)}),
    st.fixed_dictionaries({"event": st.just("block"), "number": st.integers(0, 10**6), "sha256": HEX}),
    st.just({"event": "completing"}),
    st.fixed_dictionaries({"event": st.just("registered"), "image": st.just("ami-0123")}),
    st.fixed_dictionaries({"event": st.just("dropped"), "id": IDS}),
)
JOURNALS = st.builds(lambda first, rest: [first, *rest], BEGINS, st.lists(st.one_of(OTHERS, BEGINS), max_size=12))


def lines_of(records: list[dict]) -> list[bytes]:
    return [json.dumps(record).encode() + b"\n" for record in records]


def folded(records: list[dict]) -> Uploads:
    uploads = Uploads()
    for record in records:
        uploads.fold(record)
    return uploads


@given(JOURNALS, st.data())
def test_a_torn_journal_is_read_up_to_the_tear(records, data):
    lines = lines_of(records)
    whole = b"".join(lines)
    assert parse(whole) == (folded(records), len(whole))
    cut = data.draw(st.integers(0, len(whole)))
    complete = whole[:cut].count(b"\n")
    assert parse(whole[:cut]) == (folded(records[:complete]), sum(map(len, lines[:complete])))


@given(JOURNALS, st.binary(), JOURNALS)
def test_what_follows_damage_is_not_believed(records, rubbish, later):
    head = b"".join(lines_of(records))
    damaged = b"\xff" + rubbish.replace(b"\n", b"") + b"\n"
    assert parse(head + damaged + b"".join(lines_of(later))) == (folded(records), len(head))


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read(rubbish):
    _, good = parse(rubbish)
    assert 0 <= good <= len(rubbish)


BEGIN = {"event": "begin", "disk": "ab" * 32, "token": "t", "encryption": "", "time": 1.0}


@pytest.mark.parametrize(
    "record",
    [
        {"event": "block", "number": -1, "sha256": "ab" * 32},
        {"event": "block", "number": True, "sha256": "ab" * 32},
        {"event": "block", "number": 1.0, "sha256": "ab" * 32},
        {"event": "block", "number": 1, "sha256": "short"},
        {"event": "block", "number": 1, "sha256": "AB" * 32},
        {"event": "block", "number": 1},
        {"event": "snapshot", "id": "vol-1", "time": 1},
        {"event": "snapshot", "id": "snap-1\n", "time": 1},
        {"event": "snapshot", "id": "snap-1"},
        {"event": "else"},
        {"no": "event"},
        ["block"],
        None,
        7,
    ],
)
def test_lines_that_are_none_of_a_journal(record):
    good = lines_of([BEGIN])[0]
    assert parse(good + json.dumps(record).encode() + b"\n") == (folded([BEGIN]), len(good))


def test_a_block_before_any_attempt_is_nothing():
    line = lines_of([{"event": "block", "number": 1, "sha256": "ab" * 32}])[0]
    assert parse(line) == (Uploads(), 0)


def test_the_next_line_replaces_a_torn_one(tmp_path):
    path = tmp_path / "ami" / "eu-central-1.jsonl"
    with open_journal(path) as journal:
        journal.append("begin", disk="ab" * 32, token="one", encryption="")  # noqa: S106
        journal.append("snapshot", id="snap-01")
        journal.append("block", number=3, sha256="cd" * 32)
    with path.open("ab") as file:
        file.write(b'{"event": "block", "numb')
    with open_journal(path) as journal:
        assert journal.uploads.attempt
        assert journal.uploads.attempt.blocks == {3: "cd" * 32}
        journal.append("block", number=4, sha256="ef" * 32)
    attempt = read_journal(path).attempt
    assert attempt
    assert attempt.blocks == {3: "cd" * 32, 4: "ef" * 32}
    assert attempt.snapshot == "snap-01"


def test_snapshots_without_an_ami_are_left_over():
    snapshot = {"event": "snapshot", "id": "snap-01", "time": 1.0}
    assert folded([BEGIN, snapshot, BEGIN]).leftovers == ["snap-01"]
    assert folded([BEGIN, snapshot, {"event": "registered", "image": "ami-1"}, BEGIN]).leftovers == []
    assert folded([BEGIN, snapshot, BEGIN, {"event": "dropped", "id": "snap-01"}]).leftovers == []


def test_reading_needs_no_journal_and_makes_none(tmp_path):
    assert read_journal(tmp_path / "none.jsonl") == Uploads()
    assert list(tmp_path.iterdir()) == []


def test_only_one_process_has_it_open(tmp_path):
    path = tmp_path / "eu-central-1.jsonl"
    with open_journal(path), pytest.raises(UsageError, match="another process uploads"), open_journal(path):
        pass
    with open_journal(path):
        pass


def test_a_new_journals_name_is_on_disk_before_anything_is_uploaded(tmp_path, monkeypatch):
    folders = []
    monkeypatch.setattr(journal, "sync", folders.append)
    for _ in range(2):
        with open_journal(tmp_path / "a" / "region.json") as opened:
            opened.append("begin", disk="ab" * 32, token="one", encryption="")  # noqa: S106
    assert folders == [tmp_path / "a"]
