"""Two sides in turn, each in a process of its own: two BLAS libraries in one process slow each other down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness import NotMeasuredError
from train_cpu_work import PEAK, READY, STEP, Work

FOLDER = Path(__file__).resolve().parent
ENVIRONMENT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regiondag" / "bench-torch"
TORCH = "2.13.0"
OTHERS = 0.1  # part of the processors' time that other programs may take while wall time is measured
PATIENCE = 120  # seconds after which busy rounds are no longer tried again


@dataclass(frozen=True)
class Turn:
    """What both sides took for a step in one round, in milliseconds."""

    ours: float
    peer: float

    @property
    def ratio(self) -> float:
        """How many times as long the peer took."""
        return self.peer / self.ours


class Side:
    """A process that serves one workload; see `train_cpu_work.serve`."""

    def __init__(self, python: Path, script: str, work: Work) -> None:
        limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(work.threads))
        self._name = script
        self._process = subprocess.Popen(
            [python, FOLDER / script, work.arguments()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | limits,
        )

    def ask(self, command: str) -> dict[str, float]:
        """Return the answer to a command; READY only waits until the side is."""
        try:
            if command != READY:
                self._process.stdin.write(f"{command}\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise NotMeasuredError(f"{self._name} ended with {self._process.wait()}; its message is above")
        return dict(json.loads(line))

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


@contextmanager
def sides(work: Work) -> Iterator[tuple[Side, Side]]:
    """Give both sides of a workload, ready."""
    ours = Side(Path(sys.executable), "train_cpu_ours.py", work)
    peer = None
    try:
        peer = Side(torch_python(), "train_cpu_torch.py", work)
        for side in (ours, peer):
            side.ask(READY)
        yield ours, peer
    finally:
        for side in filter(None, (ours, peer)):
            side.end()


def in_turn(ours: Side, peer: Side, work: Work, rounds: int) -> Turn:
    """Return the round whose ratio is the median.

    One thread is measured by its CPU time, which others hardly stretch. More are measured by wall time, in rounds in
    which the machine has nothing else to do; NotMeasuredError if there are too few of them.
    """
    clock = "cpu" if work.threads == 1 else "wall"
    turns: list[Turn] = []
    deadline = time.monotonic() + PATIENCE
    while len(turns) < rounds:
        before = _busy()
        answers = ours.ask(STEP), peer.ask(STEP)
        spent = sum(answer["cpu"] for answer in answers) * work.steps / 1e3
        share = max(0.0, _busy() - before - spent) / (sum(answer["wall"] for answer in answers) * work.steps / 1e3)
        if work.threads == 1 or share < OTHERS * (os.cpu_count() or 1):
            turns.append(Turn(answers[0][clock], answers[1][clock]))
        elif time.monotonic() > deadline:
            raise NotMeasuredError(f"{work.threads} threads: other programs kept the machine busy")
    return sorted(turns, key=lambda turn: turn.ratio)[rounds // 2]


def _busy() -> float:
    """Return the seconds for which the machine's processors have worked so far."""
    times = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
    idle, waiting = int(times[3]), int(times[4])
    return (sum(map(int, times)) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def peaks(ours: Side, peer: Side) -> tuple[float, float]:
    """Return the most memory that each side has had, in MB."""
    return ours.ask(PEAK)["mb"], peer.ask(PEAK)["mb"]


@cache
def torch_python() -> Path:
    """Return a Python that has PyTorch; it gets an environment of its own, as the product never needs it."""
    python = ENVIRONMENT / "bin" / "python"
    check = [python, "-c", f"import torch; assert torch.__version__.split('+')[0] == '{TORCH}'"]
    if python.exists() and subprocess.run(check, capture_output=True, check=False).returncode == 0:
        return python
    print(f"installing PyTorch {TORCH} in {ENVIRONMENT} ...", file=sys.stderr, flush=True)
    venv.create(ENVIRONMENT, with_pip=True)
    install = [python, "-m", "pip", "install", "--quiet", f"torch=={TORCH}", "numpy"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotMeasuredError(f"PyTorch {TORCH} cannot be installed: {done.stderr[-300:].strip()}")
    return python
