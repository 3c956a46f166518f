"""Studies of the retail example on a real pool, made and run by the commands that a user calls."""

from __future__ import annotations

import csv
import gzip
import subprocess
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from regiondag.run.layout import RunFolder
from scripts.bench.common.processes import REPOSITORY, NotMeasuredError
from scripts.bench.manager.pools import REGIONDAG

EXAMPLE = REPOSITORY / "workflows/examples/retail"
TABLE = "purchases.csv.gz"
SUITE = "trixie"
SLOTS = 2
LAST = date(2011, 12, 9)  # of the table

Lines = Sequence[Sequence[str]]  # of the table, the header first; the fourth column is the day


def read_purchases(countries: Sequence[str] = ()) -> Lines:
    """Return the example's table; of some countries alone, if they are named."""
    with gzip.open(EXAMPLE / TABLE, "rt", encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    return [header, *(line for line in lines if not countries or line[0] in countries)]


def write_table(path: Path, purchases: Lines, until: date) -> None:
    """Write the purchases before a day."""
    header, *lines = purchases
    with gzip.open(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(line for line in lines if line[3] < until.isoformat())


def write_study(folder: Path, more: str = "") -> Path:
    """Write the example's study.yaml, with `more` in the place of its search, and return its path."""
    text = (EXAMPLE / "study.yaml").read_text(encoding="utf-8")
    if more:
        text = "".join(line for line in text.splitlines(True) if not line.startswith("search:")) + more
    study = folder / "study.yaml"
    study.write_text(text, encoding="utf-8")
    return study


def wait_for_run(path: str, pool: str) -> RunFolder:
    """Wait until a run that was submitted has ended; NotMeasuredError where it failed."""
    call("status", path, "--watch", "--pool", pool)
    return RunFolder(Path(path))


def call(*words: str) -> str:
    """Return what a command of regiondag says on standard output; NotMeasuredError when it fails."""
    done = subprocess.run([*REGIONDAG, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotMeasuredError(f"regiondag {' '.join(words)}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout
