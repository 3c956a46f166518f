"""Which faults hit which study, and when: drawn from a seed, so that each study can be repeated by itself. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

# What each kind does to a study that runs; `kinds.py` has a function for each.
KINDS = {
    "trainer killed": "SIGKILL to a training",
    "starter killed": "SIGKILL to a condor_starter",
    "shadow killed": "SIGKILL to a condor_shadow",
    "startd killed": "SIGKILL to condor_startd",
    "worker killed": "SIGKILL to condor_startd, all starters and all trainings at once, as if the machine was lost",
    "worker frozen": "SIGSTOP to all of these for 1 to 10 s, as if the machine or its network had stood still",
    "manager frozen": "SIGSTOP to condor_schedd, all shadows and DAGMan for 1 to 10 s",
    "worker's connections cut": "the kernel ends all TCP connections of the worker's processes (ss -K)",
    "schedd killed": "SIGKILL to condor_schedd",
    "dagman killed": "SIGKILL to condor_dagman",
    "negotiator killed": "SIGKILL to condor_negotiator",
    "collector killed": "SIGKILL to condor_collector",
    "PRE killed": "SIGKILL to a PRE script at a random moment",
    "POST killed": "SIGKILL to a POST script at a random moment",
    "PRE killed in mid-write": "SIGKILL to PRE when a part of its lines is in the journal",
    "POST killed in mid-write": "SIGKILL to POST when a part of its line is in the journal",
    "evicted": "condor_vacate_job",
    "evicted fast": "condor_vacate_job -fast",
    "worker's disk full": "no byte left where jobs run, for some seconds",
    "manager's disk full": "no byte left where the run directory lies, for some seconds",
    "result truncated": "a part of result.json is cut off before POST reads it",
    "model truncated": "a part of the final model is cut off before POST reads it",
    "checkpoint truncated": "an evicted job's checkpoint is cut in the spool before the job goes on",
    "clock jumped": "the pool's clock moves by up to 30 minutes ahead, or a minute back",
    "pool stopped": "regiondag pool down, and up again",
    "job held": "condor_hold, and condor_release seconds later",
    "DAG removed": "condor_rm of DAGMan's job, and regiondag submit",
    "input corrupted": "a data file has other bytes for some seconds",
}

LAST = ("model truncated",)  # what can hit only the end of a study comes after its other faults

PER_STUDY = 8
MEAN_GAP = 1.5  # seconds between two faults; the wait for something to hit comes on top


@dataclass(frozen=True)
class Fault:
    """One fault: how long after the one before, what, and numbers in [0, 1) for all that is left to chance."""

    kind: str
    gap: float
    target: float  # which of those that could be hit
    amount: float  # how much, how long or when exactly


def schedule(seed: int, study: int, kinds: Sequence[str], per_study: int = PER_STUDY) -> list[Fault]:
    """Return the faults of one study.

    Kinds are dealt from one pack after the other, so that each comes as often as the others.
    """
    first = study * per_study
    packs = range(first // len(kinds), (first + per_study - 1) // len(kinds) + 1)
    dealt = [kind for pack in packs for kind in _shuffled(seed, pack, kinds)]
    offset = first - packs.start * len(kinds)
    chance = random.Random(f"{seed} study {study}")
    return [
        Fault(kind, _gap(chance), round(chance.random(), 6), round(chance.random(), 6))
        for kind in sorted(dealt[offset : offset + per_study], key=LAST.__contains__)
    ]


def _shuffled(seed: int, pack: int, kinds: Sequence[str]) -> list[str]:
    cards = list(kinds)
    random.Random(f"{seed} pack {pack}").shuffle(cards)
    return cards


def _gap(chance: random.Random) -> float:
    return round(min(-MEAN_GAP * math.log(1 - chance.random()), 4 * MEAN_GAP), 3)
