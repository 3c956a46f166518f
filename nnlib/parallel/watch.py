"""Whether processes that are waited for get anywhere, as Linux tells of them: none of it costs them anything."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnlib.parallel.host import ARRIVED, COMPUTING, PHASE
from nnlib.util.arrays import Longs

STOPPED_LOOKS = 20  # in a row, a TICK apart, after which a stopped rank is given up: 2 s
IDLE_LOOKS = 70  # likewise for one that should compute, and takes no time of a processor: 7 s
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessState:
    """What Linux says of a process: `R` running, `S` asleep, `D` waiting for a disk, `T` stopped; its CPU time."""

    letter: str
    ticks: int


@dataclass(slots=True)
class _Seen:
    stopped: int = 0  # looks in a row
    idle: int = 0
    before: tuple[int, int] = (-1, -1)  # exchanges it has reached, CPU time


@dataclass(slots=True)
class Watch:
    """Looks at the ranks of a job, a TICK apart. Looks are counted, as a job may itself be stopped for a while."""

    processes: Sequence[int]
    words: Longs  # as `host.map_words` has them
    proc: Path = PROC
    _seen: list[_Seen] = field(init=False)
    _looked: bool = True

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: what was waited for has come."""
        if self._looked:
            self._seen, self._looked = [_Seen() for _ in self.processes], False

    def look(self) -> tuple[int, str] | None:
        """Return a rank that gets nowhere, and what it does, in words; None while all of them may be well."""
        self._looked = True
        last = int(self.words[:, ARRIVED].max())
        for rank, seen in enumerate(self._seen):
            state = read_state(self.processes[rank], self.proc)
            if state is None:
                continue
            seen.stopped = seen.stopped + 1 if state.letter in "Tt" else 0
            reached = int(self.words[rank, ARRIVED])
            now = (reached, state.ticks)
            computing = int(self.words[rank, PHASE]) == COMPUTING and state.letter == "S" and reached < last
            seen.idle = seen.idle + 1 if computing and now == seen.before else 0
            seen.before = now
            if seen.stopped >= STOPPED_LOOKS:
                return rank, "is stopped, as by SIGSTOP"
            if seen.idle >= IDLE_LOOKS:
                return rank, f"hangs: it has done nothing for some seconds, and others wait in exchange {last}"
        return None


def read_state(process: int, proc: Path = PROC) -> ProcessState | None:
    """Return what a process does, None where it is gone."""
    try:
        text = (proc / str(process) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # a program's name may have blanks and brackets
    return ProcessState(fields[0], int(fields[11]) + int(fields[12]))


def describe_end(code: int) -> str:
    """Say how a process has ended, by the code that `subprocess` has."""
    if code == -9:
        return "was killed (SIGKILL): by somebody, or by the system for want of memory"
    if code < 0:
        known = {number.value: f" ({number.name})" for number in signal.Signals}
        return f"was ended by signal {-code}{known.get(-code, '')}"
    return f"ended with exit code {code}"
