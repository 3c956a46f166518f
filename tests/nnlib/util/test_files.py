"""Files and folders that are whole or not there, and locks."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.contract import sha256_of
from nnlib.util import files
from nnlib.util.files import end_of_last_line, locked, read_last_lines, replace_folder, write_atomically, write_once
from tests.nnlib.util.steps import NEW, OLD, WAYS, at_step

ROOT = Path(__file__).parents[3]
STEPS = {"write": 6, "copy": 6, "replace": 5, "write once": 6, "appear": 12}  # those that can fail, of each way


@pytest.fixture
def path(tmp_path):
    (tmp_path / "source").write_text(NEW)
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "file"


def before(path: Path, way: str) -> str | None:
    """Write what a way finds in its place, and return it."""
    if way in ("write once", "appear"):
        return None
    path.write_text(OLD)
    return OLD


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(path: Path) -> str | None:
    """Return what is in a file, or in a folder that `appear` made; None where nothing is."""
    if path.is_dir():
        assert [one.relative_to(path).as_posix() for one in sorted(path.rglob("*"))] == ["inner", "inner/a"]
        return (path / "inner" / "a").read_text()
    return path.read_text() if path.exists() else None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("way", WAYS)
def test_whichever_step_fails_the_old_is_whole_or_the_new(path, way, number):
    def fail() -> None:
        raise OSError(number, os.strerror(number))

    for step in itertools.count():
        old = before(path, way)
        with at_step(step, fail) as seen:
            try:
                WAYS[way](path)
                break
            except OSError as error:
                assert error.errno == number
                assert way == "appear" or error.filename == str(path)  # not its part
        done = {"replace", "link"} & set(seen[:step])  # then what failed is that the folder was flushed
        assert content(path) == (NEW if done else old), seen
        assert names(path.parent) == [path.name] * path.exists(), seen  # no litter
        shutil.rmtree(path.parent)
        path.parent.mkdir()
    assert content(path) == NEW and step == STEPS[way], seen
    assert names(path.parent) == [path.name]


@pytest.mark.parametrize("way", ["write", "write once", "appear"])
def test_killed_before_any_step_the_old_is_whole_or_the_new(path, way):
    program = [sys.executable, "-m", "tests.nnlib.util.steps", way]
    for step in range(STEPS[way] + 1):
        old = before(path, way)
        ended = subprocess.run([*program, str(step), path], cwd=ROOT, check=False)
        assert ended.returncode == (0 if step == STEPS[way] else -signal.SIGKILL)
        assert content(path) in (old, NEW)
        parts = [name for name in names(path.parent) if name != path.name]
        assert all(re.fullmatch(r"\.file\.[0-9]+\.part", name) for name in parts)
        if way != "appear" or not path.exists():
            WAYS[way](path)
        assert content(path) == NEW  # a part that is left is in nobody's way
        shutil.rmtree(path.parent)
        path.parent.mkdir()


BIGGER_THAN_ALLOWED = """
import resource, sys
from pathlib import Path
from nnlib.util.files import write_atomically
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write_atomically(Path(sys.argv[1]), b"new" * 4096)
except OSError as error:
    print(error.errno, error.filename)
"""


def test_a_file_that_the_system_lets_grow_no_further(path):
    path.write_text(OLD)
    done = subprocess.run([sys.executable, "-c", BIGGER_THAN_ALLOWED, path], capture_output=True, text=True, check=True)
    assert done.stdout == f"{errno.EFBIG} {path}\n"
    assert path.read_text() == OLD and names(path.parent) == ["file"]


ON_A_FULL_DISK = """
import os, sys
from pathlib import Path
from nnlib.util.files import appearing, write_atomically
path = Path(sys.argv[1], "file")
write_atomically(path, "old")
for attempt in ("file", "folder"):
    try:
        if attempt == "file":
            write_atomically(path, b"new" * 65536)
        else:
            with appearing(path.with_name("folder")) as part:
                (part / "a").write_bytes(b"new" * 65536)
    except OSError as error:
        print(error.errno)
    print(path.read_text(), os.listdir(path.parent))
