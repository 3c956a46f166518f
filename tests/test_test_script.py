"""``scripts/test`` itself: the exit code is the tests' own."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "test"


@pytest.mark.parametrize("failing", ["", "not condor and not slow and not browser", "boot"])
def test_the_exit_code_is_that_of_the_tests(tmp_path: Path, failing: str) -> None:
    """Those in the background, too: they have ended when the script takes its leave."""
    shutil.copy(SCRIPT, tmp_path / "test")
    (tmp_path / "environment.sh").write_text(f"PATH={tmp_path}:$PATH\n")
    programs = {
        "python": f'case " $* " in *" -m {failing} "*) exit 7 ;; esac',  # the marks are one word of the command line
        "regiondag": "exit 0",
        "g++": "exit 0",
        "chromium": "exit 0",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["sh", tmp_path / "test"], env={"PATH": os.environ["PATH"]}, cwd=tmp_path, timeout=30, check=False
    )
    assert done.returncode == (7 if failing else 0)
