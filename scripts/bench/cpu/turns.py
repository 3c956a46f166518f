"""Two sides in turn, each in a process of its own: two BLAS libraries in one process slow each other down."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.common.child import Child
from scripts.bench.common.environments import torch_python
from scripts.bench.common.processes import ONE_THREAD, NotMeasuredError
from scripts.bench.common.workload import MEMORY, STEP, Work

OTHERS = 0.1  # part of the processors' time that other programs may take while wall time is measured
PATIENCE = 120  # seconds after which busy rounds are no longer tried again
ANSWER = 600.0  # seconds that a side may take to get ready, or for a command


@dataclass(frozen=True)
class Turn:
    """What both sides took for a step in one round, in milliseconds."""

    ours: float
    peer: float

    @property
    def ratio(self) -> float:
        """How many times as long the peer took."""
        return self.peer / self.ours


class Sides:
    """Both sides of a workload, ready."""

    def __init__(self, work: Work, ours: Child, peer: Child) -> None:
        self._work, self._both = work, (ours, peer)
        for side in self._both:
            side.answer(ANSWER)

    def in_turn(self, rounds: int) -> Turn:
        """Return the round whose ratio is the median.

        One thread is measured by its CPU time, which others hardly stretch. More are measured by wall time, in rounds
        in which the machine has nothing else to do; NotMeasuredError if there are too few of them.
        """
        threads, steps = self._work.threads, self._work.steps
        clock = "cpu" if threads == 1 else "wall"
        turns: list[Turn] = []
        deadline = time.monotonic() + PATIENCE
        while len(turns) < rounds:
            before = _busy()
            answers = [side.ask(STEP, ANSWER) for side in self._both]
            spent = sum(answer["cpu"] for answer in answers) * steps / 1e3
            share = max(0.0, _busy() - before - spent) / (sum(answer["wall"] for answer in answers) * steps / 1e3)
            if threads == 1 or share < OTHERS * (os.cpu_count() or 1):
                turns.append(Turn(*(answer[clock] for answer in answers)))
            elif time.monotonic() > deadline:
                raise NotMeasuredError(f"{threads} threads: other programs kept the machine busy")
        return sorted(turns, key=lambda turn: turn.ratio)[rounds // 2]

    def peaks(self) -> tuple[float, float]:
        """Return the most memory that each side has had, in MB."""
        ours, peer = (side.ask(MEMORY, ANSWER)["mb"] for side in self._both)
        return ours, peer


@contextmanager
def sides(work: Work) -> Iterator[Sides]:
    """Give both sides of a workload."""
    env = dict.fromkeys(ONE_THREAD, str(work.threads))
    with (
        Child(torch_python(), "cpu.peer", work.arguments(), env=env) as peer,
        Child(sys.executable, "cpu.ours", work.arguments(), env=env) as ours,
    ):
        yield Sides(work, ours, peer)


def _busy() -> float:
    """Return the seconds for which the machine's processors have worked so far."""
    times = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
    idle, waiting = int(times[3]), int(times[4])
    return (sum(map(int, times)) - idle - waiting) / os.sysconf("SC_CLK_TCK")
