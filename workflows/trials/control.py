"""Cancel, run again and prioritise single trials of a run, while its DAG is in progress or after it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nnlib.contract import ENDED_WELL, RESULT_FILE, TRIAL_FILE
from nnlib.util.files import write_atomically
from regiondag.condor import client
from regiondag.condor.quoting import classad_string
from regiondag.condor.submit import find_unfinished_job, reopen_in_rescue_files
from regiondag.errors import PoolError
from regiondag.pool.pool import Pool
from regiondag.run.history import History
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RunFolder, dagman_log, parse_node
from regiondag.run.region_spec import read_spec
from regiondag.run.region_state import state_of, why_not_needed
from regiondag.run.start_time import has_expired
from regiondag.trials.query import Place

# In the place of a trial.json that DAGMan will still submit: the job ends as soon as it has started.
NO_TRIAL = '{"cancelled": true}\n'
PATIENCE = 20.0  # seconds that POST gets to settle what was removed


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a wish for one trial, in words; `done` is false where it could not be."""

    node: NodeName
    done: bool
    text: str


@dataclass(frozen=True, slots=True)
class RegionJobs:
    """The DAGMans that work on a region now, and the jobs that they have in the queue."""

    pool: Pool | None
    run: RunFolder
    dagmans: tuple[int, ...]

    def jobs(self, node: NodeName) -> list[client.QueuedJob]:
        """Return the jobs of a node; there is one, or none."""
        if self.pool is None:
            return []
        return [job for dagman in self.dagmans for job in client.query_jobs(self.pool, dagman, str(node))]

    def tell(self, program: str, node: NodeName) -> None:
        """Have one of HTCondor's programs do its work on a node's job; PoolError with what it says when it fails."""
        ours = " || ".join(f"DAGManJobId == {dagman}" for dagman in self.dagmans)
        self._call([program, "-constraint", f"({ours}) && DAGNodeName == {classad_string(str(node))}"])

    def set_priority(self, job: str, priority: int) -> None:
        """Give a job another priority."""
        self._call(["condor_prio", "-p", str(priority), job])

    def _call(self, argv: Sequence[str]) -> None:
        if self.pool is None:
            raise PoolError("no pool is running here; regiondag pool up")
        done = self.pool.run(argv, cwd=self.run.path, capture_output=True)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise PoolError(f"{' '.join(argv)} failed with exit code {done.returncode}: {said}")


def queue_of(run: RunFolder, slugs: Iterable[str], pool: Pool | None) -> RegionJobs:
    """Look which DAGMans work on the study or on regions of it; PoolError when that cannot be known."""
    dagmans = []
    for dag in run.dags(slugs):
        log = dagman_log(dag)
        job = find_unfinished_job(pool, log)
        if job is not None and pool is None:
            raise PoolError(
                f"by {log} job {job} is in progress, and no pool runs here that could be asked. "
                "Start it (`regiondag pool up`) and try again"
            )
        dagmans += [] if job is None else [job]
    return RegionJobs(pool, run, tuple(dagmans))


def check_idle(run: RunFolder, slugs: Iterable[str], pool: Pool | None) -> None:
    """Raise PoolError while a DAGMan works on the run: it writes the same records."""
    dagmans = queue_of(run, slugs, pool).dagmans
    if dagmans:
        raise PoolError(
            f"job {dagmans[0]} works on {run.path} and writes what would be repaired: wait for its end, or "
            f"`condor_rm {dagmans[0]}` and submit the DAG again afterwards"
        )


def places_of(queue: RegionJobs) -> dict[tuple[str, int], Place]:
    """Return where the jobs of all trials are, by slug and trial."""
    found: dict[tuple[str, int], Place] = {}
    for dagman in queue.dagmans:
        for job in client.query_jobs(queue.pool, dagman) if queue.pool else []:
            try:
                node = parse_node(job.node)
            except ValueError:
                continue  # the report's
            if node.number is not None:
                found[node.slug, node.number] = Place(job.status, job.machine, job.priority)
    return found


# --- cancel ------------------------------------------------------------------------------------------------


def cancel(queue: RegionJobs, node: NodeName, patience: float = PATIENCE) -> Answer:
    """End a trial that was proposed and is not settled; it counts as removed, and the study goes on."""
    if node.number is None:
        return Answer(node, False, "the final training is what the region is for; condor_rm of its DAG ends all of it")
    folder = queue.run.region(node.slug)
    journal = Journal(folder.journal)
    with journal.locked():
        history = journal.read()
        refusal = _not_to_cancel(history, node.number, bool(queue.jobs(node)))
        if refusal:
            return Answer(node, False, refusal)
        before = history.settled_at.get(node.number)
        journal.append("cancelled", trial=node.number)
        if not queue.dagmans:
            journal.note_cancelled(node.number)
            return Answer(node, True, "cancelled: it is not run when the DAG is submitted again")
    # From here on PRE refuses it. What PRE had prepared before, DAGMan submits now or when its turn comes.
    place = folder.trial(node)
    result = place / RESULT_FILE
    if result.exists() and result.stat().st_size:  # PRE takes away what was there before: a job has come back
        return _when_settled(journal, node, before, patience)
    if not queue.jobs(node) and (place / TRIAL_FILE).exists():
        write_atomically(place / TRIAL_FILE, NO_TRIAL)
    if queue.jobs(node):
        queue.tell("condor_rm", node)
        return _when_settled(journal, node, before, patience)
    return Answer(node, True, "cancelled: it has no job in the queue yet, and ends when its turn comes")


