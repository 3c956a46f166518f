"""Run a command on an input with bounds of time and memory, and look at what it printed and left."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.hostile.inputs import Input

SECONDS, PATIENCE = 20, 120  # of processor time that a command may take; until it ends on a busy machine
LONGEST = 200_000  # characters that a command says: 200 lines of 1,000
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\u2066-\u2069]")
BUG = re.compile(r"Traceback|is a bug")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    seconds: float
    said: str


def run_bounded(one: Input, place: Path) -> Ended:
    """Run the command of an input in its folder."""
    program, *words = one.command.split()
    module = program if program in ("nnlib", "regiondag") else "regiondag"
    words = words if module == program else [program, *words]
    limited = [
        "sh",
        "-c",
        f'ulimit -v {one.memory}; ulimit -t {SECONDS}; exec "$0" "$@"',
        sys.executable,
        "-m",
        module,
        *words,
    ]
    env = {**os.environ, "HOME": str(place.parent / "home"), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    began = time.monotonic()
    try:
        ended = subprocess.run(
            limited, cwd=place, env=env, capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
        )
        code, said = ended.returncode, ended.stdout + ended.stderr
    except subprocess.TimeoutExpired as error:
        code, said = -9, (error.stdout or b"") + (error.stderr or b"")
    return Ended(code, time.monotonic() - began, said.decode(errors="backslashreplace"))
