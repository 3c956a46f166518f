"""What manager.log says of records: of plain files alone, whoever wrote them."""

from __future__ import annotations

import hashlib
import os

import pytest

from nnlib.contract import LONGEST_RESULT
from regiondag.node.journal_mark import mark
from regiondag.run.layout import NodeName, RunFolder

NODE = NodeName("germany", 1)


@pytest.fixture
def folder(tmp_path):
    found = RunFolder(tmp_path).region("germany")
    found.trial(NODE).mkdir(parents=True)
    found.journal.write_bytes(b"{}\n")
    return found


def test_a_result_has_its_digest_beside_the_journals(folder):
    (folder.trial(NODE) / "result.json").write_bytes(b"done")
    said = mark(folder, "post", NODE)
    assert said.startswith(f"; result.json {hashlib.sha256(b'done').hexdigest()[:16]}; journal ")


def test_what_came_after_the_end_was_settled_is_not_waited_for(folder, tmp_path):
    result = folder.trial(NODE) / "result.json"
    os.mkfifo(result)
    assert mark(folder, "post", NODE).startswith("; journal ")
    result.unlink()
    (tmp_path / "secret").write_text("secret")
    result.symlink_to(tmp_path / "secret")
    assert mark(folder, "post", NODE).startswith("; journal ")
    result.unlink()
    with result.open("wb") as file:
        file.truncate(LONGEST_RESULT + 1)
    assert mark(folder, "post", NODE).startswith("; journal ")
