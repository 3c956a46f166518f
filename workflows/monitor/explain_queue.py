"""Why DAGMan, and the jobs that are in the queue, are where they are: idle, held, gone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regiondag.condor import classads, client, matching
from regiondag.condor.events.dag_log import DagState, read_dag_log
from regiondag.condor.holds import is_spared, kind_of, removal_limit
from regiondag.condor.preflight import find_mismatch
from regiondag.condor.submit import list_rescue_files, suggest_submit
from regiondag.errors import PoolError
from regiondag.pool.pool import Pool, why_absent
from regiondag.run.layout import RunFolder, dagman_file, dagman_log
from regiondag.util.text import list_some, show_duration

RULES_EVERY = 60  # seconds between two looks of HTCondor at a job's own rules
SHOWN = 4  # names in one line

# What PRE adds to the requirements of a node that a machine failed: see `attempt.sub`.
_AVOIDED = re.compile(r'TARGET\.Machine (?:=!=|isnt) "((?:[^"\\]|\\.)*)" \|\| time\(\) > (\d+)')

OF_OTHERS = {  # what to say of jobs that neither wait, run nor are held: how it came, and what follows
    "suspended": ("its machine has stopped it for a while", "it goes on when the machine lets it"),
    "removed": ("it was removed, but its machine has not let it go", "condor_rm -forcex JOB ends it for good"),
    "completed": ("it has ended, and is about to leave the queue", "HTCondor needs a moment"),
}


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
class QueueSnapshot:
    """What HTCondor says of a run now. `unknown` says why the queue could not be asked."""

    dags: tuple[Dag, ...]
    jobs: tuple[client.QueuedJob, ...] = ()
    idle: tuple[tuple[classads.ClassAd, tuple[str, ...]], ...] = ()
    slots: tuple[classads.ClassAd, ...] = ()
    free: tuple[classads.ClassAd, ...] = ()  # what is free of them now
    unknown: str = ""
    holds: Mapping[str, client.Held] = field(default_factory=dict)  # by node
    by_node: dict[str, client.QueuedJob] = field(default_factory=dict)

    def works_on(self, dags: Collection[Path]) -> bool:
        """Return whether a DAGMan is at work on one of these graphs."""
        return any(dag.alive for dag in self.dags if dag.path in dags)


def look(run: RunFolder, slugs: Iterable[str], pool: Pool | None, pool_name: str | None = None) -> QueueSnapshot:
    """Read DAGMan's own logs, and ask the queue and the slots if there is a pool."""
    paths = run.dags(slugs)
    known = [(path, read_dag_log(dagman_log(path))) for path in paths]
    states = [(path, state) for path, state in known if state is not None]
    if all(state.ended is not None for _, state in states):
        return QueueSnapshot(tuple(Dag(path, state, None) for path, state in states))
    if pool is None:
        return QueueSnapshot(tuple(Dag(path, state, None) for path, state in states), unknown=why_absent(pool_name))
    try:
        return _ask(pool, states)
    except PoolError as error:
        return QueueSnapshot(tuple(Dag(path, state, None) for path, state in states), unknown=str(error))


def _ask(pool: Pool, states: Sequence[tuple[Path, DagState]]) -> QueueSnapshot:
    logs = {state.cluster: state.log for _, state in states if state.ended is None}
    dagmans, ads = client.query_dags(pool, logs, whole=True)
    there = {job.cluster: job for job in client.jobs_of(dagmans)}
    dags = []
    for path, state in states:
        job = there.get(state.cluster)
        if job is None and state.ended is None:  # it may have ended since its log was read
            state = read_dag_log(dagman_log(path)) or state
        dags.append(Dag(path, state, job.status if job else None, job.hold_reason if job else ""))
    jobs, idle = client.jobs_of(ads), client.idle_kinds(ads)
    slots, free = client.query_slots_now(pool) if idle else ([], [])
    by_node = {job.node: job for job in jobs}
    holds = client.holds_of(ads)
    return QueueSnapshot(tuple(dags), tuple(jobs), tuple(idle), tuple(slots), tuple(free), "", holds, by_node)


def explain_dags(run: RunFolder, queue: QueueSnapshot, finished: Callable[[Path], bool]) -> Iterator[Explanation]:
    """Say what is wrong with the graphs; nothing of those that DAGMan works on or has done.

    Nor of one that failed whose regions are all `finished`, if another graph was submitted later that did it.
    """
    if queue.unknown:
        yield Explanation(
            "queue",
            "unknown",
            queue.unknown,
            "what follows is by the journals and event logs alone: no idle and held jobs",
        )
    if not queue.dags:
        advice = suggest_submit(run.path)
        yield Explanation(run.path.name, "not submitted", "no DAG of it was ever submitted", advice)
    for dag in queue.dags:
        found = _explain_dag(run, dag, known=not queue.unknown)
        if found and not (dag.state.ended is not None and _was_followed(dag, queue) and finished(dag.path)):
            yield found


def _was_followed(dag: Dag, queue: QueueSnapshot) -> bool:
    """Return whether another graph was submitted after this one."""
    return any((other.state.started or 0.0) > (dag.state.started or 0.0) for other in queue.dags)


