"""Sides in turn, each in a process of its own: two BLAS libraries in one process slow each other down."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TypeVar

from nnlib.util.blas import OPENBLAS
from scripts.bench.common.child import Answer, Child
from scripts.bench.common.environments import torch_python
from scripts.bench.common.processes import ONE_THREAD, NotMeasuredError
from scripts.bench.common.workload import MEMORY, STEP, Work

OTHERS = 0.1  # part of the processors' time that other programs may take while wall time is measured
REST = 0.02  # seconds before each turn on several threads: OpenMP's keep looking for work for 8 ms after their side's
PATIENCE = 120  # seconds after which busy rounds are no longer tried again
FEW = 5  # steps and rounds by which the peer's fastest precision is found
ANSWER = 600.0  # seconds that a side may take to get ready, or for a command

Found = TypeVar("Found")  # what one round gives


@dataclass(frozen=True)
class Turn:
    """What both sides took for a step in one round, in milliseconds."""

    ours: float
    peer: float
    variant: str = ""  # the peer's fastest precision

    @property
    def ratio(self) -> float:
        """How many times as long the peer took."""
        return self.peer / self.ours


class Sides:
    """All sides of a workload, ready: ours, and the peer in each of its precisions."""

    def __init__(self, work: Work, ours: Child, peers: Mapping[str, Child]) -> None:
        self._work, self._peers, self._all = work, list(peers), (ours, *peers.values())
        said = [side.answer(ANSWER) for side in self._all]
        self.kernels = str(said[0].get(OPENBLAS, ""))  # of ours

    def in_turn(self, rounds: int) -> Turn:
        """Return the round whose ratio to the peer that is fastest in the median is the median.

        One thread is measured by its CPU time, more by wall time, in quiet rounds.
        """
        threads, steps = self._work.threads, self._work.steps
        clock = "cpu" if threads == 1 else "wall"

        def turn() -> tuple[list[float], float]:
            answers = [after_rest(threads, side, STEP) for side in self._all]
            return [answer[clock] for answer in answers], sum(answer["cpu"] for answer in answers) * steps / 1e3

        ours, *theirs = zip(*quiet_rounds(threads, rounds, turn), strict=True)
        fastest = min(range(len(theirs)), key=lambda n: median(theirs[n]))
        found = [Turn(*pair, self._peers[fastest]) for pair in zip(ours, theirs[fastest], strict=True)]
        return sorted(found, key=lambda turn: turn.ratio)[rounds // 2]

    def peaks(self) -> tuple[float, float]:
        """Return the most memory that each side has had, in MB."""
        ours, peer = (side.ask(MEMORY, ANSWER)["mb"] for side in self._all[:2])
        return ours, peer


def find_fastest(work: Work, precisions: Sequence[str], peers_env: Mapping[str, str] | None = None) -> str:
    """Return the precision in which PyTorch is fastest, by the best of some rounds after a few steps, one by one.

    So the others need no memory beside the two that are measured, and no long time to warm up.
    """
    clock = "cpu" if work.threads == 1 else "wall"
    spent = {}
    for name in precisions:
        short = replace(work, precision=name, warm=min(work.warm, FEW))
        with _peer(short, peers_env) as peer:
            peer.answer(ANSWER)
            spent[name] = min(peer.ask(STEP, ANSWER)[clock] for _ in range(FEW))
    return min(spent, key=lambda name: spent[name])


@contextmanager
def sides(
    work: Work, precisions: Sequence[str] = ("float32",), peers_env: Mapping[str, str] | None = None
) -> Iterator[Sides]:
    """Give all sides of a workload: ours, and PyTorch in some precisions."""
    with ExitStack() as stack:
        peers = {name: stack.enter_context(_peer(replace(work, precision=name), peers_env)) for name in precisions}
        ours = stack.enter_context(Child(sys.executable, "cpu.ours", work.arguments(), env=_threads(work)))
        yield Sides(work, ours, peers)


def _peer(work: Work, env: Mapping[str, str] | None) -> Child:
    return Child(torch_python(), "cpu.peer", work.arguments(), env={**_threads(work), **(env or {})})


def _threads(work: Work) -> dict[str, str]:
    return dict.fromkeys(ONE_THREAD, str(work.threads))


def after_rest(threads: int, side: Child, command: str) -> Answer:
    """Return a side's answer; on several threads it is asked when those of whoever came before sleep."""
    if threads > 1:
        time.sleep(REST)
    return side.ask(command, ANSWER)


def quiet_rounds(threads: int, rounds: int, measure: Callable[[], tuple[Found, float]]) -> list[Found]:
    """Return what each round gives; `measure` also says for how many seconds it kept processors busy.

    One thread is measured by its CPU time, which others hardly stretch. More are measured by wall time, and their
    rounds count when the machine has nothing else to do, or others come second; NotMeasuredError if these are too few.
    """
    found: list[Found] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < rounds:
        before, began = busy(), time.monotonic()
        turn, spent = measure()
        if threads == 1 or comes_first() or is_quiet(before, spent, time.monotonic() - began):
            found.append(turn)
        elif time.monotonic() > deadline:
            raise NotMeasuredError(f"{threads} threads: other programs kept the machine busy")
    return found


def comes_first() -> bool:
    """Return whether others get a processor only while this process and its children leave one idle: `chrt -f 50`."""
    return os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)


def is_quiet(before: float, spent: float, wall: float) -> bool:
    """Return whether others left the processors alone while wall time was measured, since they were `busy` for so long.

    `spent` are the seconds for which the sides themselves kept them busy, in `wall` seconds.
    """
    return busy() - before - spent < OTHERS * (os.cpu_count() or 1) * wall


def busy() -> float:
    """Return the seconds for which the machine's processors have worked so far."""
    times = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
    idle, waiting = int(times[3]), int(times[4])
    return (sum(map(int, times)) - idle - waiting) / os.sysconf("SC_CLK_TCK")
