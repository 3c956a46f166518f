"""What a run was made from, what ran when and where, and what came of it: of this other formats of provenance are made.

All of it is read from files that the run has anyway: its manifest, graph, journals, event logs and results. What these
do not say is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from nnlib.contract import RESULT_FILE, TRIAL_FILE, ContractError, load_result
from nnlib.worker.downloads import Download
from regiondag.condor.events.attempts import Attempt
from regiondag.condor.events.dag_log import DagState, read_dag_log
from regiondag.condor.events.log import read_attempts
from regiondag.run.history import TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.layout import FILES, NodeName, RunFolder, dagman_log, parse_node
from regiondag.run.manifest import RunManifest, read_manifest
from regiondag.run.region_spec import read_spec
from regiondag.study.space import Value, with_defaults
from regiondag.trainers.fetch import downloads_of

OUTPUTS = tuple(Path(one.path).name for one in FILES if one.writer == "job" and not one.path.endswith(("out", "err")))
_WORDS = re.compile(r"^(JOB|PARENT)[ ]+([^\n]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Task:
    """One node of the graph, and its last job. Files are named by their paths in the run directory."""

    node: NodeName
    parents: tuple[NodeName, ...] = ()
    attempt: Attempt | None = None
    outcome: TrialOutcome | None = None
    point: Mapping[str, Value] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    machine: Mapping[str, str] = field(default_factory=dict)  # as the job saw it
    versions: Mapping[str, str] = field(default_factory=dict)  # of what it ran with

    @property
    def started(self) -> float | None:
        """When it was first started, in Unix time."""
        return self.attempt.legs[0].running.start if self.attempt and self.attempt.legs else None

    @property
    def ended(self) -> float | None:
        """When it was over, in Unix time."""
        return self.attempt.legs[-1].running.end if self.attempt and self.attempt.legs else None

    @property
    def seconds(self) -> float:
        """How long it ran, on all machines together."""
        legs = self.attempt.legs if self.attempt else ()
        return sum(leg.running.end - leg.running.start for leg in legs if leg.running.end is not None)

    @property
    def machines(self) -> list[str]:
        """The machines on which it ran."""
        return list(dict.fromkeys(leg.machine for leg in self.attempt.legs)) if self.attempt else []


@dataclass(frozen=True, slots=True)
class Provenance:
    """A run, as its files tell it."""

    name: str
    manifest: RunManifest
    tasks: tuple[Task, ...]
    sizes: Mapping[str, int]  # bytes of each file that is there, by its path in the run directory
    dag: DagState | None
    champions: Mapping[str, tuple[str, ...]]  # files by region's slug
    downloads: Mapping[str, tuple[Download, ...]] = field(default_factory=dict)  # what jobs got from URLs, by slug

    @property
    def code(self) -> str:
        """The archive of what trains in jobs."""
        return next((name for name in self.manifest.sha256 if name.startswith("nnlib-")), "")


def read_provenance(run: RunFolder) -> Provenance:
    """Read all that is known of a run; RegiondagError for a folder that is none."""
    manifest = read_manifest(run)
    last = {attempt.node: attempt for attempt in read_attempts(run)}
    parents = _read_graph(run)
    tasks = [
        task
        for slug in manifest.regions
        for task in _tasks_of(run, slug, {node: parents[node] for node in parents if node.slug == slug}, last)
    ]
    champions = {slug: tuple(_list_files(run, f"regions/{slug}/champion")) for slug in manifest.regions}
    named = {*manifest.sha256, *(name for task in tasks for name in (*task.inputs, *task.outputs))}
    named.update(name for names in champions.values() for name in names)
    sizes = {}
    for name in sorted(named):
        with suppress(OSError):
            sizes[name] = (run.path / name).stat().st_size
    dag = read_dag_log(dagman_log(run.study_dag))
    downloads = {slug: downloads_of(run.region(slug).program_archive) for slug in manifest.regions}
    return Provenance(Path(manifest.run).name, manifest, tuple(tasks), sizes, dag, champions, downloads)


def show_time(when: float) -> str:
    """Return Unix time as ISO 8601 has it, in UTC.

    >>> show_time(0.0)
    '1970-01-01T00:00:00+00:00'
    """
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")


def created_at(manifest: RunManifest) -> str:
    """Return when a run was made, as ISO 8601 has it; empty where that is not known."""
    with suppress(ValueError):
        return datetime.strptime(manifest.created, "%Y-%m-%dT%H:%M:%S%z").isoformat()
    return ""


def _read_graph(run: RunFolder) -> dict[NodeName, tuple[NodeName, ...]]:
    """Return the parents of every node of the graph."""
    found: dict[NodeName, tuple[NodeName, ...]] = {}
    with suppress(FileNotFoundError):
        for word, rest in _WORDS.findall(run.study_dag.read_text(encoding="utf-8")):
            before, _, after = rest.partition(" CHILD ")
            if word == "JOB":
                found.setdefault(parse_node(rest.split()[0]), ())
                continue
            for child in map(parse_node, after.split()):
                found[child] = (*found.get(child, ()), *map(parse_node, before.split()))
    return found


def _tasks_of(
    run: RunFolder, slug: str, parents: Mapping[NodeName, tuple[NodeName, ...]], last: Mapping[NodeName, Attempt]
) -> Iterator[Task]:
    folder = run.region(slug)
    space, history = read_spec(folder.spec).search.space, Journal(folder.journal).read()
    for node, before in parents.items():
        chosen = history.won[0] if node.number is None and history.won else node.number
        proposal = history.proposals.get(-1 if chosen is None else chosen)
        outcome = history.final if node.number is None else history.settled.get(node.number)
        place = folder.trial(node)
        machine: Mapping[str, str] = {}
        versions: Mapping[str, str] = {}
        with suppress(OSError, ContractError):
            result = load_result(place / RESULT_FILE)
            machine, versions = result.machine, result.versions
        inside = place.relative_to(run.path).as_posix()
        yield Task(
            node,
            before,
            last.get(node),
            outcome,
            with_defaults(space, proposal.point) if proposal else {},
            tuple(_inputs_of(run, slug, inside)),
            tuple(name for name in _list_files(run, inside) if Path(name).name in OUTPUTS),
            machine,
            versions,
        )


def _inputs_of(run: RunFolder, slug: str, place: str) -> Iterator[str]:
    """Yield what a job got, by its trial.json: that, and files of its region, or its own where it has them."""
    trial = f"{place}/{TRIAL_FILE}"
    with suppress(OSError, ValueError, AttributeError):
        names = json.loads((run.path / trial).read_text(encoding="utf-8")).get("sha256", {})
        yield trial
        for name in names:
            yield from [one for one in (f"{place}/start/{name}", f"regions/{slug}/{name}") if _is_file(run, one)][:1]


def _list_files(run: RunFolder, place: str) -> Iterator[str]:
    """Yield the files of a folder that hold something."""
    for path in sorted((run.path / place).glob("*")):
        if path.is_file() and path.stat().st_size:
            yield f"{place}/{path.name}"


def _is_file(run: RunFolder, name: str) -> bool:
    return (run.path / name).is_file()
