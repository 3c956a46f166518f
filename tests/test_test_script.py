"""``scripts/test`` itself: the exit code is the tests' own."""

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "test"


def copied(folder: Path, python: str) -> list[str | Path]:
    """Return the command of a copy of the script whose programs do nothing, but for Python."""
    shutil.copy(SCRIPT, folder / "test")
    (folder / "environment.sh").write_text(f"PATH={folder}:$PATH\n")
    (folder / "scripts").mkdir()
    for name, text in {"python": python, "regiondag": "exit 0", "scripts/preflight": "exit 0"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return ["sh", folder / "test"]


@pytest.mark.parametrize("failing", ["", "not condor and not slow and not browser", "boot"])
def test_the_exit_code_is_that_of_the_tests(tmp_path: Path, failing: str) -> None:
    """Those in the background, too: they have ended when the script takes its leave."""
    # The marks are one word of the command line.
    command = copied(tmp_path, f'case " $* " in *" -m {failing} "*) exit 7 ;; esac')
    done = subprocess.run(command, env={"PATH": os.environ["PATH"]}, cwd=tmp_path, timeout=30, check=False)
    assert done.returncode == (7 if failing else 0)


@pytest.mark.parametrize("words", [[], ["--fast"], ["some_test.py"]])
def test_a_signal_ends_what_was_started(tmp_path: Path, words: list[str]) -> None:
    command = copied(tmp_path, "echo $$ >part; exec sleep 60")
    process = subprocess.Popen([*command, *words], env={"PATH": os.environ["PATH"]}, cwd=tmp_path)
    with process:
        try:
            while not (tmp_path / "part").exists() or not (tmp_path / "part").read_text():
                assert process.poll() is None
            process.terminate()
            assert process.wait(10) in (130, -signal.SIGTERM)
        finally:
            process.kill()
    assert not Path("/proc", (tmp_path / "part").read_text().strip()).exists()


@pytest.mark.parametrize("slower", ["", "sleep 1\n    "])
def test_a_signal_ends_what_was_started_that_moment(tmp_path: Path, slower: str) -> None:
    """Also before the script has noted it, and while it is a copy of the shell yet, which is to become Python."""
    command = copied(tmp_path, "exec sleep 60")
    script, noting = tmp_path / "test", '    running="$running'
    assert noting in script.read_text()
    script.write_text(script.read_text().replace(noting, f"    {slower}{noting.strip()}"))
    ready = tmp_path / "ready"
    (tmp_path / "scripts/preflight").write_text(f"#!/bin/sh\n: >{ready}\n")  # the last before traps and parts
    for delay in [500.0] if slower else [number / 10 for number in range(80)]:
        ready.unlink(missing_ok=True)
        process = subprocess.Popen(command, env={"PATH": os.environ["PATH"]}, cwd=tmp_path, start_new_session=True)
        try:
            while not ready.exists():
                assert process.poll() is None
            time.sleep(delay / 1000)
            process.terminate()
            assert process.wait(10) in (130, -signal.SIGTERM), delay
            assert not is_at_work(process.pid) or process.returncode == -signal.SIGTERM, delay
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def is_at_work(group: int) -> bool:
    """Whether a process of the group still runs: one that nobody has waited for does not."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group, *_ = file.read_text().rpartition(")")[2].split()
            if int(its_group) == group and state != "Z":
                return True
    return False
