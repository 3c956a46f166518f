"""Why a run, a region or a node is as it is: the queue, the journals and the event logs, put together."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nnlib.contract import ENDED_WELL
from regiondag.condor.client import Held, QueuedJob
from regiondag.condor.events.attempts import Attempt
from regiondag.condor.events.log import read_attempts
from regiondag.monitor.explain_queue import (
    Explanation,
    QueueSnapshot,
    explain_dags,
    explain_held,
    explain_idle,
    explain_other,
    look,
)
from regiondag.monitor.explain_trial import explain_done, explain_failed, explain_running, read_edges, usual_seconds
from regiondag.pool.pool import Pool
from regiondag.run.history import History
from regiondag.run.journal import Journal
from regiondag.run.layout import DAGMAN_CONFIG, NodeName, RunFolder, parse_node
from regiondag.run.lookup import find_region_or_node
from regiondag.run.manifest import read_manifest
from regiondag.run.region_spec import RegionSpec, read_spec
from regiondag.run.region_state import FINISHED, RegionOutcome, RegionState, state_of, why_not_needed
from regiondag.run.start_time import has_expired
from regiondag.util.text import list_some

AT_WORK = ("running", "transferring")


def explain(run: RunFolder, pool: Pool | None, wanted: str = "", pool_name: str | None = None) -> list[Explanation]:
    """Explain all that is not fine with a run, or one region or node, which is named as the user would name it."""
    names = read_manifest(run).regions
    slug, node = find_region_or_node(run, names, wanted) if wanted else ("", None)
    seen = RunView(run, names, look(run, names, pool, pool_name), time.time())
    found = list(explain_dags(run, seen.queue, seen.is_finished))
    if node is not None:
        return [*found, *seen.explain_node(node)]
    for one in [slug] if slug else names:
        found += seen.explain_region(one, whole=bool(slug))
    return found + list(seen.explain_jobs(slug))


@dataclass
class RegionView:
    """What is known of one region; logs are read when they are asked for."""

    run: RunFolder
    spec: RegionSpec
    history: History
    state: RegionState

    @cached_property
    def attempts(self) -> list[Attempt]:
        """All tries of all its nodes."""
        return read_attempts(self.run, self.spec.slug)

    @cached_property
    def tries(self) -> dict[NodeName, list[Attempt]]:
        """The same by node."""
        found: dict[NodeName, list[Attempt]] = {}
        for attempt in self.attempts:
            found.setdefault(attempt.node, []).append(attempt)
        return found


class RunView:
    """A run as it stands now."""

    def __init__(self, run: RunFolder, names: Mapping[str, str], queue: QueueSnapshot, now: float) -> None:
        self.run = run
        self.names = names
        self.queue = queue
        self.now = now
        self.read: dict[str, RegionView] = {}
        self.edges: dict[str, dict[NodeName, list[NodeName]]] = {}

    def view(self, slug: str) -> RegionView:
        """Return what is known of a region."""
        if slug not in self.read:
            folder = self.run.region(slug)
            spec, history = read_spec(folder.spec), Journal(folder.journal).read()
            state = state_of(spec, history, expired=has_expired(self.run, spec.deadline, self.now))
            self.read[slug] = RegionView(self.run, spec, history, state)
        return self.read[slug]

    @cached_property
    def starts(self) -> dict[NodeName, list[NodeName]]:
        """Nodes that wait for another region's, and for which."""
        return _gather(edge for edge in read_edges(self.run.study_dag) if edge[0][0].slug != edge[1][0].slug)

    def parents(self, slug: str) -> dict[NodeName, list[NodeName]]:
        """Return which nodes of a region wait for which others of it."""
        if slug not in self.edges:
            self.edges[slug] = _gather(read_edges(self.run.region(slug).dag))
        return self.edges[slug]

    def is_finished(self, dag: Path) -> bool:
        """Return whether all regions of a graph have their champions."""
        slugs = self.names if dag == self.run.study_dag else [dag.parent.name]
        return all(self.view(slug).state.outcome in FINISHED for slug in slugs)

    def works_on(self, slug: str) -> bool:
        """Return whether a DAGMan works on a region: on its own graph, or on the study's."""
        return self.queue.works_on([self.run.study_dag, self.run.region(slug).dag])

    def reason(self, region: RegionView) -> str:
        """Return why a region stands as it does; nothing is to be done for one that DAGMan works on."""
        state = region.state
        unfinished = state.outcome == RegionOutcome.UNFINISHED and not state.waits
        return "" if unfinished and self.works_on(region.spec.slug) else state.reason

    def explain_region(self, slug: str, *, whole: bool) -> Iterator[Explanation]:
        """Explain a region: why it has stopped, what failed; with `whole`, every trial that failed."""
        region = self.view(slug)
        outcome, reason = region.state.outcome, self.reason(region)
        failed = {number: one for number, one in region.history.settled.items() if one.status not in ENDED_WELL}
        if outcome == RegionOutcome.FAILED:
            yield Explanation(region.spec.name, "stopped", reason, "the other regions go on")
        elif whole:
            planned = region.spec.search.planned
            text = f"{len(region.history.settled)} of {planned} trials have ended, {len(failed)} of them failed"
            if region.spec.served_by:
                text = "it has no trials of its own"
            yield Explanation(region.spec.name, outcome, f"{text}; {reason}" if reason else text)
        if whole:
            for number in failed:
                yield self.explain_failed(NodeName(slug, number))
            final = region.history.final
            if final is not None and not final.ok:
                yield self.explain_failed(NodeName(slug, None))
        elif failed and outcome != RegionOutcome.FAILED:
            kinds = Counter(f"{one.status}: {one.reason}" for one in failed.values())
            often, times = kinds.most_common(1)[0]
            nodes = list_some([str(NodeName(slug, number)) for number in failed])
            text = f"{len(failed)} of {len(region.history.settled)} trials ({nodes}), {times} of them: {often}"
            yield Explanation(
                region.spec.name, "failed trials", text, f"more: regiondag explain {self.run.path} {slug}"
            )

    def explain_jobs(self, slug: str) -> Iterator[Explanation]:
        """Explain the jobs in the queue that do not run, or slower than others; with a region, all that run."""
        mine = [job for job in self.queue.jobs if not slug or job.node.rpartition("_")[0] == slug]
        for job in mine:
            if job.status == "held":
                yield self.explain_held(job)
        yield from explain_idle(self.queue, {job.node for job in mine if job.status == "idle"}, self.now)
        for job in mine:
            if job.status in AT_WORK:
                found = self.explain_running(job.node)
                if slug or found.state == "slow":
                    yield found
            elif job.status not in ("held", "idle"):
                yield explain_other(job, self.now)

    def explain_held(self, job: QueuedJob) -> Explanation:
        """Explain a job that is held."""
        return explain_held(job, self.queue.holds.get(job.node, Held(0)), self.now)

    def explain_running(self, name: str) -> Explanation:
        """Explain a job that runs."""
        job = self.queue.by_node[name]
        try:
            usual = usual_seconds(self.view(parse_node(name).slug).history)
        except ValueError:
            usual = None
        return explain_running(name, job.machine, max(self.now - job.since, 0.0), job.starts, usual)

    def explain_failed(self, node: NodeName) -> Explanation:
        """Explain a trial, or a final training, that failed."""
        region = self.view(node.slug)
        settled = region.history.last_outcome(node.number)
        assert settled is not None  # noqa: S101 (both callers have seen it)
        return explain_failed(self.run, node, settled, region.tries.get(node, []))

    def explain_node(self, node: NodeName) -> Iterator[Explanation]:
        """Explain one node, whatever its state."""
        job = self.queue.by_node.get(str(node))
        region = self.view(node.slug)
        settled = region.history.last_outcome(node.number)
        if job is not None and job.status == "held":
            yield self.explain_held(job)
        elif job is not None and job.status == "idle":
            yield from explain_idle(self.queue, {str(node)}, self.now)
        elif job is not None:
            yield self.explain_running(str(node)) if job.status in AT_WORK else explain_other(job, self.now)
        elif settled is not None and settled.status in ENDED_WELL:
            yield explain_done(node, settled, region.history, region.attempts, self.now)
        if settled is not None and settled.status not in ENDED_WELL:
            yield self.explain_failed(node)
        elif settled is None and job is None:
            yield self.explain_waiting(node, region)

    def explain_waiting(self, node: NodeName, region: RegionView) -> Explanation:
        """Say what a node without job and outcome waits for."""
        name = str(node)
        if region.state.outcome == RegionOutcome.FAILED:
            return Explanation(name, "not run", f"its region has stopped: {region.state.reason}")
        spare = self.why_spared(node)
        if spare:
            return Explanation(name, "not needed", f"{spare}; this node does nothing")
        parents = [*self.parents(node.slug).get(node, ()), *self.starts.get(node, ())]
        for other in {parent.slug for parent in parents} - {node.slug}:
            state = self.view(other).state
            if state.outcome == RegionOutcome.FAILED:
                text = f"it starts from {self.names[other]}, which has stopped: {state.reason}"
                return Explanation(name, "not run", text, f"regiondag explain {self.run.path} {other}")
        waits = [parent for parent in parents if not self.is_over(parent)]
        if waits:
            shown = list_some([f"{parent}{self.in_queue(parent)}" for parent in waits])
            return Explanation(name, "waiting", f"for {shown}")
        if not self.works_on(node.slug):
            return Explanation(name, "not run", "no DAGMan works on it; see above")
        limit = self.which_limit(node.slug)
        if limit:
            return Explanation(name, "waiting", limit, "`limits` in study.yaml sets this for the next run")
        text = "all that it waits for has ended: its PRE script proposes, or DAGMan gets to it in a moment"
        return Explanation(name, "waiting", text, f"{self.run.path}/manager.log says what PRE and POST did")

    def is_over(self, node: NodeName) -> bool:
        """Return whether nothing waits for a node any more, however it ended."""
        if str(node) in self.queue.by_node:
            return False
        history = self.view(node.slug).history
        settled = history.last_outcome(node.number)
        return settled is not None or bool(self.why_spared(node))

    def why_spared(self, node: NodeName) -> str:
        """Return why a node without job and outcome does nothing; nothing where it does something."""
        region = self.view(node.slug)
        if node.number is None:
            return ""
        return why_not_needed(region.state, region.history, node.number)

    def in_queue(self, node: NodeName) -> str:
        """Return in brackets where a node is, as far as the queue says it."""
        job = self.queue.by_node.get(str(node))
        return f" ({job.status})" if job is not None else ""

    def which_limit(self, slug: str) -> str:
        """Return which limit on jobs in the queue is reached, if one is."""
        own = sum(job.node.rpartition("_")[0] == slug for job in self.queue.jobs)
        region_dag = self.run.region(slug).dag.read_text(encoding="utf-8")
        config = (self.run.path / DAGMAN_CONFIG).read_text(encoding="utf-8")
        per_region = _number(region_dag, f"MAXJOBS {slug} ")
        overall = _number(config, "DAGMAN_MAX_JOBS_SUBMITTED = ")
        if per_region and own >= per_region:
            return f"{own} jobs of its region are in the queue, as many as jobs_per_region allows"
        if overall and len(self.queue.jobs) >= overall:
            return f"{len(self.queue.jobs)} jobs of the run are in the queue, as many as limits.jobs allows"
        return ""


def _number(text: str, before: str) -> int:
    """Return the number that follows `before` at the start of a line; 0 where there is none."""
    for line in text.splitlines():
        rest = line.removeprefix(before)
        if rest != line and rest.strip().isdigit():
            return int(rest)
    return 0


def _gather(edges: Iterable[tuple[list[NodeName], list[NodeName]]]) -> dict[NodeName, list[NodeName]]:
    """Return the parents of each node."""
    found: dict[NodeName, list[NodeName]] = {}
    for parents, children in edges:
        for child in children:
            found.setdefault(child, []).extend(parents)
    return found
