"""What the orchestration benchmark does with a real pool: parse large DAGs, and time the barrier between two rounds."""

from __future__ import annotations

import itertools
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from harness import NotMeasuredError, number

from regiondag.pool.pool import Pool, require_pool
from regiondag.run.layout import parse_node
from regiondag.tuning.propose import INITIAL_MOST, INITIAL_SHARE

REGIONDAG = (sys.executable, "-m", "regiondag")

# Milliseconds in the event log, where else are whole seconds; UTC, as the pool may live in another time zone.
POOL_CONFIG = "DEFAULT_USERLOG_FORMAT_OPTIONS = ISO_DATE, SUB_SECOND, UTC\n"

SLEEP_SUBMIT = """\
universe = vanilla
executable = /bin/sleep
arguments = 1
transfer_executable = False
should_transfer_files = YES
request_cpus = 1
request_memory = 16MB
request_disk = 10MB
queue
"""

STAMP = "%m/%d/%y %H:%M:%S"
SCRIPT_RUN = re.compile(
    r"^(\S+ \S+) (Running (PRE|POST) script of Node|(PRE|POST) Script of node) (\w+)", re.IGNORECASE
)


@contextmanager
def pool_up(name: str, suite: str, area: Path, gpus: int = 0, settings: str = POOL_CONFIG) -> Iterator[Pool]:
    """Start an embedded pool of this benchmark, and remove it at the end."""
    config = area / f"{name}.conf"
    config.write_text(settings, encoding="utf-8")
    up = [*REGIONDAG, "pool", "up", "--name", name, "--suite", suite, "--config", config]
    try:
        done = subprocess.run(
            [*up, *(["--simulate-gpus", str(gpus)] if gpus else [])], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NotMeasuredError(f"no pool of {suite}: {done.stderr.strip()[-300:]}")
        yield require_pool(name)
    finally:
        subprocess.run([*REGIONDAG, "pool", "down", "--name", name, "--purge"], capture_output=True, check=False)


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Look again and again until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise NotMeasuredError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.02)


def submit(pool: Pool, dag: Path, *options: str) -> None:
    """Hand a DAG to condor_submit_dag."""
    done = pool.run(["condor_submit_dag", *options, dag.name], cwd=dag.parent, capture_output=True)
    if done.returncode:
        raise NotMeasuredError(f"condor_submit_dag: {(done.stderr or done.stdout).strip()[-300:]}")


@dataclass(frozen=True)
class Parsed:
    """What a program of HTCondor made of a DAG."""

    seconds: float
    peak_mb: float | None
    nodes: int