"""


def test_a_disk_that_is_full(tmp_path):
    if not shutil.which("unshare"):
        pytest.skip("there is no unshare")
    mount = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    words = 'mount -t tmpfs -o size=64k none "$0" && exec "$@"'
    if subprocess.run([*mount, words, tmp_path, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no file system may be mounted here")
    program = [sys.executable, "-c", ON_A_FULL_DISK, tmp_path]
    done = subprocess.run([*mount, words, tmp_path, *program], capture_output=True, text=True, check=True)
    assert done.stdout == f"{errno.ENOSPC}\nold ['file']\n" * 2


def test_files_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.json"
    write_atomically(path, "é\n")
    assert path.read_bytes() == "é\n".encode()
    assert sha256_of(path) == hashlib.sha256("é\n".encode()).hexdigest()
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \ud800")
    assert path.read_text(encoding="utf-8") == "é\n"
    assert list(tmp_path.iterdir()) == [path]  # nothing is left beside it
    nowhere = tmp_path / "none" / "b.json"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(nowhere, "x")
    assert caught.value.filename == str(nowhere)  # the file that was meant, not the part that is written first


def test_new_bytes_are_on_disk_before_they_take_the_place_of_the_old(tmp_path, monkeypatch):
    path, seen = tmp_path / "a", []
    path.write_text("old")

    def fsync(number):
        whole = [one.read_text() for one in tmp_path.iterdir() if one != path]
        flushed = os.fstat(number)
        seen.append((path.read_text(), whole, "folder" if stat.S_ISDIR(flushed.st_mode) else flushed.st_size))

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(path, "newer")
    assert seen == [("old", ["newer"], 5), ("newer", [], "folder")]
    assert path.read_text() == "newer"


def test_the_first_one_to_write_a_file_once_wins(tmp_path):
    path = tmp_path / "a"
    write_once(path, "first")
    write_once(path, "second")
    assert path.read_text() == "first" and names(tmp_path) == ["a"]


def test_a_pipe_is_written_into_and_a_link_is_not_followed(tmp_path):
    pipe, link, target = (tmp_path / name for name in ("pipe", "link", "target"))
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        write_atomically(pipe, "text")
        assert reader.communicate()[0] == b"text" and pipe.is_fifo()
    target.write_text("others'")
    link.symlink_to(target)
    write_atomically(link, "text")
    assert (link.is_symlink(), link.read_text(), target.read_text()) == (False, "text", "others'")


def test_a_folder_takes_the_place_of_another(tmp_path):
    path, new, aside = (tmp_path / name for name in ("path", "new", "aside"))
    for text in ("first", "second"):
        new.mkdir()
        (new / "a").write_text(text)
        replace_folder(path, new, aside)
        assert (path / "a").read_text() == text and not new.exists()
    assert (aside / "a").read_text() == "first"


HOLD = """
import sys
from pathlib import Path
from nnlib.util.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read(1)
    with open(sys.argv[1] + ".order", "a") as file:
        file.write(sys.argv[2])
"""


def holder(path: Path, name: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", HOLD, str(path), name]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_lock_is_held_by_one_process_at_a_time(tmp_path):
    path = tmp_path / "lock"
    with holder(path, "a") as first:
        assert first.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError), locked(path, wait=False):
            pass
        with holder(path, "b") as second:
            second.stdin.write("b")  # goes on as soon as it has the lock
            second.stdin.flush()
            time.sleep(0.5)
            assert not path.with_name("lock.order").exists() and second.poll() is None
            first.communicate("a")
            assert second.communicate()[0] == "held\n"
    assert path.with_name("lock.order").read_text() == "ab"
    with locked(path, wait=False):
        pass


def test_a_lock_goes_with_the_process_that_holds_it(tmp_path):
    path = tmp_path / "lock"
    with holder(path, "a") as process:
        assert process.stdout.readline() == "held\n"
        process.kill()
        process.communicate()
    with locked(path, wait=False):
        assert path.exists()


def test_the_end_of_the_last_line_is_found_however_long_lines_are(tmp_path):
    path = tmp_path / "j"
    for text in (b"", b"\n", b"abc", b"abc\n", b"a\n\nbcdefgh", b"\nabcdefghijk", b"abcd\nefgh\nijk", b"12345678\n"):
        path.write_bytes(text)
        for block in (1, 2, 3, 4, 5, 100):
            assert end_of_last_line(path, block) == len(text) - len(text.rpartition(b"\n")[2])


def test_all_of_a_folder_is_flushed_a_few_at_a_time(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(files, "sync", flushed.append)
    monkeypatch.setattr(files, "SYNCS", 2)
    with files.appearing(tmp_path / "new") as part:
        for region in range(20):
            (part / f"{region}" / "trials").mkdir(parents=True)
            (part / f"{region}" / "data.nc").write_text("x")
            (part / f"{region}" / "link").symlink_to("data.nc")
            (part / f"{region}" / "trials" / "link").symlink_to("..")
    names = {str(path.relative_to(part)) for path in flushed[:-1]}
    expected = {f"{region}{more}" for region in range(20) for more in ("", "/trials", "/data.nc")}
    assert names == {".", *expected}
    assert len(flushed) == 62 and flushed[-1] == tmp_path


@given(st.binary(max_size=200), st.integers(1, 4), st.integers(1, 64))
def test_the_last_lines_are_those_of_the_end_whatever_lies_before(tmp_path_factory, content, count, look_back):
    path = tmp_path_factory.mktemp("lines") / "job.err"
    assert read_last_lines(path, count) == []
    path.write_bytes(content + b"\nlast\n \n")
    lines = read_last_lines(path, count, look_back)
    assert len(lines) <= count and sum(map(len, lines)) <= look_back
    assert lines[-1:] == ["last"[-(look_back - 3) :]] if look_back > 3 else lines == []
