"""Real pools: to start one, to submit to it, and to read from logs when its nodes ran."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from regiondag.pool.pool import Pool, require_pool
from regiondag.run.layout import NodeName, RunFolder
from scripts.bench.common.harness import number
from scripts.bench.common.processes import NotMeasuredError

ENDED = "EXITING WITH STATUS"  # DAGMan's last word in its log
REGIONDAG = (sys.executable, "-m", "regiondag")

# Milliseconds in the event log, where else are whole seconds; UTC, as the pool may live in another time zone.
POOL_CONFIG = "DEFAULT_USERLOG_FORMAT_OPTIONS = ISO_DATE, SUB_SECOND, UTC\n"


@contextmanager
def pool_up(name: str, suite: str, area: Path, gpus: int = 0, cpus: int = 0, more: str = "") -> Iterator[Pool]:
    """Start an embedded pool, with so many slots of one core and `more` settings, and remove it at the end."""
    config = area / f"{name}.conf"
    config.write_text(POOL_CONFIG + (f"NUM_CPUS = {cpus}\n" if cpus else "") + more, encoding="utf-8")
    up: list[str | Path] = [*REGIONDAG, "pool", "up", "--name", name, "--suite", suite, "--config", config]
    try:
        done = subprocess.run(
            [*up, *(["--simulate-gpus", str(gpus)] if gpus else [])], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NotMeasuredError(f"no pool of {suite}: {done.stderr.strip()[-300:]}")
        yield require_pool(name)
    finally:
        subprocess.run([*REGIONDAG, "pool", "down", "--name", name, "--purge"], capture_output=True, check=False)


def wait_for(condition: Callable[[], bool], seconds: float, what: str, every: float = 0.02) -> None:
    """Look again and again until it holds; seldom where that takes time from the pool."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise NotMeasuredError(f"{what}: not within {seconds:.0f} s")
        time.sleep(every)


def submit(pool: Pool, dag: Path, *options: str) -> None:
    """Hand a DAG to condor_submit_dag."""
    done = pool.run(["condor_submit_dag", *options, dag.name], cwd=dag.parent, capture_output=True)
    if done.returncode:
        raise NotMeasuredError(f"condor_submit_dag: {(done.stderr or done.stdout).strip()[-300:]}")


@dataclass(frozen=True)
class Barrier:
    """Seconds between the last job's end of one round and the first job's start of the next, and what they hold."""

    settle: float  # job end -> outcome in the journal: DAGMan reads its log, starts POST
    post_end: float  # -> DAGMan has noted that the last POST ended
    propose: float  # -> proposals in the journal: DAGMan starts PRE, which fits the model
    submit: float  # -> job in the queue: PRE ends, DAGMan's next turn
    start: float  # -> job runs: negotiation, claim, file transfer

    @property
    def total(self) -> float:
        """The whole barrier."""
        return float(sum(getattr(self, field.name) for field in fields(self)))

    def __str__(self) -> str:
        return ", ".join(f"{field.name} {number(getattr(self, field.name), 's')}" for field in fields(self))


@dataclass
class Times:
    """When things happened to one node, as Unix times."""

    submitted: float = math.nan
    executing: float = math.nan
    ended: float = math.nan
    post_ended: float = math.nan
    settled: float = math.nan
    proposed: float = math.nan


EVENTS = {0: "submitted", 1: "executing", 5: "ended", 16: "post_ended"}  # numbers of HTCondor's events


def read_events(log: Path) -> dict[str, Times]:
    """Read a DAG's event log: the first time of each event, by node."""
    given = os.environ.get("CONDOR_CONFIG")
    import htcondor2  # sets CONDOR_CONFIG where there is none, which the pools started after this would inherit

    if given is None:
        os.environ.pop("CONDOR_CONFIG", None)
    times: dict[str, Times] = {}
    nodes: dict[int, str] = {}
    for event in htcondor2.JobEventLog(str(log)).events(stop_after=0):
        what = EVENTS.get(event["EventTypeNumber"])
        if what == "submitted":
            nodes[event.cluster] = str(event["LogNotes"]).removeprefix("DAG Node: ")
        if what and event.cluster in nodes:
            node = times.setdefault(nodes[event.cluster], Times())
            if math.isnan(getattr(node, what)):
                setattr(node, what, datetime.fromisoformat(event["EventTime"]).replace(tzinfo=UTC).timestamp())
    return times


def slots_taken(nodes: Mapping[NodeName, Times], slots: int) -> Iterator[tuple[NodeName, float]]:
    """Give the nodes as they began, and since when the slot of each was free: the one that was so for the longest."""
    free = [-math.inf] * slots
    for node in sorted(nodes, key=lambda node: nodes[node].executing):
        slot = min(range(slots), key=free.__getitem__)
        yield node, free[slot]
        free[slot] = nodes[node].ended


def barrier(before: Sequence[Times], after: Sequence[Times]) -> Barrier:
    """Split one barrier at the moments that the logs hold; without scripts all lies before the submission."""
    ended = max(node.ended for node in before)
    submitted = min(node.submitted for node in after)
    executing = min(node.executing for node in after)
    if any(math.isnan(node.settled) for node in before):
        return Barrier(0.0, 0.0, 0.0, submitted - ended, executing - submitted)
    settled = max(node.settled for node in before)
    post_ended = max(node.post_ended for node in before)
    proposed = min(node.proposed for node in after)
    return Barrier(
        settled - ended, post_ended - settled, proposed - post_ended, submitted - proposed, executing - submitted
    )


def add_journals(run: RunFolder, times: Mapping[str, Times]) -> None:
    """Take from the journals when each trial was proposed and settled."""
    for journal in run.path.glob("regions/*/trials.jsonl"):
        for line in journal.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            trial = record.get("trial")  # some events are of the region, and the final job has no number
            node = None if trial is None else times.get(f"{journal.parent.name}_t{trial:04d}")
            if node and record["event"] in ("proposed", "settled"):
                setattr(node, record["event"], record["time"])


def averaged(barriers: Sequence[Barrier], average: Callable[[Iterable[float]], float]) -> Barrier:
    """Return the mean or median of each part (medians need not add up to the median of the whole)."""
    return Barrier(*(average([getattr(one, field.name) for one in barriers]) for field in fields(Barrier)))


def dotted(pool: Pool) -> str:
    """Return the pool's version."""
    return ".".join(map(str, pool.version))


def read_end(path: Path) -> str:
    """Return the last lines of a log, nothing where there is none yet."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - 600, 0))
        return file.read().decode(errors="replace")
