"""Where a run stands: journals for what is done, HTCondor's queue for what is not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from nnlib.contract import ENDED_WELL
from regiondag.audit.lost_records import ADVICE, is_gone, name_lines
from regiondag.condor import client
from regiondag.condor.classads import ClassAd
from regiondag.condor.events.dag_log import DagState, read_dag_log
from regiondag.condor.sick_gpus import query_sick_gpus
from regiondag.errors import PoolError
from regiondag.monitor.live import live_of
from regiondag.pool.pool import Pool, why_absent
from regiondag.run.history import ExpectedGain, History, TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RegionFolder, RunFolder, dagman_file, dagman_log, parse_node
from regiondag.run.live import Live
from regiondag.run.manifest import read_manifest
from regiondag.run.region_spec import read_spec
from regiondag.run.region_state import state_of
from regiondag.run.start_time import SET, read_jump
from regiondag.run.trial_recipes import FLOOR, best_popularity, floor_of
from regiondag.study.families import name_floor
from regiondag.util.intervals import half_width
from regiondag.util.text import show_duration

CRASHED = "crashed"  # its log has no end, and it is not in the queue


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric's mean over a window's customers, beside the floor's on the same ones; None: not known."""

    value: float
    half_width: float | None  # of its 95 % interval
    customers: int  # 0: not known
    floor: float | None


@dataclass(frozen=True, slots=True)
class RegionStatus:
    """One region's trials, counted. `best` is the best validation metric so far."""

    region: str
    slug: str
    planned: int
    done: int
    failed: int
    running: int
    idle: int
    held: int
    best: float | None
    metric: str
    final: str  # "", idle, running, held, promoted, kept or failed
    expected_end: float | None  # Unix time
    served_by: str = ""  # name of the region whose search is for this one, too; empty: it has its own
    validation: Figure | None = None  # `best`, as it has to be read
    test: Figure | None = None  # of what serves, once there is a champion
    floor_name: str = name_floor()  # what the floor of both is, in words
    left: ExpectedGain | None = None  # what another trial would be expected to gain; None: no model says so
    strangers: tuple[int, ...] = ()  # numbers of its journal's lines that are of another run or region


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A whole run. `dag` is what DAGMan does: not submitted, idle, running, held, removed, ended or crashed."""

    study: str
    run: str
    dag: str
    exit_code: int | None
    started: float | None
    regions: tuple[RegionStatus, ...]
    held: tuple[client.QueuedJob, ...]
    note: str
    live: tuple[Live, ...] = ()  # what running trials said last
    sick_gpus: Mapping[str, str] = field(default_factory=dict)  # machines -> GPUs that they do not offer, and why

    @property
    def over(self) -> bool:
        """Whether nothing will change any more by itself."""
        return self.dag in ("ended", "removed", CRASHED)


def read_status(run: RunFolder, pool: Pool | None, pool_name: str | None = None) -> RunStatus:
    """Read journals, DAGMan's event log and the queue; `pool_name` is how a missing pool was asked for."""
    manifest = read_manifest(run)
    slugs = list(manifest.regions)
    dags = _dags(run, slugs)
    notes = [] if pool else [f"what is in the queue is not known: {why_absent(pool_name)}"]
    jobs: list[client.QueuedJob] = []
    live: dict[NodeName, Live] = {}
    if pool is not None:
        try:
            dags, ads = _ask(pool, run, slugs, dags)
            jobs, live = client.jobs_of(ads), live_of(ads)
        except PoolError as error:
            notes.append(f"running, idle and held jobs are unknown: {error}")
    latest = max(dags, key=lambda dag: dag.started or 0.0, default=None)
    active = [dag for dag in dags if dag.ended is None and dag.status != CRASHED]
    by_region = _count_jobs(jobs)
    regions = tuple(
        _region(run.region(slug), by_region.get(slug, Counter()), latest if active else None, manifest.regions)
        for slug in slugs
    )
    notes += [*_doubt_journals(run, regions), *_doubt_age(run, dags, pool), *_doubt_clock(run, dags, time.time())]
    return RunStatus(
        study=manifest.study,
        run=str(run.path),
        dag=(active[0].status if active else latest.status if latest else "not submitted"),
        exit_code=latest.exit_code if latest and not active else None,
        started=latest.started if latest else None,
        regions=regions,
        held=tuple(job for job in jobs if job.status == "held"),
        note="; ".join(notes),
        live=tuple(live[node] for node in sorted(live, key=str)),
        sick_gpus=_sick_gpus(pool) if pool and active else {},
    )


def _sick_gpus(pool: Pool) -> dict[str, str]:
    try:
        return query_sick_gpus(pool)
    except PoolError:  # which the note says already
        return {}


def _doubt_journals(run: RunFolder, regions: Sequence[RegionStatus]) -> Iterator[str]:
    """Yield which journals are gone, or have lines of another one; of many the first."""
    gone = [region.slug for region in regions if is_gone(run.region(region.slug))]
    if gone:
        others = f", as are those of {len(gone) - 1} other regions" if gone[1:] else ""
        yield f"{run.region(gone[0]).journal} is gone, though trials have begun{others}: {ADVICE}"
    strange = [region for region in regions if region.strangers]
    if strange:
        others = f", as are lines of {len(strange) - 1} other journals" if strange[1:] else ""
        seen = f"{run.region(strange[0].slug).journal}: {name_lines(strange[0].strangers)} of another run or region"
        yield f"{seen}{others}: {ADVICE}"


