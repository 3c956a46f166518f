"""`regiondag fleet scale --watch`: the same look again and again, with little said where little changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from regiondag.errors import AwsError, PoolError
from regiondag.fleet.backoff import Memory, remember
from regiondag.fleet.demand import GpuRequest, Worker
from regiondag.fleet.ec2 import Instance

Text = Callable[[str], None]
Recall = Callable[[Sequence[Instance], Mapping[str, Worker], Sequence[GpuRequest]], Memory]


def select_news(tell: Text) -> tuple[Text, Callable[[], None]]:
    """Return a `tell` that leaves out what was said in the round before, and how to begin the next round."""
    before: set[str] = set()
    now: set[str] = set()

    def tell_news(text: str) -> None:
        if text not in before:
            tell(text)
        now.add(text)

    def next_round() -> None:
        before.clear()
        before.update(now)
        now.clear()

    return tell_news, next_round


def recall_looks() -> Recall:
    """Return what adds a look to all looks before it; a look that then fails to start workers has still been one."""
    memory = Memory()

    def recall(alive: Sequence[Instance], workers: Mapping[str, Worker], requests: Sequence[GpuRequest]) -> Memory:
        nonlocal memory
        memory = remember(memory, alive, workers, requests)
        return memory

    return recall


def watch(step: Callable[[], object], seconds: float, tell: Text, pause: Callable[[float], None] = time.sleep) -> None:
    """Repeat `step` for ever. What may pass by itself -- a busy AWS, a network, a pool that restarts -- is survived."""
    first = True
    while True:
        try:
            step()
        except (AwsError, PoolError) as error:
            # What no waiting cures: a refusal of AWS, and no pool from the start.
            if not getattr(error, "temporary", isinstance(error, PoolError) and not first):
                raise
            tell(f"{error}\nlooking again in {seconds:g} seconds")
        first = False
        pause(seconds)
