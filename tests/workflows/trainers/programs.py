"""Programs that a study would train with: a good one, and others that do one thing wrong."""

from __future__ import annotations

import sys
from pathlib import Path

from nnlib.contract import Metric, TrainSettings
from regiondag.generate.bundle import pack_worker
from regiondag.study.program import Program
from regiondag.study.space import Choice, Space
from regiondag.trainers.examine import Subject
from regiondag.trainers.trying import Bench

GOOD = """
import json, sys, time
from pathlib import Path

from regiondag.trial import Stopping, load, report

trial, stopping = load(), Stopping()
state = Path(trial["checkpoint"]) / "state.json"
done = json.loads(state.read_text()) if state.exists() else 0
for epoch in range(done + 1, trial["epochs"] + 1):
    time.sleep(0.05)
    part = state.with_suffix(".part")
    part.write_text(json.dumps(epoch))
    part.replace(state)
    report(epoch=epoch, auc=1 - trial["hyperparameters"]["rate"] / epoch)
    if stopping:
        sys.exit(1)
if trial["role"] == "final":
    (Path(trial["artifact"]) / "model.bin").write_bytes(b"x" * 100)
"""
# Reads nothing of what it has saved.
FORGETFUL = """
import sys, time
from pathlib import Path

for epoch in range(int(sys.argv[1])):
    time.sleep(0.05)
    (Path(sys.argv[2]) / "weights").write_text("x")
    print(f"epoch={epoch} auc={0.5 + epoch / 1e6}")
"""
DEAF = """
import signal, sys, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
for epoch in range(int(sys.argv[1])):
    time.sleep(0.05)
    print(f"epoch={epoch} auc=0.5")
"""
SILENT = "print('loading')"
NAN = "print('auc=nan')"
FAILS = "raise SystemExit('data.csv is not there')"
LEAVES_A_CHILD = """
import subprocess
subprocess.Popen(["sleep", "600"], start_new_session=True)
print("auc=0.5")
"""
TALKS_OF_SUCCESS = """
from pathlib import Path
import sys
try:
    (Path(sys.argv[1]) / "model").write_text("weights")
except OSError as error:
    print("never mind:", error)
print("auc=0.5")
"""
# A shell that goes on whatever its training has come to.
WRAPPED = 'python3 train.py "$@"\necho done\n'
RATES: Space = (Choice("rate", (0.1, 0.2, 0.4)),)


def write_program(folder: Path, text: str, *words: str, **others: str) -> Program:
    """Write train.py, and `others` as shell scripts; without `words` that one is run with its epochs and checkpoint."""
    (folder / "train.py").write_text(text)
    for name, script in others.items():
        (folder / f"{name}.sh").write_text(script)
    names = ["train.py", *(f"{name}.sh" for name in others)]
    command = words or ("python", "train.py", "{epochs}", "{checkpoint}")
    return Program(command, tuple((name, folder / name) for name in names))


def subject_of(program: Program, space: Space = RATES, epochs: int = 3, gpus: bool | None = None) -> Subject:
    """Return a program as it is examined."""
    return Subject(program, Metric("auc"), TrainSettings(epochs=epochs), space=space, gpus=gpus)


def make_bench(folder: Path, timeout: float = 60.0, patience: float = 60.0) -> Bench:
    """Return where programs are tried, in a folder that exists."""
    code = pack_worker()
    archive = folder / code.name
    archive.write_bytes(code.content)
    return Bench(folder, sys.executable, archive, timeout, patience)