def _doubt_age(run: RunFolder, dags: Sequence[DagState], pool: Pool | None) -> Iterator[str]:
    """Yield that HTCondor knows the end of a DAGMan that is gone, and its log does not: the run is an older copy."""
    for dag in dags:
        if pool is None or dag.status != CRASHED:
            continue
        with suppress(PoolError):  # then nobody knows
            left = client.query_left(pool, dag.cluster, dag.log, dag.started or 0.0)
            if left is not None:
                when = time.strftime("%Y-%m-%d %H:%M", time.localtime(left))
                seen = f"HTCondor says that DAGMan's job {dag.cluster}.0 left the queue at {when}, its log does not"
                yield f"{seen}: the run was put back from an older copy; type: regiondag verify {run.path}"


def _doubt_clock(run: RunFolder, dags: Sequence[DagState], now: float) -> Iterator[str]:
    """Yield that this machine's clock was set while the run went on; nothing where it does not look so.

    HTCondor's daemons wait by the clock: one that is set back makes them stand still until the old time is reached.
    """
    outs = (dagman_file(run.study_dag, "dagman.out"), *(dag.log for dag in dags))
    ahead = max((out.stat().st_mtime for out in outs if out.exists()), default=now) - now
    if ahead > SET:
        text = (
            f"this machine's clock was set back by {show_duration(ahead)} or more: HTCondor may stand still until the"
        )
        yield f"{text} old time is reached; where it does: condor_restart -schedd"
        return
    jump = read_jump(run)
    if not jump:
        return
    way = "forward" if jump > 0 else "back"
    text = f"this machine's clock was set {way} by {show_duration(abs(jump))} since the run began"
    yield f"{text}; its deadline does not count that"


def _dags(run: RunFolder, slugs: Sequence[str]) -> list[DagState]:
    """Return the state of the study's DAG and of regions' DAGs that were submitted alone."""
    dags = run.dags(slugs)
    logs = (dagman_log(dag) for dag in dags)
    return [state for log in logs if (state := read_dag_log(log))]


def _ask(
    pool: Pool, run: RunFolder, slugs: Sequence[str], dags: list[DagState]
) -> tuple[list[DagState], list[ClassAd]]:
    """Return the same states, those of DAGMans that crashed as such, and the ads of the others' jobs."""
    logs = {dag.cluster: dag.log for dag in dags if dag.ended is None}
    dagmans, ads = client.query_dags(pool, logs)
    gone = logs.keys() - {job.cluster for job in client.jobs_of(dagmans)}
    if gone:
        now = _dags(run, slugs)  # they may have ended since their logs were read
        dags = [replace(dag, status=CRASHED) if dag.ended is None and dag.cluster in gone else dag for dag in now]
    return dags, ads


def _count_jobs(jobs: Sequence[client.QueuedJob]) -> dict[str, Counter[str]]:
    """Count each region's jobs by status; its final training is counted once more as `final <status>`."""
    counts: dict[str, Counter[str]] = {}
    for job in jobs:
        try:
            node = parse_node(job.node)
        except ValueError:
            continue  # not ours
        count = counts.setdefault(node.slug, Counter())
        count[job.status] += 1
        if node.number is None:
            count[f"final {job.status}"] += 1
    return counts


def _region(folder: RegionFolder, jobs: Counter[str], dag: DagState | None, names: Mapping[str, str]) -> RegionStatus:
    spec = read_spec(folder.spec)
    history = Journal(folder.journal).read_outcomes()
    best = history.best(spec.metric.minimize)
    done = len(history.settled)
    final = history.final
    if final:
        ended = str(state_of(spec, history).outcome)
    else:
        ended = next((status for status in ("running", "idle", "held") if jobs[f"final {status}"]), "")
    return RegionStatus(
        region=spec.name,
        slug=spec.slug,
        planned=spec.search.planned,
        done=done,
        failed=sum(settled.status not in ENDED_WELL for settled in history.settled.values()),
        running=jobs["running"] + jobs["transferring"],
        idle=jobs["idle"],
        held=jobs["held"],
        best=best.value if best else None,
        metric=spec.metric.name,
        final=ended,
        expected_end=None if final else _expected_end(history, spec.search.planned + 1, dag),
        served_by=names.get(spec.served_by, spec.served_by),
        validation=_validation(best, history),
        test=_test(final, spec.metric.name),
        floor_name=name_floor(spec.floor),
        left=history.left,
        strangers=tuple(history.strangers),
    )


def _validation(best: TrialOutcome | None, history: History) -> Figure | None:
    if best is None or best.value is None:
        return None
    half = half_width(best.stderr, best.customers)
    return Figure(best.value, half, best.customers, floor_of(best, best_popularity(history)))


def _test(final: TrialOutcome | None, metric: str) -> Figure | None:
    if final is None or not final.ok or metric not in final.metrics:
        return None
    low, high = final.intervals.get(metric, (None, None))
    half = None if low is None or high is None else (high - low) / 2
    return Figure(final.metrics[metric], half, final.customers, final.compared.get(FLOOR, {}).get(metric))


def _expected_end(history: History, total: int, dag: DagState | None) -> float | None:
    """Assume that the rest goes as quickly as what was done since the DAG was last submitted."""
    if dag is None or dag.started is None:
        return None
    started = dag.started
    done = sum(when >= started for when in history.settled_at.values())
    if done == 0:
        return None
    now = time.time()
    return now + (now - started) * (total - len(history.settled)) / done
