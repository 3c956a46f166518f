"""Take a study through all of its steps, from where it is to the report; started again, it goes on from there.

Nothing is remembered beside what the steps themselves leave: data sets, run directories, DAGMan's logs, journals. So a
call that was killed at any point has lost nothing, and the next one finds by `next_step` what is left to do.
"""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nnlib.util.files import locked
from regiondag.condor.events.log import read_attempts
from regiondag.condor.preflight import check_run
from regiondag.condor.submit import find_slash_tmp, find_unfinished_job, submit_dag
from regiondag.errors import PoolError, PreflightError, RegiondagError
from regiondag.monitor.status import RunStatus, read_status
from regiondag.pipeline.make_run import Inputs, Tell, plan_run, plan_update, read_inputs, write_planned
from regiondag.pipeline.news import MOVED, STUDY_CHANGED, find_news
from regiondag.pipeline.next_step import Facts, Step, next_step
from regiondag.pool import lifecycle
from regiondag.pool.pool import Pool, choose_name, find_pool, read_state, require_pool, why_absent
from regiondag.report.bill import read_bill
from regiondag.report.summary import Summary
from regiondag.report.write import write_report
from regiondag.run.layout import RunFolder, dagman_log
from regiondag.run.manifest import read_manifest
from regiondag.run.region_spec import read_spec
from regiondag.run.region_state import FINISHED
from regiondag.run.study_folder import StudyFolder
from regiondag.study.model import POOLED
from regiondag.util.text import list_some, show_duration

LOCK_FILE = ".run.lock"  # in the folder of runs; who holds it makes or submits one
INSTALLED = "installed"  # the name by which REGIONDAG_POOL means the HTCondor of this machine
MOST_GPUS = 16  # that HTCondor simulates
SHOWN = 3  # names of regions in a line


class End(enum.StrEnum):
    """How a call ended."""

    SERVED = "served"  # every region has its champion
    UNSERVED = "unserved"  # some have none
    LEFT = "left"  # the run goes on by itself


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a study is to be run."""

    pool: str | None = None  # name of the embedded one
    htcondor: str | None = None  # oldest version to render for
    anew: bool = False  # a new run in any case
    detach: bool = False  # do not wait for its end
    call: str = "regiondag run"  # how to say the same again


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where what happens is told: each step with what came of it, words on the way, and where the run stands."""

    step: Callable[[str, str], None]
    tell: Tell
    warn: Tell  # of what needs a person
    show: Callable[[RunFolder, RunStatus], float]  # returns for how many seconds not to look again


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call."""

    run: str  # path of the run directory
    end: End  # served: every region has its champion; unserved: some have none; left: the run goes on by itself
    exit_code: int
    dag: str  # what DAGMan does, as in `regiondag status`
    dagman_jobs: tuple[int, ...] = ()  # DAGMan's jobs that are in the queue
    summary: Summary | None = None  # as `regiondag report` has it; not while the run goes on

    @property
    def folder(self) -> RunFolder:
        """The run directory."""
        return RunFolder(Path(self.run))


def run_study(study: StudyFolder, wishes: Wishes, outlet: Outlet) -> Outcome:
    """Do all that is left to do, and return what came of it. KeyboardInterrupt leaves a run that was submitted alone.

    Raises the error of the step that failed: the next call begins with it.
    """
    conductor = _Conductor(study, wishes, outlet)
    with ExitStack() as alone:
        alone.enter_context(_alone(study, outlet.tell))
        while (step := next_step(conductor.facts())) not in (Step.WATCH, Step.REPORT):
            conductor.do(step)
    if step == Step.WATCH and wishes.anew and not conductor.made:
        raise RegiondagError(
            f"{conductor.name} is still in progress, and no new run is made beside it; watch it without --new, "
            f"or end it: {stop_line(find_dagmans(conductor.the_run), wishes.pool)}"
        )
    if step == Step.WATCH and wishes.detach:
        return conductor.outcome(End.LEFT, None)
    while step != Step.REPORT:
        conductor.do(step)
        step = next_step(conductor.facts())
    return conductor.report()


def find_dagmans(run: RunFolder) -> tuple[int, ...]:
    """Return the jobs that work on a run by their event logs."""
    dags = run.dags(read_manifest(run).regions)
    return tuple(job for dag in dags if (job := find_unfinished_job(None, dagman_log(dag))) is not None)


def stop_line(dagmans: tuple[int, ...], pool: str | None) -> str:
    """Return what to type to end a run."""
    found = find_pool(pool)
    embedded = found is not None and found.kind == "embedded"
    within = f"regiondag pool exec{f' --name {pool}' if pool else ''} -- " if embedded else ""
    return f"{within}condor_rm {' '.join(map(str, dagmans))}"


@contextmanager
def _alone(study: StudyFolder, tell: Tell) -> Iterator[None]:
    """Hold the lock of the study's runs: two calls at a time would make or submit one each."""
    study.runs.mkdir(parents=True, exist_ok=True)
    path = study.runs / LOCK_FILE
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(path, wait=False))
        except BlockingIOError:
            tell("another `regiondag run` makes or submits a run of this study; waiting for it")
            stack.enter_context(locked(path))
        yield


