"""Files of programs that this machine fetches itself."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from nnlib.worker.downloads import Download
from regiondag.errors import RegiondagError
from regiondag.study.program import Program
from regiondag.trainers.archive import digest_of, write_program
from regiondag.trainers.fetch import downloads_of, fetch_all
from tests.support.web_files import serving


def download(url: str, content: bytes = b"1\n") -> Download:
    return Download(url, "data.csv", sha256(content).hexdigest())


def test_over_http_and_from_a_folder_of_this_machine(tmp_path):
    (tmp_path / "a b.csv").write_bytes(b"1\n")
    with serving(tmp_path) as web:
        found = fetch_all(
            [download(f"{web}/a%20b.csv?download=1"), download(f"file://{tmp_path}/a%20b.csv")], tmp_path / "out"
        )
    assert [path.name for path in found] == ["a%20b.csv"] * 2 and found[0].read_bytes() == b"1\n"


def test_what_is_not_to_be_had_is_said(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"2\n")
    with serving(tmp_path) as web:
        with pytest.raises(RegiondagError, match=r"its SHA-256 is 53c234e5.*, study.yaml says 4355a46b.*say its own"):
            fetch_all([download(f"{web}/a.csv")], tmp_path / "out")
        with pytest.raises(RegiondagError, match="could not be fetched: HTTP Error 404"):
            fetch_all([download(f"{web}/none.csv")], tmp_path / "out")
    with pytest.raises(RegiondagError, match="could not be fetched"):
        fetch_all([download("file:///nowhere/a.csv")], tmp_path / "out")
    with pytest.raises(RegiondagError, match=r"only HTCondor's plugins fetch osdf://.*list a copy of data.csv"):
        fetch_all([download("osdf:///ospool/a.csv")], tmp_path / "out")


def test_an_archive_knows_what_its_jobs_get_and_is_another_one_where_that_changes(tmp_path):
    one = download("https://host/a.csv")
    program = Program(("python", "x.py"), downloads=(one,))
    write_program(program, tmp_path / "program.zip")
    assert downloads_of(tmp_path / "program.zip") == (one,)
    assert digest_of(program) != digest_of(Program(program.command, downloads=(download(one.url, b"new"),)))
    write_program(Program(program.command), tmp_path / "program.zip")
    assert downloads_of(tmp_path / "program.zip") == ()
    assert downloads_of(Path(__file__)) == () == downloads_of(tmp_path / "none")
