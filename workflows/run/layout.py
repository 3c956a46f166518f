"""Every name in a run directory: files, DAG nodes, and how they are read back.

A node name is `<slug>_t<number>` (a trial) or `<slug>_final`, plus `report` for the DAG's last node. Slugs hold only
`[a-z0-9-]`, so the underscore separates, and names are safe in paths, DAGMan files and shell words alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nnlib.contract import (
    CONTAINER_FILE,
    ENVIRONMENT_FILE,
    FLOOR_FILE,
    INIT_FILE,
    MODEL_FILE,
    PROGRAM_FILE,
    PROGRAM_MODEL_FILE,
)

REPORT_NODE = "report"
# PRE's exit code for a node whose outcome is known: DAGMan takes the node as done without running it. It must be one
# that neither a shell nor an interpreter ends with when something fails.
SETTLED_BEFORE = 77
DAGMAN_CRASHED = 4  # exit code of a DAGMan that failed an assertion; our DAGs then let it leave the queue

STUDY_FILE = "study.yaml"
PYTHON_FILE = "python"  # only where a DAG cannot name the Python of PRE and POST itself
MANIFEST_FILE = "manifest.json"
ITEMS_FILE = "items.csv"
STUDY_DAG = "study.dag"
REGION_DAG = "region.dag"
DAGMAN_CONFIG = "dagman.config"
REPORT_SUBMIT = "report.sub"
TRAIN_SUBMIT = "train.sub"
FINAL_SUBMIT = "final.sub"
START_FOLDER = "start"  # in a node's folder: what its next job is given of the files that it is to bring back
ATTEMPT_SUBMIT = "attempt.sub"  # in a node's folder: what PRE has to say of its next try
JOB_ERRORS = "job.err"  # in a node's folder: what its job printed to its standard error
JOB_LOG = "job.log"  # in a node's folder: HTCondor's events of its jobs
NETWORK_FILE = "network.json"
BUNDLE_FILE = "python.bundle"  # what job.python: bundle sends
REGION_FILE = "region.json"
JOURNAL_FILE = "trials.jsonl"
PAGE_SHELL = "regiondag/page.html"  # in the archive of PRE and POST: the report's page without figures
PAGE_LIBRARY = "regiondag/plotly.min.js.gz"  # and what draws them

_SLUG = "[a-z0-9]+(?:-[a-z0-9]+)*"
SLUG = re.compile(_SLUG)
_NODE = re.compile(rf"({_SLUG})_(?:t([0-9]{{4,5}})|(final))")


@dataclass(frozen=True, slots=True)
class NodeName:
    """A job node: trial `number` of a region, or the region's final training when `number` is None."""

    slug: str
    number: int | None

    def __str__(self) -> str:
        """Return the node's name in the DAG; it is parsed back, so that no name is written that cannot be read."""
        return f"{self.slug}_{self.label}"

    @property
    def label(self) -> str:
        """The part after the slug: `t0007` or `final`."""
        return "final" if self.number is None else f"t{self.number:04d}"

    @property
    def folder(self) -> str:
        """Name of the trial's folder under `trials/`: `0007` or `final`."""
        return self.label.removeprefix("t")


def parse_node(name: str) -> NodeName:
    """Read a node name back; ValueError for anything that `NodeName` does not write.

    >>> parse_node("united-kingdom_t0007")
    NodeName(slug='united-kingdom', number=7)
    """
    match = _NODE.fullmatch(name)
    node = NodeName(match[1], int(match[2]) if match[2] else None) if match else None
    if node is None or str(node) != name:
        raise ValueError(f"{name!r} is not a node of this study; a node is called like germany_t0007 or germany_final")
    return node