@dataclass
class _Conductor:
    """One call: what is known so far, and the steps that find out more."""

    study: StudyFolder
    wishes: Wishes
    outlet: Outlet
    made: bool = False
    doctored: bool = False
    watched: bool = False
    news: str | None = None
    inputs: Inputs | None = None
    runs: list[RunFolder] = field(default_factory=list)
    status: RunStatus | None = None

    def __post_init__(self) -> None:
        self.pool = find_pool(self.wishes.pool)
        self.runs = self.study.list_runs()
        if self.runs:
            self._look()

    @property
    def the_run(self) -> RunFolder:
        return self.runs[0]

    @property
    def the_pool(self) -> Pool:
        return self.pool or require_pool(self.wishes.pool)

    @property
    def name(self) -> str:
        return self.the_run.path.name

    @property
    def dag(self) -> str:
        return self.status.dag if self.status else ""

    def facts(self) -> Facts:
        status = self.status
        return Facts(
            pool=self.pool is not None,
            run=status is not None,
            dag=status.dag if status else "",
            served=status is not None and all(region.final in FINISHED for region in status.regions),
            news=self.news,
            anew=self.wishes.anew and not self.made,
            doctored=self.doctored,
            watched=self.watched,
        )

    def do(self, step: Step) -> None:
        """Do one step, and tell what came of it."""
        doing: dict[Step, Callable[[], str]] = {
            Step.DATA: self.read,
            Step.POOL: self.start_pool,
            Step.RUN: self.make,
            Step.DOCTOR: self.check,
            Step.SUBMIT: self.submit,
            Step.WATCH: self.watch,
        }
        self.outlet.step(step, doing[step]())

    def read(self) -> str:
        refused = find_slash_tmp(self.study.runs, self.wishes.call)
        if refused:  # before a table of gigabytes is read, or a pool made
            raise PreflightError(refused)
        self.inputs = read_inputs(self.study)
        for note in self.inputs.notes:
            self.outlet.tell(note)
        self.news = find_news(self.inputs.config, self.runs)
        config = self.inputs.config
        trials = sum(region.search.trials for region in config.regions)
        table = config.purchases.table.name if config.purchases else ""
        came = f" imported from {table}" if self.inputs.imported else f" of {table}, as they are" if table else ""
        own = sum(not region.merged for region in config.regions)
        return f"{own} region{'s' * (own != 1)}{came}; {trials} trials{self._describe_last()}"

    def start_pool(self) -> str:
        wanted = choose_name(self.wishes.pool)
        if wanted == INSTALLED:
            raise PoolError(why_absent(self.wishes.pool))
        state = read_state(wanted)
        gpus = (state.simulated_gpus if state else 0) or self._count_gpus()
        self.pool = lifecycle.up(self.wishes.pool, lifecycle.PoolWishes(simulated_gpus=gpus), self.outlet.tell)
        if self.runs:
            self._look()
        simulated = f", {gpus} simulated GPUs (they compute on the processors)" if gpus else ""
        return f"{self.pool.name!r} is up{simulated}; it stays so: regiondag pool down"

    def make(self) -> str:
        inputs, planned = self.inputs or read_inputs(self.study), None
        if self.runs and not self.wishes.anew and self.news not in (STUDY_CHANGED, MOVED):
            planned = plan_update(inputs, self.outlet.tell, self.outlet.warn)
        planned = planned or plan_run(inputs, self.outlet.warn)
        for note in planned.notes:
            self.outlet.tell(note)
        run = write_planned(inputs, planned, self.pool, self.wishes.htcondor)
        self.runs.insert(0, run)
        self.made, self.news = True, ""
        self._look()
        beaten = f"; {len(planned.incumbents)} champions to beat" if planned.incumbents else ""
        return f"{show_path(run)}{beaten}"

    def check(self) -> str:
        refused = find_slash_tmp(self.the_run.path, self.wishes.call)
        if refused:
            raise PreflightError(refused)
        findings = list(check_run(self.the_pool, self.the_run, list(read_manifest(self.the_run).regions)))
        bad = [f"BAD  {finding.subject}: {finding.text}" for finding in findings if not finding.good]
        if bad:
            hint = self._suggest_gpus()
            raise PreflightError("\n".join([*bad, f"{self.the_run.path} would not run on this pool as it is{hint}"]))
        self.doctored = True
        return f"would run on the pool {self.the_pool.name!r}: {len(findings)} checks good"

    def submit(self) -> str:
        self._look()
        if self.facts().working:  # by a condor_submit_dag whose caller was killed
            return f"{self.name} is in the queue already"
        again = self.dag != "not submitted"
        code = submit_dag(self.the_pool, self.the_run, list(read_manifest(self.the_run).regions), quietly=True)
        if code != 0:
            raise RegiondagError(f"condor_submit_dag ended with {code}; its words stand above")
        self._look()
        jobs = ", ".join(map(str, find_dagmans(self.the_run)))
        return f"{self.name} is job {jobs}{' again; what is done stays' if again else ''}"

    def watch(self) -> str:
        """Look until the run is over."""
        status = self._look()
        while (seconds := self.outlet.show(self.the_run, status)) and not status.over:
            time.sleep(seconds)
            self.pool = find_pool(self.wishes.pool)
            if self.pool is None:
                raise PoolError(f"{why_absent(self.wishes.pool)}; then the run goes on: {self.wishes.call}")
            status = self._look()
        self.watched = True
        return self._describe_end(status)

    def report(self) -> Outcome:
        summary = write_report(self.the_run, read_bill(read_attempts(self.the_run), None, time.time()))
        end = End.SERVED if summary.finished else End.UNSERVED
        if not self.watched:
            self.outlet.step(Step.RUN, f"nothing new since {self.name}: no run made (--new makes one)")
        own = [region for region in summary.regions if region.slug != POOLED]
        done = sum(region.finished for region in own)
        self.outlet.step(Step.REPORT, f"{done} of {len(own)} regions have their champion")
        return self.outcome(end, summary)

    def outcome(self, end: End, summary: Summary | None) -> Outcome:
        code = RegiondagError.exit_code if end == End.UNSERVED else 0
        jobs = find_dagmans(self.the_run) if end == End.LEFT else ()
        return Outcome(str(self.the_run.path), end, code, self.dag, jobs, summary)

    def _look(self) -> RunStatus:
        """Read again where the newest run stands."""
        self.status = read_status(self.the_run, self.pool, self.wishes.pool)
        return self.status

    def _describe_last(self) -> str:
        """Say why the newest run is not the last word."""
        if not self.status or (self.facts().finished and not self.news):
            return ""
        if self.news:
            return f"; {self.name} is of before: {self.news}"
        if self.dag == "not submitted":
            return f"; {self.name} is made, not submitted"
        lacking = [region.region for region in self.status.regions if region.final not in FINISHED]
        return f"; {self.name} {self.dag}, without champions: {list_some(lacking, SHOWN)}"

    def _describe_end(self, status: RunStatus) -> str:
        took = f" after {show_duration(time.time() - status.started)}" if status.started else ""
        if status.dag == "removed":
            return f"{self.name} was removed from the queue{took}; to go on with it: {self.wishes.call}"
        if status.dag == "crashed":
            return f"DAGMan crashed, or its queue is gone{took}; to go on: {self.wishes.call}"
        return f"{self.name} ended with exit code {status.exit_code}{took}"

    def _count_gpus(self) -> int:
        """Return how many GPUs a pool has to simulate: none where no job asks for one."""
        if self.facts().working:
            known = [read_spec(self.the_run.region(slug).spec) for slug in read_manifest(self.the_run).regions]
            jobs = [job for spec in known for job in (spec.job, spec.final)]
        else:
            regions = self.inputs.config.regions if self.inputs else ()
            jobs = [job for region in regions for job in (region.job, region.final)]
        most = max((job.gpus for job in jobs if job), default=0)
        return max(most, min(MOST_GPUS, max(2, os.cpu_count() or 2))) if most else 0

    def _suggest_gpus(self) -> str:
        if self.pool and self.pool.kind == "embedded" and not self.pool.simulated_gpus and self._count_gpus():
            return '; without GPUs say `job: {gpus: 0, requirements: "true"}`, or start the pool with simulated ones'
        return ""


def show_path(run: RunFolder) -> str:
    """Return a run's path, from the current folder where it lies below that."""
    here = os.path.relpath(run.path)
    return str(run.path) if here.startswith("..") else here
