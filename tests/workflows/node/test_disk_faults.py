"""PRE and POST on a disk that is full, over its quota, failing or not to be written, at each single write of theirs.

The fault comes once, at the first, the second, ... of what a script asks of the file system; then the script is called
again, as DAGMan does. Whatever it was, the run is then to the byte what it is without a fault, so that all that follows
follows alike, up to the champion.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from regiondag.node import main as scripts
from regiondag.node import trial_files
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName
from tests.workflows.played import play_job

pytestmark = pytest.mark.slow

FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES)
NODES = [NodeName("germany", number) for number in (0, 1, 2, 3, None)]
# At the first of all, at one that chooses by others, at the final training.
FAULTY = {0: FAULTS, 3: FAULTS[:1], None: FAULTS}
VALUES = {0: 0.1, 1: 0.4, 2: 0.3, 3: 0.2, None: 0.5}
WRITERS = frozenset({"open", "os.mkdir", "os.rename", "os.link", "os.symlink", "os.truncate", "os.utime"})
REMOVERS = frozenset({"os.remove", "os.rmdir"})  # which a full disk does not keep from their work


class _Faults:
    """Counts what this process asks of the file system below `root`, and lets one of it fail."""

    def __init__(self) -> None:
        self.root, self.at, self.number, self.count = "", -1, 0, 0

    def audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.root:
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        full = self.number in (errno.ENOSPC, errno.EDQUOT)
        if event in WRITERS or (event in REMOVERS and not full):
            self.meet(arguments[0])

    def meet(self, path: object) -> None:
        """Count one, and fail where it is its turn."""
        if not self.root or not isinstance(path, str | bytes | Path) or not os.fsdecode(path).startswith(self.root):
            return
        self.count += 1
        if self.count == self.at:
            raise OSError(self.number, os.strerror(self.number), os.fsdecode(path))


FAULT = _Faults()
_AUDITED = False


@contextmanager
def fault(root: Path, at: int, number: int):
    """Let the write number `at` below `root` fail."""
    global _AUDITED
    if not _AUDITED:
        sys.addaudithook(FAULT.audit)  # there for good, and silent without a root
        _AUDITED = True
    FAULT.root, FAULT.at, FAULT.number, FAULT.count = str(root), at, number, 0
    try:
        yield FAULT
    finally:
        FAULT.root = ""


@pytest.fixture(autouse=True)
def _writes(monkeypatch):
    """Let what has been opened fail, too: half of it is written then."""
    really_open, write_bytes = Path.open, Path.write_bytes

    def fail_half(file, path, data):
        try:
            FAULT.meet(path)
        except OSError:
            file.write(data[: len(data) // 2])
            file.flush()
            raise

    def write(path, data):
        with really_open(path, "wb") as file:
            fail_half(file, path, bytes(data))
        return write_bytes(path, data)

    def opened(path, mode="r", *more, **named):
        file = really_open(path, mode, *more, **named)
        if mode != "ab" or path.suffix == ".lock":
            return file
        return _Appending(file, path, fail_half)

    monkeypatch.setattr(Path, "write_bytes", write)
    monkeypatch.setattr(Path, "open", opened)
    monkeypatch.setattr(os, "fsync", lambda number: FAULT.meet(Path(f"/proc/self/fd/{number}").readlink()))
    monkeypatch.setattr(trial_files, "query_machines", lambda **_: [])
    monkeypatch.setattr(scripts, "PAUSES", ())


class _Appending:
    """A file at whose end half a line may be written."""

    def __init__(self, file, path, fail_half) -> None:
        self.file, self.path, self.fail_half = file, path, fail_half

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        self.fail_half(self.file, self.path, data)
        return self.file.write(data)


def call(run, kind, node):
    words = [kind, str(run), str(node), *(["0"] if kind == "pre" else ["0", "0", "2", "0", "7.0"])]
    return scripts.main(words)


def state_of(runs):
    """Return what is in the runs and the registry beside them, without times."""
    found = {}
    for path in runs.rglob("*"):
        name = str(path.relative_to(runs))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.suffix == ".jsonl" and "trials/" not in name:
            records = [json.loads(line) for line in path.read_bytes().splitlines()]
            found[name] = [{k: v for k, v in one.items() if k not in ("time", "after")} for one in records]
        elif path.is_file() and path.suffix != ".pyz" and path.name != "champion.json":
            found[name] = path.read_bytes()
    return found


def differences(one, other):
    return [(name, one.get(name), other.get(name)) for name in one | other if one.get(name) != other.get(name)]


def copy(runs, target):
    """Copy a run; archives and data, which nobody writes into, get a second name."""
    shutil.rmtree(target, ignore_errors=True)

    def second(one, other):
        shared = one.endswith(".pyz") or Path(one).name.startswith("data.")
        (os.link if shared else shutil.copy2)(one, other)

    shutil.copytree(runs, target, symlinks=True, copy_function=second)


def test_a_fault_at_any_write_is_told_and_leaves_no_trace(run, tmp_path, capsys):
    runs, before = run.path.parent, tmp_path / "before"
    codes, tried = set(), 0
    for node in NODES:
        for kind in ("pre", "post"):
            if kind == "post":
                play_job(run.region("germany"), node, VALUES[node.number])
            copy(runs, before)
            assert call(run.path, kind, node) == 0
            wanted = state_of(runs)
            for number in FAULTY.get(node.number, ()):
                at = 0
                while True:
                    at += 1
                    copy(before, runs)
                    capsys.readouterr()
                    with fault(runs, at, number) as counted:
                        code = call(run.path, kind, node)
                    if counted.count < at:
                        break
                    tried += 1
                    said, where = capsys.readouterr().out, f"{kind} {node}: write {at}: {os.strerror(number)}"
                    codes.add(code)
                    assert "Traceback" not in said and "bug" not in said, f"{where}\n{said}"
                    assert code in (0, 75), f"{where}\n{said}"
                    if code:
                        assert os.strerror(number) in said and "submit the DAG again" in said, said
                    Journal(run.region("germany").journal).read()
                    assert call(run.path, kind, node) in (0, 77), where
                    assert differences(wanted, state_of(runs)) == [], where
            copy(before, runs)
            assert call(run.path, kind, node) == 0
    assert codes == {0, 75} and tried > 300, tried


def test_post_waits_for_room(run, monkeypatch, capsys):
    node = NODES[0]
    call(run.path, "pre", node)
    play_job(run.region("germany"), node)
    waited = []
    monkeypatch.setattr(scripts, "PAUSES", (5, 20))
    monkeypatch.setattr(scripts.time, "sleep", waited.append)
    with fault(run.path, 1, errno.ENOSPC):
        assert call(run.path, "post", node) == 0
    assert waited == [5] and "tried again in 5 s" in capsys.readouterr().out
    assert Journal(run.region("germany").journal).read().settled[0].ok


def test_a_log_that_cannot_be_written_fails_nothing(run):
    code = "import sys; from regiondag.node.main import main; sys.exit(main())"
    argv = [sys.executable, "-c", code, "pre", str(run.path), str(NODES[0]), "0"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert Journal(run.region("germany").journal).read().proposals