@dataclass(frozen=True, slots=True)
class RegionFolder:
    """The files of one region in a run directory."""

    path: Path

    @property
    def submit_files(self) -> tuple[Path, Path]:
        """Submit files of the trials and of the final training."""
        return self.path / TRAIN_SUBMIT, self.path / FINAL_SUBMIT

    @property
    def dag(self) -> Path:
        """The graph of this region alone."""
        return self.path / REGION_DAG

    @property
    def spec(self) -> Path:
        """What PRE and POST need to know of the region, as JSON."""
        return self.path / REGION_FILE

    @property
    def journal(self) -> Path:
        """The append-only record of all trials."""
        return self.path / JOURNAL_FILE

    @property
    def journal_index(self) -> Path:
        """Where in the journal the points stand, and the values, for other regions' scripts."""
        return self.journal.with_suffix(".index.json")

    @property
    def earlier(self) -> Path:
        """Trials of earlier runs that the optimizer may know of."""
        return self.path / "earlier.jsonl"

    @property
    def incumbent_model(self) -> Path:
        """The champion of an earlier run, from which trainings start (init: champion)."""
        return self.path / "standing.nc"

    @property
    def incumbent_metrics(self) -> Path:
        """What is known of that champion."""
        return self.path / "standing.json"

    @property
    def init_model(self) -> Path:
        """The model from which all trainings of the region start in this run."""
        return self.path / INIT_FILE

    @property
    def init_facts(self) -> Path:
        """Where that model comes from, and how it was trained; there only when the model is, whole."""
        return self.path / "init.json"

    @property
    def program_archive(self) -> Path:
        """The program that trains in nnlib's place."""
        return self.path / PROGRAM_FILE

    @property
    def tracked(self) -> Path:
        """Which ends of trainings the tracking server has, a JSON object a line."""
        return self.path / "tracked.jsonl"

    @property
    def container(self) -> Path:
        """The image in which it runs, where that goes with the jobs."""
        return self.path / CONTAINER_FILE

    @property
    def environment(self) -> Path:
        """What the program needs to run, if the study says so."""
        return self.path / ENVIRONMENT_FILE

    @property
    def python_bundle(self) -> Path:
        """The Python that runs the jobs, where they bring one."""
        return self.path / BUNDLE_FILE

    @property
    def champion_model(self) -> Path:
        """The best model so far, or what a program has made."""
        name = PROGRAM_MODEL_FILE if self.program_archive.exists() else MODEL_FILE
        return self.path / "champion" / name

    @property
    def champion_metrics(self) -> Path:
        """What the champion reached, and how it was made."""
        return self.path / "champion" / "metrics.json"

    @property
    def champion_floor(self) -> Path:
        """The floor, beside the champion that is for all regions together."""
        return self.path / "champion" / FLOOR_FILE

    @property
    def champion_confusion(self) -> Path:
        """What the champion took pictures for; only where it is a network of pictures in classes."""
        return self.path / "champion" / "confusion.json"

    @property
    def decisions(self) -> Path:
        """What serves which region, and why."""
        return self.path / "decisions.json"

    @property
    def run(self) -> RunFolder:
        """The run that the region is of."""
        return RunFolder(self.path.parents[1])

    def trial(self, node: NodeName) -> Path:
        """Folder in which one node's job starts and ends."""
        return self.path / "trials" / node.folder

    def data(self, part: str) -> Path:
        """Data file of one of `PARTS`."""
        return self.path / data_file(part)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one run directory."""

    path: Path

    @property
    def manifest(self) -> Path:
        """What the run was made from."""
        return self.path / MANIFEST_FILE

    @property
    def items(self) -> Path:
        """What the items are called, where that is known."""
        return self.path / ITEMS_FILE

    @property
    def study_dag(self) -> Path:
        """The graph over all regions."""
        return self.path / STUDY_DAG

    def dags(self, slugs: Iterable[str]) -> list[Path]:
        """Return all graphs that may be submitted: the study's, and each region's own."""
        return [self.study_dag, *(self.region(slug).dag for slug in slugs)]

    @property
    def manager_log(self) -> Path:
        """What PRE and POST said, a line each."""
        return self.path / "manager.log"

    @property
    def machines(self) -> Path:
        """Which machines failed jobs of this run, and have not done better since."""
        return self.path / "machines.json"

    @property
    def budget_lock(self) -> Path:
        """Who holds it takes of the trials that all searches share."""
        return self.path / "trials.lock"

    @property
    def disk(self) -> Path:
        """What the run took of the disk at the last look."""
        return self.path / "disk.json"

    @property
    def started(self) -> Path:
        """When the run's first trial was prepared."""
        return self.path / "started.json"

    @property
    def notify(self) -> Path:
        """Whom to tell how the run ends; there only where somebody is."""
        return self.path / "notify.json"

    @property
    def notified(self) -> Path:
        """What has been told, and what did not arrive."""
        return self.path / "notified.json"

    @property
    def track(self) -> Path:
        """Where trainings are tracked; there only where they are."""
        return self.path / "track.json"

    @property
    def tracked(self) -> Path:
        """How it last went with the tracking server."""
        return self.path / "tracked.json"

    @property
    def report(self) -> Path:
        """Folder of the summary."""
        return self.path / "report"

    @property
    def page(self) -> Path:
        """The report as a page for browsers."""
        return self.report / "index.html"

    def pictures(self, slug: str) -> Path:
        """Folder of a region's pictures, in the report."""
        return self.report / "regions" / slug

    def region(self, slug: str) -> RegionFolder:
        """Files of one region."""
        return RegionFolder(self.path / "regions" / slug)