def _not_to_cancel(history: History, number: int, queued: bool) -> str:
    """Return why a trial cannot be cancelled, nothing if it can."""
    settled = history.settled.get(number)
    if settled and not (queued and history.outcome(number) is None):
        return f"has ended already: {settled.status}{f', {settled.reason}' if settled.reason else ''}"
    if number in history.cancelled:
        return "was cancelled before"
    if number not in history.proposals:
        return "is not proposed yet, so there is nothing to cancel; `regiondag study show` lists those that are"
    return ""


def _when_settled(journal: Journal, node: NodeName, before: float | None, patience: float) -> Answer:
    """Wait for an outcome other than the one of `before`, and say what it is."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        history = journal.read()
        settled = history.last_outcome(node.number)
        if settled and history.settled_at.get(node.number or 0) != before:
            why = f"{settled.status}, {settled.reason}" if settled.reason else settled.status
            return Answer(node, not settled.ok, why if not settled.ok else "ended well before its job was removed")
        time.sleep(0.2)
    return Answer(node, True, "cancelled: its job was removed, and POST will settle it")


# --- run again ---------------------------------------------------------------------------------------------


def rerun(queue: RegionJobs, node: NodeName, *, force: bool = False) -> Answer:
    """Run a trial, or the final training, again: its job now, if it is in the queue, else when the DAG is submitted."""
    jobs = queue.jobs(node)
    if jobs:
        return _start_again(queue, node, jobs[0])
    folder = queue.run.region(node.slug)
    spec, journal = read_spec(folder.spec), Journal(folder.journal)
    with journal.locked():
        history = journal.read()
        refusal = _not_to_reopen(history, node.number, force)
        if node.number is not None and not refusal:
            state = state_of(spec, history, expired=has_expired(queue.run, spec.deadline, time.time()))
            spare = why_not_needed(state, history, node.number)
            refusal = f"would do nothing: {spare}" if spare else ""
        if refusal:
            return Answer(node, False, refusal)
        journal.append("reopened", trial=node.number)
        final_too = node.number is not None and history.final is not None
        if final_too:
            journal.append("reopened", trial=None)
    more = ", and then the final training, as another trial may win" if final_too else ""
    if queue.dagmans:
        when = f"when the DAG in progress (job {queue.dagmans[0]}) has ended and"
    else:
        reopen_in_rescue_files(queue.run, [node.slug])
        when = "when"
    return Answer(node, True, f"runs again{more}, {when} the DAG is submitted: regiondag submit {queue.run.path}")


def _start_again(queue: RegionJobs, node: NodeName, job: client.QueuedJob) -> Answer:
    if job.status == "held":
        queue.tell("condor_release", node)
        return Answer(node, True, f"job {job.job} was held ({job.hold_reason}) and is released")
    if job.status in ("running", "transferring", "suspended"):
        queue.tell("condor_vacate_job", node)
        return Answer(node, True, f"job {job.job} leaves {job.machine} and starts again")
    return Answer(node, False, f"job {job.job} is {job.status} and runs as soon as a machine is free")


def _not_to_reopen(history: History, number: int | None, force: bool) -> str:
    """Return why a trial without a job in the queue is not to be run again, nothing if it is."""
    known = history.last_outcome(number)
    if number in history.reopened:
        return "is to be run again already, when the DAG is submitted"
    if known is None:
        return "has not ended yet: it runs when its turn comes, once the DAG is submitted"
    if known.status in ENDED_WELL and not force:
        return f"ended well ({known.status}); --force forgets that and runs it again"
    return ""


# --- priority ----------------------------------------------------------------------------------------------


def prioritise(queue: RegionJobs, node: NodeName, priority: int) -> Answer:
    """Give the job of a trial, or of the final training, another priority among the user's jobs."""
    jobs = queue.jobs(node)
    if not jobs:
        return Answer(node, False, "has no job in the queue; `regiondag study show` lists those that have")
    for job in jobs:
        queue.set_priority(job.job, priority)
    before = jobs[0]
    return Answer(node, True, f"job {before.job}, {before.status}, has priority {priority}, it had {before.priority}")