def check_dag(pool: Pool, dag: Path, timeout: float) -> Parsed:
    """Parse with condor_dag_checker."""
    argv = ["condor_dag_checker", "-NoJoinNodes", "-Statistics", str(dag)]
    begin = time.perf_counter()
    try:
        done = pool.run(argv, cwd=dag.parent, capture_output=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise NotMeasuredError(f"condor_dag_checker took more than {timeout:.0f} s") from None
    seconds = time.perf_counter() - begin
    nodes = re.search(r"NumNodes = (\d+)", done.stdout)
    if done.returncode or not nodes:
        raise NotMeasuredError(f"condor_dag_checker: {(done.stdout + done.stderr).strip()[-300:]}")
    return Parsed(seconds, None, int(nodes[1]))


def parse_dag(pool: Pool, dag: Path, timeout: float) -> Parsed:
    """Submit with -DumpRescue: condor_dagman itself parses all, writes a rescue DAG and ends without running anything.

    The time is from DAGMan's start to its "Dumping rescue DAG"; the memory is its peak up to there.
    """
    _forget(dag)
    out = dag.with_name(f"{dag.name}.dagman.out")
    submit(pool, dag, "-DumpRescue")
    wait_for(lambda: "STARTING UP" in _read(out), 60, "start of condor_dagman")
    begin = time.perf_counter()
    peak = 0.0

    def parsed() -> bool:
        nonlocal peak
        peak = max(peak, _dagman_peak(dag.parent))
        return "Dumping rescue DAG" in _read(out)

    wait_for(parsed, timeout, f"parsing by condor_dagman {'.'.join(map(str, pool.version))}")
    seconds = time.perf_counter() - begin
    wait_for(lambda: "EXITING WITH STATUS" in _read(out), timeout, "the rescue DAG")
    count = re.search(r"Of (\d+) nodes total", _read(out))
    _forget(dag)
    return Parsed(seconds, peak or None, int(count[1]) if count else 0)


def _forget(dag: Path) -> None:
    """Remove what HTCondor wrote beside the DAG."""
    for path in dag.parent.glob(f"{dag.name}.*"):
        path.unlink()


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _dagman_peak(folder: Path) -> float:
    """Return the peak memory in MB of the condor_dagman that works in `folder`, 0 if there is none."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder and b"-DumpRescue" in (process / "cmdline").read_bytes():
                return int(re.search(r"VmHWM:\s+(\d+)", (process / "status").read_text())[1]) / 1024  # type: ignore[index]
        except (OSError, TypeError):  # it ended, or is somebody else's
            continue
    return 0.0


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
        return sum(getattr(self, field.name) for field in fields(self))

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


def rounds_of(times: Mapping[str, Times], parallel: int) -> list[tuple[int, list[Times], list[Times]]]:
    """Return (round, its trials, the next round's trials) of every region; final trainings are left out."""
    found: dict[tuple[str, int], list[Times]] = {}
    for name, node in times.items():
        trial = parse_node(name)
        if trial.number is not None:
            found.setdefault((trial.slug, trial.number // parallel), []).append(node)
    return [
        (index, trials, found[slug, index + 1]) for (slug, index), trials in found.items() if (slug, index + 1) in found
    ]


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


def fits_model(index: int, parallel: int, rounds: int) -> bool:
    """Return whether the round after round `index` is proposed by a model rather than at random."""
    return (index + 1) * parallel >= min(max(math.ceil(INITIAL_SHARE * rounds * parallel), 2), INITIAL_MOST)


def median_of(barriers: Sequence[Barrier]) -> Barrier:
    """Return the median of each part (they need not add up to the median of the whole)."""
    return Barrier(*(statistics.median(getattr(one, field.name) for one in barriers) for field in fields(Barrier)))


def script_seconds(dagman_out: str) -> dict[str, float]:
    """Return the mean duration of PRE and POST from DAGMan's own log (whole seconds, so only the mean says much)."""
    begun: dict[tuple[str, str], datetime] = {}
    lasted: dict[str, list[float]] = {"PRE": [], "POST": []}
    for line in dagman_out.splitlines():
        match = SCRIPT_RUN.match(line)
        if not match:
            continue
        stamp, kind, node = datetime.strptime(match[1], STAMP), match[3] or match[4], match[5]
        if match[3]:
            begun[kind, node] = stamp
        elif (kind, node) in begun:
            lasted[kind].append((stamp - begun.pop((kind, node))).total_seconds())
    return {kind: statistics.mean(values) for kind, values in lasted.items() if values}


def plain_dag(folder: Path, regions: int, rounds: int, parallel: int) -> Path:
    """Write a DAG of the same graph without scripts, by hand: what HTCondor itself needs between two rounds."""
    folder.mkdir()
    (folder / "sleep.sub").write_text(SLEEP_SUBMIT, encoding="utf-8")
    (folder / "dagman.config").write_text("DAGMAN_USE_JOIN_NODES = False\n", encoding="utf-8")
    lines = [f"CONFIG {folder}/dagman.config"]
    for region in range(regions):
        names = [f"region-{region}_t{number:04d}" for number in range(rounds * parallel)]
        lines += [f"JOB {name} sleep.sub" for name in names]
        layers = [names[first : first + parallel] for first in range(0, len(names), parallel)]
        for parents, children in itertools.pairwise(layers):
            lines.append(f"PARENT {' '.join(parents)} CHILD {' '.join(children)}")
    dag = folder / "study.dag"
    dag.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return dag
