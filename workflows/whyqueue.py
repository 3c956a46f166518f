"""Why DAGMan, and the jobs that are in the queue, are where they are: idle, held, gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workflows import condor
from workflows.daglog import DagState, read_dag_log
from workflows.errors import PoolError
from workflows.holds import is_spared, kind_of, removed_after
from workflows.names import RunFolder, dagman_file
from workflows.plaintext import duration
from workflows.pool import Pool, require_pool
from workflows.preflight import mismatch
from workflows.submission import rescue_files

RULES_EVERY = 60  # seconds between two looks of HTCondor at a job's own rules
SHOWN = 4  # names in one line


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one thing is as it is. `state` is one word or two: idle, held, slow, failed, waiting, stopped ..."""

    subject: str  # a node, some nodes, a region or a DAG
    state: str
    why: str
    advice: str = ""  # what to do, or what will happen by itself
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dag:
    """One submitted graph: what its log says, and its job's status in the queue (None: it is not there)."""

    path: Path
    state: DagState
    queued: str | None
    hold_reason: str = ""

    @property
    def alive(self) -> bool:
        """Whether DAGMan works on it, as far as is known."""
        return self.state.ended is None and self.queued == "running"


@dataclass(frozen=True, slots=True)
class Queue:
    """What HTCondor says of a run now. `unknown` says why the queue could not be asked."""

    dags: tuple[Dag, ...]
    jobs: tuple[condor.QueuedJob, ...] = ()
    idle: tuple[tuple[condor.ClassAd, tuple[str, ...]], ...] = ()
    slots: tuple[condor.ClassAd, ...] = ()
    free: tuple[condor.ClassAd, ...] = ()  # what is free of them now
    unknown: str = ""
    holds: Mapping[str, condor.Held] = field(default_factory=dict)  # by node
    by_node: dict[str, condor.QueuedJob] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        """Whether a DAGMan is at work."""
        return any(dag.alive for dag in self.dags)


def look(run: RunFolder, slugs: Iterable[str], pool: Pool | None, pool_name: str | None = None) -> Queue:
    """Read DAGMan's own logs, and ask the queue and the slots if there is a pool."""
    paths = [run.study_dag, *(run.region(slug).dag for slug in slugs)]
    known = [(path, read_dag_log(dagman_file(path, "dagman.log"))) for path in paths]
    states = [(path, state) for path, state in known if state is not None]
    if all(state.ended is not None for _, state in states):
        return Queue(tuple(Dag(path, state, None) for path, state in states))
    if pool is None:
        return Queue(tuple(Dag(path, state, None) for path, state in states), unknown=_no_pool(pool_name))
    try:
        return _ask(pool, states)
    except PoolError as error:
        return Queue(tuple(Dag(path, state, None) for path, state in states), unknown=str(error))


def _no_pool(name: str | None) -> str:
    """Say why there is no pool."""
    try:
        require_pool(name)
    except PoolError as error:
        return str(error)
    return "no pool was asked"


def _ask(pool: Pool, states: Sequence[tuple[Path, DagState]]) -> Queue:
    dags, jobs, idle = [], [], []
    holds: dict[str, condor.Held] = {}
    for path, state in states:
        queued = condor.query_status(pool, state.cluster) if state.ended is None else None
        dags.append(Dag(path, state, queued, condor.query_hold(pool, state.cluster) if queued == "held" else ""))
        if state.ended is None:
            jobs += condor.query_jobs(pool, state.cluster)
            idle += condor.query_idle(pool, state.cluster)
            holds |= condor.query_held(pool, state.cluster)
    slots = condor.query_slots(pool) if idle else []
    free = condor.query_slots(pool, now=True) if idle else []
    by_node = {job.node: job for job in jobs}
    return Queue(tuple(dags), tuple(jobs), tuple(idle), tuple(slots), tuple(free), "", holds, by_node)


def explain_dags(run: RunFolder, queue: Queue) -> Iterator[Explanation]:
    """Say what is wrong with the graphs; nothing of those that DAGMan works on or has done."""
    if queue.unknown:
        yield Explanation(
            "queue",
            "unknown",
            queue.unknown,
            "what follows is by the journals and event logs alone: no idle and held jobs",
        )
    if not queue.dags:
        yield Explanation(
            run.path.name, "not submitted", "no DAG of it was ever submitted", f"regiondag submit {run.path}"
        )
    for dag in queue.dags:
        found = _explain_dag(run, dag, known=not queue.unknown)
        if found:
            yield found


