"""Processes that train one network together, and what they answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nnlib.parallel.host import create_board
from nnlib.parallel.places import VISIBLE, gpus_of
from scripts.bench.common.child import Answer, Child
from scripts.bench.common.environments import torch_python
from scripts.bench.common.processes import ONE_THREAD
from scripts.bench.common.workload import STEP
from scripts.bench.level3.work import GPU, Ranked, split

ANSWER = 300.0  # seconds in which all ranks must be ready, or have done a command


@dataclass
class Team:
    """All ranks of a training, ready; and the milliseconds of a step that they have taken, round by round."""

    work: Ranked
    ranks: Sequence[Child]
    ready: list[Answer]
    rounds: list[list[Answer]] = field(default_factory=list)

    def ask(self, command: str) -> list[Answer]:
        """Return the answers of all ranks: none of them gets on without the others."""
        for rank in self.ranks:
            rank.tell(command)
        return [rank.answer(ANSWER) for rank in self.ranks]

    def measure(self, command: str = STEP) -> list[Answer]:
        """Train for some steps, or do another command; keep and return what each rank says."""
        self.rounds.append(self.ask(command))
        return self.rounds[-1]

    @property
    def cpus(self) -> list[float]:
        """Processor time of the rank that had most to do, without waiting, by round."""
        return [max(answer["cpu"] for answer in answers) for answers in self.rounds]

    @property
    def walls(self) -> list[float]:
        """Time of a step, until the last rank was done, by round."""
        return [max(answer["wall"] for answer in answers) for answers in self.rounds]

    @property
    def sent(self) -> float:
        """Bytes of sums that a rank sent in a step; NaN where ranks or rounds differ."""
        found = {answer["sent"] for answers in self.rounds for answer in answers}
        return float(found.pop()) if len(found) == 1 else float("nan")


@contextmanager
def team(work: Ranked, ranks: int, area: Path, threads: int = 1) -> Iterator[Team]:
    """Start the ranks of a work, ours or, where it has a `way`, PyTorch's; ranks on GPUs get one each."""
    with ExitStack() as stack:
        if work.way:
            meeting = str(area / f"store-{len(list(area.iterdir()))}")
            python, name = torch_python(), "level3.peer"
        else:
            board = create_board(ranks)
            stack.callback(os.close, board)
            meeting = f"/proc/{os.getpid()}/fd/{board}"
            python, name = Path(sys.executable), "level3.rank"
        children = [
            stack.enter_context(Child(python, name, one.arguments(), env=environment(one, threads)))
            for one in split(work, ranks, meeting)
        ]
        yield Team(work, children, [child.answer(ANSWER) for child in children])


def environment(work: Ranked, threads: int) -> Mapping[str, str]:
    """Return the variables of a rank."""
    env = dict.fromkeys(ONE_THREAD, str(threads))
    if work.device == GPU:
        env[VISIBLE] = gpus_of(work.ranks, os.environ)[work.rank]
    return env
