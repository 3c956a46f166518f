"""Trainings are killed by SIGKILL while they save and started again: does each end with an undisturbed one's model?

    python -m tests.campaign.saves         # 200 kills at random moments, and one in each step of a save: ten minutes

The trainings save after every batch, so that most moments lie within a save.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from nnlib.cli import main as nnlib
from nnlib.contract import CHECKPOINT_FILE, sha256_of
from nnlib.errors import DataError
from nnlib.training import checkpoint, loop
from nnlib.util import netcdf
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import NotMeasuredError, environment
from tests.nnlib.util.steps import at_step

BENCH = "checkpoints"
NETWORK = """{"Layers": [
    {"Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": true},
    {"Kind": "Hidden", "N": 64, "Activation": "Relu", "pDropout": 0.1},
    {"Kind": "Output", "N": "auto", "DataSet": "output", "Activation": "Sigmoid"}]}"""
OPTIONS = "--epochs 8 --batch 64 --stop-after 0 --metric ndcg@10 --threads 1 --device cpu --checkpoint-every 0.001s"
SAVES = 0.15  # seconds after the first save, of which the moment of a kill is drawn
STEPS = ((netcdf, "write"), (checkpoint, "seal"), (Path, "unlink"))  # of a save, besides those of writing any file
LONGEST = 120  # seconds that a training may take


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    kills: int
    items: int
    customers: int


def make_inputs(folder: Path, sizes: Sizes) -> None:
    """Write a network, and purchases to learn from and to validate on."""
    import numpy as np

    from nnlib.data.file import write_data
    from nnlib.data.rows import from_rows
    from nnlib.data.sets import Data, DataSet

    drawn = np.random.default_rng(1)
    for name, count in (("train", sizes.customers), ("valid", sizes.customers // 4)):
        sets = []
        for side in ("input", "output"):
            rows = [np.unique(drawn.integers(0, sizes.items, 8)).tolist() for _ in range(count)]
            sets.append(DataSet(side, from_rows(rows, sizes.items)))
        write_data(folder / f"{name}.nc", Data(tuple(sets)))
    (folder / "network.json").write_text(NETWORK, encoding="utf-8")


def words(folder: Path, name: str) -> list[str]:
    """Return the command line of a training, with its checkpoints in the folder `name`."""
    files = f"{folder}/network.json {folder}/train.nc --valid {folder}/valid.nc --out {folder}/{name}.nc"
    return f"train {files} --checkpoint {folder}/{name} {OPTIONS}".split()


def start(arguments: list[str], *dies: str) -> subprocess.Popen[str]:
    """Start a training; one that `dies` ends itself in that step of its second save."""
    program = [sys.executable, "-m", "tests.campaign.saves", *dies] if dies else [sys.executable, "-m", "nnlib"]
    return subprocess.Popen([*program, *arguments], stderr=subprocess.PIPE, text=True, env=environment())


def end(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a training and return what it said."""
    try:
        said = process.communicate(timeout=LONGEST)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        raise NotMeasuredError(f"a training did not end within {LONGEST} s") from None
    if process.returncode not in (0, -signal.SIGKILL):
        raise NotMeasuredError(f"a training ended with {process.returncode}: {said[-300:]}")
    return said


def kill_within(process: subprocess.Popen[str], saved: Path, seconds: float) -> None:
    """Kill a training so many seconds after it has saved for the first time, unless it has ended by then."""
    before = _inode(saved)
    while process.poll() is None and _inode(saved) in (None, before):
        time.sleep(0.001)
    time.sleep(seconds)
    process.kill()


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino if path.stat().st_size else None
    except FileNotFoundError:
        return None


def describe_moment(folder: Path) -> str:
    """Return at which point of a save a training was killed, by what it left."""
    parts = list(folder.glob(".*.part"))
    if not parts:
        return "between two saves"
    if not (folder / CHECKPOINT_FILE).exists():
        return "between the two renames"
    try:
        checkpoint.check_whole(parts[0])
    except DataError:
        return "while the file was written"
    return "before the renames"


class Saves(Bench[Sizes]):
    """See the head of this module."""

    def random(self) -> Iterator[Row]:
        """At random moments."""
        drawn, moments, wrong, ended, unused, left = random.Random(1), Counter[str](), 0, 0, 0, 0
        undisturbed = self._undisturbed()
        while moments.total() < self.sizes.kills:
            name = f"random{ended}"
            folder, resumes = self.area / name, False
            while True:
                process = start(words(self.area, name))
                kill_within(process, folder / CHECKPOINT_FILE, drawn.uniform(0, SAVES))
                said = end(process)
                unused += "checkpoint not used" in said or (resumes and "resumed from" not in said)
                if (self.area / f"{name}.nc").exists():
                    break  # it was over before the kill
                moments[describe_moment(folder)] += 1
                resumes = True
            ended += 1
            wrong += sha256_of(self.area / f"{name}.nc") != undisturbed
            left += len(list(folder.glob(".*")))
        within = moments.total() - moments["between two saves"]
        note = "; ".join(f"{moment}: {count}" for moment, count in sorted(moments.items()))
        yield Row("kills at random moments", moments.total(), None, "kills", self.sizes.kills, note, higher=True)
        yield Row("of these within a save", within, None, "kills", self.sizes.kills // 2, higher=True)
        yield Row("trainings that ended", ended, None, "trainings")
        yield Row("models with other bits than the undisturbed one's", wrong, None, "models", 0)
        yield Row("starts that did not go on from what was saved", unused, None, "starts", 0)
        yield Row("files that killed trainings had begun, left at the end", left, None, "files", 0)

    def steps(self) -> Iterator[Row]:
        """In each step of a save, one after the other."""
        undisturbed, step, wrong = self._undisturbed(), 0, 0
        while True:
            name = f"step{step}"
            process = start(words(self.area, name), str(step))
            end(process)
            if not process.returncode:  # a save has no step of that number
                break
            said = end(start(words(self.area, name)))
            wrong += "resumed from" not in said or sha256_of(self.area / f"{name}.nc") != undisturbed
            step += 1
        yield Row("kills in each step of a save", step, None, "kills")
        yield Row("models with other bits, or trainings that began anew", wrong, None, "models", 0)

    def _undisturbed(self) -> str:
        """Return the digest of the model of a training that nothing disturbs."""
        if not (self.area / "train.nc").exists():
            make_inputs(self.area, self.sizes)
            end(start(words(self.area, "undisturbed")))
        return sha256_of(self.area / "undisturbed.nc")


def die_in(step: int) -> int:
    """Train as the rest of the command line says, and die in a step of the second save."""
    saves, inner = 0, checkpoint.Checkpoints.save

    def save(keeper: checkpoint.Checkpoints, training: loop.Training) -> None:
        nonlocal saves
        saves += 1
        if saves != 2:
            inner(keeper, training)
            return
        with at_step(step, lambda: os.kill(os.getpid(), signal.SIGKILL), STEPS):
            inner(keeper, training)

    with patch.object(checkpoint.Checkpoints, "save", save):
        return nnlib(sys.argv[2:])


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].isdecimal():
        sys.exit(die_in(int(sys.argv[1])))
    sys.exit(main(BENCH, Saves, Sizes(200, 2000, 512), Sizes(6, 300, 256)))