def _explain_dag(run: RunFolder, dag: Dag, *, known: bool) -> Explanation | None:
    name, state = str(dag.path.relative_to(run.path)), dag.state
    again = f"regiondag submit {run.path}" + ("" if dag.path == run.study_dag else f" --region {dag.path.parent.name}")
    if state.ended is not None:
        if state.exit_code == 0:
            return None
        text = "its job was removed" if state.status == "removed" else f"it ended with exit code {state.exit_code}"
        rescue = rescue_files(dag.path)
        left = f"; {rescue[-1].name} says what is done" if rescue else ""
        return Explanation(name, "ended" if state.status != "removed" else "removed", text + left, f"to go on: {again}")
    if not known:
        text = f"by its log its job {state.cluster} is {state.status}; whether that is still so is not known"
        return Explanation(name, state.status, text)
    if dag.queued is None:
        lock = "; its lock is still there, which submitting clears" if dagman_file(dag.path, "lock").exists() else ""
        text = f"its log has no end, and job {state.cluster} is not in the queue: DAGMan crashed, or the queue is gone"
        return Explanation(name, "crashed", text + lock, f"to go on: {again}")
    if dag.queued == "held":
        text = (
            f"its job {state.cluster} is held, and nothing new is submitted: {dag.hold_reason or 'no reason is given'}"
        )
        return Explanation(name, "held", text, f"condor_release {state.cluster}")
    if dagman_file(dag.path, "halt").exists():
        text = "it is halted: nothing new is submitted while its file .halt is there"
        return Explanation(name, "halted", text, f"rm {dagman_file(dag.path, 'halt')}")
    if dag.queued != "running":
        text = f"its job {state.cluster} is {dag.queued}: the schedd has not started DAGMan (yet)"
        return Explanation(
            name, dag.queued, text, "that takes some seconds; the pool may limit how many DAGs run at a time"
        )
    return None


def explain_held(job: condor.QueuedJob, held: condor.Held, now: float) -> Explanation:
    """Say why a job is held, for how long, and what ends that."""
    kind = kind_of(held.code)
    since = max(now - job.since, 0.0)
    reason = job.hold_reason or "no reason is given"
    return Explanation(
        job.node,
        "held",
        f"{kind.meaning}, {duration(since)} ago: {reason} (code {held.code})",
        f"{kind.advice.replace('JOB', job.job)}; {_ends_hold(held, since)}",
    )


def _ends_hold(held: condor.Held, since: float) -> str:
    """Say which rule of its own ends a job's hold."""
    if held.released == "now":
        return f"its own rule releases it at HTCondor's next look, within {RULES_EVERY} s"
    if held.released == "later":
        return "its own rule releases it by itself after a while"
    limit = removed_after(held.removal)
    if not held.removal or is_spared(held.removal, held.code):
        return "no rule of its own ends this"
    if limit is None:
        return f"it is removed when this holds: {held.removal}"
    return (
        f"if nothing else happens it is removed in {duration(max(limit - since, 0.0))}, and its node counts as removed"
    )


def explain_idle(queue: Queue, wanted: Sequence[str], now: float) -> Iterator[Explanation]:
    """Say why the jobs of these nodes are idle: one explanation for each kind of job."""
    for ad, nodes in queue.idle:
        shown = [node for node in nodes if node in wanted]
        jobs = [queue.by_node[node] for node in shown if node in queue.by_node]
        if not jobs:
            continue
        waited = max(now - min(job.since for job in jobs), 0.0)
        why, advice = _why_idle(ad, queue)
        limit = removed_after(condor.rule_of(ad, "PeriodicRemove"), status=1)
        if limit is not None:
            advice += f"; a job that is idle for {duration(limit)} is removed"
        before = [f"{job.node} was started {job.starts} times before" for job in jobs if job.starts]
        yield Explanation(some(shown), "idle", f"for {duration(waited)}: {why}", advice, tuple(before[:SHOWN]))


def _why_idle(ad: condor.ClassAd, queue: Queue) -> tuple[str, str]:
    if not queue.slots:
        return (
            "the pool has no slot at all",
            "no worker has joined, or all have left: regiondag pool status, fleet status",
        )
    match = condor.match(ad, queue.slots)
    if not match.matching:
        return mismatch(match), "change what `job` asks for in study.yaml, or add a machine that offers it"
    free = condor.match(ad, queue.free).matching if queue.free else ()
    if free:
        return f"{len(free)} slots that match are free", "it gets one when the pool hands slots out next"
    count = len(match.matching)
    return f"all {count} slots that match ({some(match.matching)}) are busy", "it waits its turn; more workers help"


def some(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"
