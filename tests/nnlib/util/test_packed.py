from __future__ import annotations

import hashlib
import os
import stat
import zipfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nnlib.util.packed import PackedError, differing_files, list_files, pack, read_comment, unpack

NAMES = st.lists(st.from_regex(r"[a-z]{1,3}(/[a-z]{1,3}){0,2}\.x", fullmatch=True), unique=True, max_size=6)


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@given(NAMES, st.binary(max_size=50), st.text(max_size=9))
def test_what_is_packed_comes_out(tmp_path_factory, names, content, comment):
    folder = tmp_path_factory.mktemp("packed")
    files = {name: content + name.encode() for name in names}
    pack(list_files(write(folder / "a", files) if files else folder / "none"), folder / "a.zip", comment)
    unpack(folder / "a.zip", folder / "b")
    assert {name: path.read_bytes() for name, path in list_files(folder / "b").items()} == files
    assert read_comment(folder / "a.zip") == comment


def test_the_same_files_give_the_same_bytes_whenever_they_were_written(tmp_path):
    for name, age in (("a", 0), ("b", 10**9)):
        file = write(tmp_path / name, {"x/y.py": b"1", "z": b"2"}) / "z"
        os.utime(file, (age, age))
        pack(list_files(tmp_path / name), tmp_path / f"{name}.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert hashlib.sha256((tmp_path / "a.zip").read_bytes()).hexdigest().startswith("aa4e21")


def test_a_program_can_still_be_run_and_nothing_else_is_kept_of_its_mode(tmp_path):
    script = write(tmp_path / "a", {"run.sh": b"#!/bin/sh\n", "data": b""}) / "run.sh"
    script.chmod(0o4777)
    pack(list_files(tmp_path / "a"), tmp_path / "a.zip")
    unpack(tmp_path / "a.zip", tmp_path / "b")
    assert [stat.S_IMODE((tmp_path / "b" / name).stat().st_mode) for name in ("run.sh", "data")] == [0o755, 0o644]


def test_links_are_passed_over(tmp_path):
    folder = write(tmp_path / "a", {"here": b"1"})
    (folder / "secret").symlink_to("/etc/passwd")
    (folder / "loop").symlink_to(folder)
    assert list(list_files(folder)) == ["here"]


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out", "a/"])
def test_names_that_lead_out_are_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), b"")
    with pytest.raises(PackedError, match="is no file below it"):
        unpack(tmp_path / "a.zip", tmp_path / "in" / "b")
    assert not (tmp_path / "in" / "out").exists() and not Path("/etc/out").exists()


def test_a_link_in_an_archive_is_refused(tmp_path):
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(PackedError, match="is no file below it"):
        unpack(tmp_path / "a.zip", tmp_path / "b")


@given(st.integers(0, 400), st.integers(1, 255))
@example(184, 1)
def test_a_damaged_archive_is_told_of_or_gives_what_it_held(tmp_path_factory, place, flip):
    folder = tmp_path_factory.mktemp("damaged")
    pack({"a": b"some content", "b": b""}, folder / "a.zip")
    raw = bytearray((folder / "a.zip").read_bytes())
    raw[place % len(raw)] ^= flip
    (folder / "a.zip").write_bytes(raw)
    try:
        unpack(folder / "a.zip", folder / "b")
    except PackedError:
        return
    assert {path.read_bytes() for path in list_files(folder / "b").values()} <= {b"some content", b""}


def test_archives_say_in_which_files_they_differ(tmp_path):
    pack({"same": b"1", "other": b"2", "gone": b"3"}, tmp_path / "a.zip")
    pack({"same": b"1", "other": b"9", "new": b"3"}, tmp_path / "b.zip")
    assert differing_files(tmp_path / "a.zip", tmp_path / "b.zip") == ["gone", "new", "other"]