def dagman_file(dag: Path, suffix: str) -> Path:
    """Return a file that HTCondor keeps beside a DAG: `dagman.log`, `lock`, `condor.sub` and so on.

    >>> str(dagman_file(Path("/run/study.dag"), "lock"))
    '/run/study.dag.lock'
    """
    return dag.with_name(f"{dag.name}.{suffix}")


def dagman_log(dag: Path) -> Path:
    """Return the event log of the DAGMan that works on a DAG."""
    return dagman_file(dag, "dagman.log")


def catalog_name(slug: str) -> str:
    """Return what HTCondor calls the files that a region's jobs share; no two slugs have the same.

    It becomes part of an attribute's name, which holds no `-`; slugs hold no `_`.

    >>> catalog_name("united-kingdom")
    'region_united_kingdom'
    """
    return f"region_{slug.replace('-', '_')}"


def data_file(part: str) -> str:
    """Return the name that a region's data has in the run directory.

    >>> data_file("train")
    'data.train.nc'
    """
    return f"data.{part}.nc"


@dataclass(frozen=True, slots=True)
class RunFile:
    """What one file of a run directory is for; `*` stands for names of regions, trials and versions."""

    path: str
    writer: str
    holds: str


# Every file of a run, for people; a test compares it with what real runs hold.
FILES = (
    RunFile("study.yaml", "generate", "the study as it was when the run was made"),
    RunFile("items.csv", "generate", "the items and what they are called, where a table of the data says it"),
    RunFile("study.dag", "generate", "the graph of all regions: every node and edge"),
    RunFile("dagman.config", "generate", "DAGMan's settings for this run"),
    RunFile("report.sub", "generate", "submit file of the graph's last node, which writes the report"),
    RunFile("pre.sh", "generate", "what DAGMan runs before a job: starts PRE"),
    RunFile("post.sh", "generate", "what DAGMan runs after a job: starts POST"),
    RunFile("train.sh", "generate", "what a job runs on its worker: starts `nnlib train`"),
    RunFile("python", "generate", "a link to the Python of PRE and POST, only where a DAG cannot name it itself"),
    RunFile("regiondag-*.pyz", "generate", "the code of PRE, POST and report, so that an upgrade never meets this run"),
    RunFile("nnlib-*.pyz", "generate", "the code of the jobs, kernels included"),
    RunFile("manifest.json", "generate", "versions, commits, sources, and the SHA-256 of all inputs and code"),
    RunFile("regions/*/region.dag", "generate", "the graph of this region alone"),
    RunFile("regions/*/train.sub", "generate", "submit file of the region's trials"),
    RunFile("regions/*/final.sub", "generate", "submit file of its final training"),
    RunFile("regions/*/region.json", "generate", "what PRE and POST need to know of the region"),
    RunFile("regions/*/network.json", "generate", "the network, as it was"),
    RunFile("regions/*/program.zip", "generate", "the program that trains in nnlib's place, with its files"),
    RunFile("regions/*/container.sif", "generate", "the image in which that program runs; one file of all regions"),
    RunFile(
        "regions/*/environment.packed", "generate", "the packages that it needs, as tar or zip (trainer.environment)"
    ),
    RunFile("regions/*/data.*.nc", "generate", "the data: train, valid, final, test and all"),
    RunFile("regions/*/earlier.jsonl", "generate", "trials of earlier runs, where `search.share` is on"),
    RunFile("regions/*/standing.nc", "generate", "the champion of an earlier run, where trainings start from it"),
    RunFile("regions/*/standing.json", "generate", "what is known of that champion"),
    RunFile("regions/*/init.nc", "PRE", "the model from which all trainings start, if not from random"),
    RunFile("regions/*/init.json", "PRE", "where that model comes from"),
    RunFile("regions/*/trials.jsonl", "PRE, POST", "the journal: every proposal and outcome, append-only"),
    RunFile("regions/*/trials.index.json", "PRE", "what other regions read of the journal; made of it anew if missing"),
    RunFile("regions/*/trials.lock", "PRE, POST", "empty; who holds it writes the journal"),
    RunFile("regions/*/trials/*/trial.json", "PRE", "what the job is to train; `final` is the final training's folder"),
    RunFile("regions/*/trials/*/attempt.sub", "PRE", "what the next try asks for"),
    RunFile("regions/*/trials/*/start/*", "PRE", "what the next try starts from"),
    RunFile("regions/*/trials/*/result.json", "job", "how the training ended, its metrics, machine and versions"),
    RunFile("regions/*/trials/*/log.jsonl", "job", "a line for each epoch"),
    RunFile("regions/*/trials/*/checkpoint.nc", "job", "where an evicted training goes on; empty after its end"),
    RunFile("regions/*/trials/*/checkpoint.zip", "job", "the same of a program: what it has saved"),
    RunFile("regions/*/trials/*/scores.npy", "job", "the metrics of each customer, by every model that was measured"),
    RunFile("regions/*/trials/*/model.nc", "job", "the model of the final training"),
    RunFile("regions/*/trials/*/model.zip", "job", "what a program has left in its folder `artifact`"),
    RunFile("regions/*/trials/*/floor.nc", "job", "recent popularity or logistic regression, fitted on the same days"),
    RunFile("regions/*/trials/*/job.out", "job", "its standard output"),
    RunFile("regions/*/trials/*/job.err", "job", "its standard error: where to look first"),
    RunFile("regions/*/trials/*/job.log", "HTCondor", "the events of the job"),
    RunFile("regions/*/decisions.json", "PRE", "which recipe serves, and why"),
    RunFile("regions/*/champion/model.nc", "POST", "the model that serves, fitted on all days"),
    RunFile("regions/*/champion/model.zip", "POST", "what a program has made, as a zip archive"),
    RunFile("regions/*/champion/floor.nc", "POST", "the floor, beside the champion of all regions together"),
    RunFile("regions/*/champion/metrics.json", "POST", "what its recipe reached, and how it was made"),
    RunFile("regions/*/champion/confusion.json", "POST", "of pictures in classes: what was taken for what, with a few"),
    RunFile("manager.log", "PRE, POST", "what they said, a line each"),
    RunFile("machines.json", "POST", "machines that failed jobs of this run and have not done better since"),
    RunFile("machines.lock", "POST", "empty; who holds it writes machines.json"),
    RunFile("trials.lock", "PRE", "empty; who holds it proposes, where `limits.trials` is set"),
    RunFile("disk.json", "PRE", "bytes of the run at the last look, where `limits.disk` is set"),
    RunFile("started.json", "PRE", "when the run's first trial was prepared, where `limits.deadline` is set"),
    RunFile("notify.json", "generate", "whom to tell how the run ends, where study.yaml says it; no secrets"),
    RunFile("notified.json", "POST", "which messages arrived by which way, and which did not"),
    RunFile("track.json", "generate", "the tracking server, where study.yaml names one; no secrets"),
    RunFile("tracked.json", "POST", "how it last went with the tracking server, and the study's experiment there"),
    RunFile("regions/*/tracked.jsonl", "POST", "which ends of trainings the tracking server has"),
    RunFile("regions/*/tracked.lock", "POST", "empty; who holds it sends"),
    RunFile("notified.lock", "POST", "empty; who holds it tells"),
    RunFile(
        "report/summary.md", "report", "champions, their test metrics with intervals beside simpler models, reasons"
    ),
    RunFile("report/summary.json", "report", "the same for programs"),
    RunFile("report/index.html", "report", "the same and all trials, slots and failures as a page"),
    RunFile("report/regions/*/*.svg", "study plot", "pictures of a region's trials"),
    RunFile("*.dag.*", "HTCondor", "DAGMan's own files: `.dagman.out` is its log, `.rescue001` what is done already"),
    RunFile("regions/*/region.dag.*", "HTCondor", "the same of a region's graph"),
)
