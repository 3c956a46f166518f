"""Which faults hit which study, and when: drawn from a seed, so that each study can be repeated by itself. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

# What each kind does to a study that runs; `kinds.py` has a function for each.
PROCESSES = {
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

# ... and `surroundings.py` for these.
SURROUNDINGS = {
    "PRE killed at a flush": "SIGKILL to PRE as it waits for the disk; half of what it wrote is there",
    "POST killed at a flush": "the same in POST",
    "power cut in PRE": "what PRE had not flushed is gone, and all processes are; the pool is started again",
    "power cut in POST": "the same in POST",
    "machine rebooted": "SIGKILL to all processes of the pool at once, and the pool is started again",
    "shared port killed": "SIGKILL to condor_shared_port",
    "procd killed": "SIGKILL to condor_procd, by which HTCondor follows processes",
    "quota reached": "EDQUOT for PRE and POST wherever they write, for 1 to 5 s",
    "run directory read-only": "EROFS for the same",
    "result unreadable": "EACCES for POST when it reads result.json, for 1 to 5 s",
    "disk with errors": "EIO for each flush of PRE, POST and trainings, for 1 to 5 s",
    "slow disk": "each flush of PRE, POST and trainings takes 1.5 s more, for 5 to 15 s",
    "script without memory": "a PRE or POST gets no more memory than it has",
    "training without memory": "a training gets no more memory than it has",
    "script without open files": "a PRE or POST can open no more files",
    "input corrupted in transit": "a bit of a job's data is another when it has arrived",
    "checkpoint corrupted": "a bit of an evicted job's checkpoint is another before the job goes on",
    "GPU lost": "a training is told in the midst of it that its device is gone",
    "Python missing": "a job finds no interpreter on its machine, once",
    "training asked to stop": "SIGTERM to a training, of which HTCondor knows nothing",
    "training frozen": "SIGSTOP to a training for 1 to 10 s",
    "script frozen": "SIGSTOP to a PRE or POST for 1 to 10 s",
    "DAGMan frozen": "SIGSTOP to DAGMan for 1 to 10 s",
    "DAG held": "condor_hold of DAGMan's job, and condor_release seconds later",
    "worker vacated": "condor_vacate of all that runs on the worker",
    "schedd restarted": "condor_restart -schedd",
    "worker restarted": "condor_restart -startd -fast",
    "pool reconfigured": "condor_reconfig -all",
    "submitted twice": "regiondag submit while the DAG runs",
    "manager upgraded": "all commands are those of another version of regiondag from now on",
    "folder restored": "a region's folder is replaced by a copy of it, between two scripts",
}

# ... and those that came last, beside some of the others that may make them worse.
LATEST = {
    "node log deleted": "the log in which DAGMan reads of its nodes' jobs is gone",
    "node log cut": "the same log is cut at a random byte",
    "training killed by its cgroup": "the kernel kills a training in a control group that gives it no more memory",
    "script killed by its cgroup": "the same for a PRE or POST",
}
BESIDE = ("dagman killed", "schedd killed", "machine rebooted", "DAG held", "DAG removed", "POST killed", "evicted")

KINDS = PROCESSES | SURROUNDINGS | LATEST

LAST = ("model truncated",)  # what can hit only the end of a study comes after its other faults
ALONE = (
    "pool stopped",
    "DAG removed",
    "power cut in PRE",
    "power cut in POST",
    "machine rebooted",
    "DAG held",
    "submitted twice",
    "manager upgraded",
)  # a person's commands, which may refuse when something else fails as well

PER_STUDY = 16
MEAN_GAP = 1.5  # seconds between two faults; the wait for something to hit comes on top
TOGETHER = 0.9  # of the faults get another within a second, where that may be
# Studies that were run when it was fewer, and stay what they were.
FEWER_TOGETHER, EARLIER = 0.4, frozenset([*range(15), 18])
LATEST_FROM = 31
SUITES = ("trixie", "forky")  # whose HTCondor runs the studies in turn


@dataclass(frozen=True)
class Fault:
    """One fault: how long after the one before, what, and numbers in [0, 1) for all that is left to chance."""

    kind: str
    gap: float
    target: float  # which of those that could be hit
    amount: float  # how much, how long or when exactly
    beside: bool = False  # hits together with the one before, `gap` seconds after that began


def suite_of(study: int) -> str:
    """Return the Debian release whose HTCondor runs a study."""
    return SUITES[study % len(SUITES)]


def half_of(study: int) -> tuple[dict[str, str], int]:
    """Return the kinds of which a study is hit, and its number among those.

    Three of five get the first half; from a certain one on they get those that came last.
    """
    if study >= LATEST_FROM:
        return LATEST | {kind: KINDS[kind] for kind in BESIDE}, study - LATEST_FROM
    fives, rest = divmod(study, 5)
    return (PROCESSES, 3 * fives + rest) if rest < 3 else (SURROUNDINGS, 2 * fives + rest - 3)


def together_of(study: int) -> float:
    """Return which share of a study's faults gets another beside it."""
    return FEWER_TOGETHER if study in EARLIER else TOGETHER


def schedule(
    seed: int, study: int, kinds: Sequence[str], per_study: int = PER_STUDY, together: float = TOGETHER
) -> list[Fault]:
    """Return the faults of one study.

    Kinds are dealt from one pack after the other, so that each comes as often as the others.
    """
    first = study * per_study
    packs = range(first // len(kinds), (first + per_study - 1) // len(kinds) + 1)
    dealt = [kind for pack in packs for kind in _shuffled(seed, pack, kinds)]
    offset = first - packs.start * len(kinds)
    chance = random.Random(f"{seed} study {study}")
    faults: list[Fault] = []
    for kind in sorted(dealt[offset : offset + per_study], key=LAST.__contains__):
        gap, target, amount = _gap(chance), round(chance.random(), 6), round(chance.random(), 6)
        beside = chance.random() < together and bool(faults) and _may_be_beside(faults[-1], kind)
        faults.append(Fault(kind, round(gap / (4 * MEAN_GAP), 3) if beside else gap, target, amount, beside))
    return faults


def cases_of(faults: Sequence[Fault]) -> list[list[Fault]]:
    """Return the faults in groups of one, or of two that hit at once."""
    cases: list[list[Fault]] = []
    for fault in faults:
        if fault.beside:
            cases[-1].append(fault)
        else:
            cases.append([fault])
    return cases


def _may_be_beside(first: Fault, kind: str) -> bool:
    return not first.beside and first.kind != kind and not {first.kind, kind} & set(ALONE)


def _shuffled(seed: int, pack: int, kinds: Sequence[str]) -> list[str]:
    cards = list(kinds)
    random.Random(f"{seed} pack {pack}").shuffle(cards)
    return cards


def _gap(chance: random.Random) -> float:
    return round(min(-MEAN_GAP * math.log(1 - chance.random()), 4 * MEAN_GAP), 3)