def _explain_dag(run: RunFolder, dag: Dag, *, known: bool) -> Explanation | None:
    name, state = str(dag.path.relative_to(run.path)), dag.state
    again = f"regiondag submit {run.path}" + ("" if dag.path == run.study_dag else f" --region {dag.path.parent.name}")
    if state.ended is not None:
        if state.exit_code == 0:
            return None
        if state.status == "removed":
            text = "its job was removed"
        elif state.signal is not None:
            text = f"it was ended by signal {state.signal}"
        else:
            text = f"it ended with exit code {state.exit_code}"
        rescue = list_rescue_files(dag.path)
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
    if dag.queued == "removed":
        text = f"its job {state.cluster} was removed: DAGMan takes its jobs out of the queue and notes what is done"
        return Explanation(name, "removed", text, f"wait until it has left the queue; to go on then: {again}")
    if dagman_file(dag.path, "halt").exists():
        text = "it is halted: nothing new is submitted while its file .halt is there"
        return Explanation(name, "halted", text, f"rm {dagman_file(dag.path, 'halt')}")
    if dag.queued != "running":
        text = f"its job {state.cluster} is {dag.queued}: the schedd has not started DAGMan (yet)"
        return Explanation(
            name, dag.queued, text, "that takes some seconds; the pool may limit how many DAGs run at a time"
        )
    return None


def explain_held(job: client.QueuedJob, held: client.Held, now: float) -> Explanation:
    """Say why a job is held, for how long, and what ends that."""
    kind = kind_of(held.code, held.subcode)
    since = max(now - job.since, 0.0)
    reason = job.hold_reason or "no reason is given"
    return Explanation(
        job.node,
        "held",
        f"{kind.meaning}, {show_duration(since)} ago: {reason} (code {held.code})",
        f"{kind.advice.replace('JOB', job.job)}; {_ends_hold(held, since)}",
    )


def _ends_hold(held: client.Held, since: float) -> str:
    """Say which rule of its own ends a job's hold."""
    if held.released == "now":
        return f"its own rule releases it at HTCondor's next look, within {RULES_EVERY} s"
    if held.released == "later":
        return "its own rule releases it by itself after a while"
    limit = removal_limit(held.removal)
    if not held.removal or is_spared(held.removal, held.code):
        return "no rule of its own ends this"
    if limit is None:
        return f"it is removed when this holds: {held.removal}"
    left = show_duration(max(limit - since, 0.0))
    return f"if nothing else happens it is removed in {left}, and its node counts as removed"


def explain_other(job: client.QueuedJob, now: float) -> Explanation:
    """Say what HTCondor does with a job that neither waits, runs nor is held."""
    what, advice = OF_OTHERS.get(job.status, ("the queue does not say what it does", "condor_q -long JOB says more"))
    where = f" ({job.machine})" if job.machine else ""
    text = f"for {show_duration(max(now - job.since, 0.0))}{where}: {what}"
    return Explanation(job.node, job.status, text, advice.replace("JOB", job.job))


def explain_idle(queue: QueueSnapshot, wanted: Collection[str], now: float) -> Iterator[Explanation]:
    """Say why the jobs of these nodes are idle: one explanation for each kind of job."""
    for ad, nodes in queue.idle:
        shown = [node for node in nodes if node in wanted]
        jobs = [queue.by_node[node] for node in shown if node in queue.by_node]
        if not jobs:
            continue
        waited = max(now - min(job.since for job in jobs), 0.0)
        why, advice = _why_idle(ad, queue, now)
        limit = removal_limit(client.rule_of(ad, "PeriodicRemove"), status=1)
        if limit is not None:
            advice += f"; a job that is idle for {show_duration(limit)} is removed"
        before = [f"{job.node} was started {job.starts} times before" for job in jobs if job.starts]
        yield Explanation(
            list_some(shown), "idle", f"for {show_duration(waited)}: {why}", advice, tuple(before[:SHOWN])
        )


def _why_idle(ad: classads.ClassAd, queue: QueueSnapshot, now: float) -> tuple[str, str]:
    if not queue.slots:
        return (
            "the pool has no slot at all",
            "no worker has joined, or all have left: regiondag pool status, fleet status",
        )
    match = matching.match(ad, queue.slots)
    if not match.matching:
        avoided = [found for clause in match.clauses if (found := _AVOIDED.fullmatch(clause.text))]
        avoided = [found for found in avoided if int(found[2]) > now]
        if avoided:
            kept = [clause.text for clause in match.clauses if clause.text not in {found[0] for found in avoided}]
            match = matching.match(classads.replace_requirements(ad, kept), queue.slots)
        if match.matching:
            hosts = [f"{found[1]} failed a job and is avoided until {_clock(int(found[2]))}" for found in avoided]
            return list_some(hosts), "this passes by itself; there is nothing to change"
        return find_mismatch(match), "change what `job` asks for in study.yaml, or add a machine that offers it"
    free = matching.match(ad, queue.free).matching if queue.free else ()
    if free:
        return f"{len(free)} slots that match are free", "it gets one when the pool hands slots out next"
    count = len(match.matching)
    return (
        f"all {count} slots that match ({list_some(match.matching)}) are busy",
        "it waits its turn; more workers help",
    )


def _clock(when: float) -> str:
    return time.strftime("%H:%M", time.localtime(when))
