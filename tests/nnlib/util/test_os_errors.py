import errno
import os
from pathlib import Path

import pytest

from nnlib.util.os_errors import describe, reason_of


def raised(action) -> OSError:
    with pytest.raises(OSError) as caught:
        action()
    return caught.value


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for name in ("germany.train.nc", "germany.valid.nc", "germany-2.nc", "network.json"):
        Path("data", name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("data/germany.nc", "; there is: data/germany.train.nc, data/germany.valid.nc"),
        ("data/netwrk.json", "; there is: data/network.json"),
        ("data/other", "; check the name, which was looked for in {here}"),
        ("{here}/data/other", "; check the name"),
        ("date/germany.nc", ": there is no folder date; check the name, or make the folder first"),
        ("no/way/x", ": there is no folder no; check the name, or make the folder first"),
    ],
)
def test_a_file_that_is_not_there(here, path, words):
    path = path.format(here=here)
    assert describe(raised(Path(path).read_bytes)) == f"{path}: No such file or directory{words.format(here=here)}"


def test_files_and_folders_in_the_place_of_one_another(here):
    assert describe(raised(Path("data").read_bytes)) == "data: Is a directory, legal: a file"
    said = describe(raised(Path("data/network.json/x").read_bytes))
    assert said == "data/network.json/x: Not a directory: data/network.json is a file; name one in a folder"


def test_a_link_to_nowhere_and_one_to_itself(here):
    Path("link").symlink_to("gone")
    assert describe(raised(Path("link").read_bytes)).endswith(
        ": it is a link to gone; name another file, or mend the link"
    )
    Path("ring").symlink_to("ring")
    assert describe(raised(Path("ring").read_bytes)).endswith("; name the file itself")


@pytest.mark.parametrize("name", ["x.nc", ".x.nc.123.part", ".x.nc.part"])
def test_what_may_not_be_written_names_the_folder_and_never_a_part(here, name):
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(here / "data" / name))
    folder = here / "data"
    owner = folder.owner()
    advice = "ask for access, or name one of yours"
    assert describe(error) == f"{folder}/x.nc: Permission denied: the folder {folder} is {owner}'s; {advice}"
    (folder / "x.nc").touch()
    assert f"x.nc: Permission denied: it is {owner}'s" in describe(error)


def test_a_full_disk_names_what_was_written_and_not_what_was_read():
    words = os.strerror(errno.ENOSPC)
    assert describe(OSError(errno.ENOSPC, words, "from", None, "to")) == f"to: {words}; make room and try again"
    assert describe(OSError(errno.ENOSPC, words, "from", None, "/.to.7.part/x")).startswith("/to/x: ")
    assert describe(OSError(errno.ENOSPC, words)) == f"{words}; make room and try again"


def test_texts_of_ours_and_of_others_stay():
    assert describe(OSError(errno.ENOENT, "gone for good", "x")) == "x: gone for good"
    assert describe(OSError(errno.EPIPE, os.strerror(errno.EPIPE))) == "Broken pipe"
    assert (describe(OSError("strange")), reason_of(OSError(0, "none", "x"))) == ("strange", "none")
    assert describe(OSError(errno.EBADF, os.strerror(errno.EBADF), 7)) == "Bad file descriptor"
