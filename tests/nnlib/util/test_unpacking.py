"""Archives of others are unpacked below one folder alone, whatever is in them."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlib.util.packed import PackedError, list_files
from nnlib.util.unpacking import Kind, list_entries, unpack_tree

# (name, type of tar, target, contents)
Member = tuple[str, bytes, str, str]


def tar(path: Path, *members: Member, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tape:  # type: ignore[call-overload]
        for name, kind, target, text in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size, info.mode = kind, target, len(text), 0o4755
            tape.addfile(info, io.BytesIO(text.encode()))
    return path


def file(name: str, text: str = "x") -> Member:
    return (name, tarfile.REGTYPE, "", text)


def link(name: str, target: str) -> Member:
    return (name, tarfile.SYMTYPE, target, "")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_files_folders_and_links_are_as_they_were(tmp_path, mode):
    members = (
        ("./", tarfile.DIRTYPE, "", ""),
        ("./bin", tarfile.DIRTYPE, "", ""),
        file("./bin/python3.13", "#!"),
        link("./bin/python", "python3.13"),
        ("./bin/same", tarfile.LNKTYPE, "./bin/python3.13", ""),
        link("./lib64", "lib"),
        file("./lib/a.py"),
    )
    archive = tar(tmp_path / "a", *members, mode=mode)
    assert unpack_tree(archive, tmp_path / "out") == {}
    out = tmp_path / "out"
    assert (out / "bin/python").readlink() == Path("python3.13")
    assert (out / "lib64/a.py").read_text() == "x"
    assert (out / "bin/same").samefile(out / "bin/python3.13")
    assert stat.S_IMODE((out / "bin/python3.13").stat().st_mode) == 0o755, "no more than that it runs"


def test_zip_has_links_too(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr("bin/", "")
        packed.writestr("bin/python3", "#!")
        info = zipfile.ZipInfo("bin/python")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(info, "python3")
    assert unpack_tree(tmp_path / "a.zip", tmp_path / "out") == {}
    assert (tmp_path / "out/bin/python").readlink() == Path("python3")
    kinds = [entry.kind for entry in list_entries(tmp_path / "a.zip")]
    assert kinds == [Kind.FOLDER, Kind.FILE, Kind.LINK]


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ((file("../evil"),), "leads out"),
        ((file("/evil"),), "leads out"),
        ((file("a/../../evil"),), "leads out"),
        ((("null", tarfile.CHRTYPE, "", ""),), "a device or a pipe"),
        ((("pipe", tarfile.FIFOTYPE, "", ""),), "a device or a pipe"),
        ((("same", tarfile.LNKTYPE, "../../etc/passwd", ""),), "leads out"),
        ((("same", tarfile.LNKTYPE, "missing", ""),), "does not come before it"),
        ((link("a", ".."), file("a/evil")), "is there twice"),
        ((link("a", ".."), link("a/evil", "x")), "below a link that leads out"),
        ((file("a"), file("a/b")), "is there twice"),
        ((file("a/b"), file("a")), "is there twice"),
    ],
)
def test_what_is_no_file_below_the_folder_is_refused(tmp_path, members, said):
    (tmp_path / "in").mkdir()
    with pytest.raises(PackedError, match=said):
        unpack_tree(tar(tmp_path / "a.tar.gz", *members), tmp_path / "in" / "out")
    assert list((tmp_path / "in").iterdir()) == [tmp_path / "in" / "out"]
    assert not (tmp_path / "evil").exists()


def test_links_that_lead_out_are_told_and_not_there(tmp_path):
    # The second is inside by its letters, and out by the first one.
    members = (link("deep/er", ".."), link("deep/er/up", "../x"), link("etc", "/etc"), link("bin/python", "/usr/bin/p"))
    archive = tar(tmp_path / "a.tar.gz", *members, link("dangling", "nowhere"))
    outside = unpack_tree(archive, tmp_path / "out")
    assert outside == {"deep/er/up": "../x", "etc": "/etc", "bin/python": "/usr/bin/p"}
    assert os.path.lexists(tmp_path / "out/dangling") and not os.path.lexists(tmp_path / "out/etc")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_damage_is_said(tmp_path, mode):
    archive = tar(tmp_path / "a", file("a", "x" * 100_000), mode=mode)
    for cut in (0, 10, archive.stat().st_size // 2):
        (tmp_path / "b").write_bytes(archive.read_bytes()[:cut])
        with pytest.raises(PackedError):
            unpack_tree(tmp_path / "b", tmp_path / f"out{cut}")


def test_zstandard_is_named_where_it_cannot_be_read(tmp_path):
    (tmp_path / "a").write_bytes(b"\x28\xb5\x2f\xfd" + b"\0" * 100)
    with pytest.raises(PackedError, match="zstd"):
        unpack_tree(tmp_path / "a", tmp_path / "out")


def test_who_looks_can_stop_it(tmp_path):
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpack_tree(tar(tmp_path / "a", file("a")), tmp_path / "out", stop)


NAMES = st.lists(st.sampled_from(["a", "b", "..", "c"]), min_size=1, max_size=4).map("/".join)
MEMBERS = st.one_of(
    NAMES.map(file),
    st.tuples(NAMES, NAMES).map(lambda two: link(*two)),
    st.tuples(NAMES, NAMES).map(lambda two: (two[0], tarfile.LNKTYPE, two[1], "")),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(MEMBERS, max_size=8))
def test_nothing_is_ever_written_outside(members):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "in")
        out = folder / "deep" / "out"
        out.mkdir(parents=True)
        archive = tar(Path(name, "a.tar"), *members, mode="w")
        try:
            unpack_tree(archive, out)
        except PackedError:
            pass
        else:
            for path in out.rglob("*"):
                assert Path(os.path.realpath(path)).is_relative_to(os.path.realpath(out))
        assert list(folder.iterdir()) == [folder / "deep"]
        assert list((folder / "deep").iterdir()) == [out]
        assert all(path.is_relative_to(out) for path in list_files(folder).values())
