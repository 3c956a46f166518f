"""POST: settle how a node's job ended, and put the final model in office.

May run twice for one node (DAGMan's recovery) and then changes nothing more: the journal holds one outcome per trial,
and files are replaced atomically.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nnlib.contract import (
    ENDED_WELL,
    FLOOR_FILE,
    MODEL_OUTPUTS,
    SCORES_FILE,
    TRIAL_FILE,
    Exit,
    Outputs,
    Result,
    Status,
    sha256_of,
)
from nnlib.util.files import copy_atomically, read_last_lines, write_atomically
from regiondag.condor.events.job_log import is_host, read_job_log
from regiondag.errors import GiveUpError, TryAgainError
from regiondag.node.brought import digest_of_result, find_contradiction, find_misfit, read_brought, refuse_odd
from regiondag.run.history import CANCELLED, History, TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.layout import JOB_ERRORS, JOB_LOG, START_FOLDER, NodeName, RegionFolder
from regiondag.run.manager_log import say
from regiondag.run.region_spec import RegionSpec, read_spec
from regiondag.run.region_state import check_not_hopeless, has_nothing_to_go_on_with, state_of
from regiondag.run.sick_machines import note_end
from regiondag.study.families import FAMILY, NETWORK
from regiondag.study.job_rules import NOBODY, OUT_OF_MEMORY
from regiondag.trainers.jobs import jobs_of
from regiondag.util.text import make_printable

REMOVED = -1002  # what DAGMan passes as $RETURN for a job that left the queue without running to its end
SUBMIT_FAILED = -1001
KILLED = -9
NOT_STARTED = (126, 127)  # the shell's exit codes where there is no Python to start
OUTPUT_LOST = 120  # Python's exit code where the last of its output cannot be written
# Ends after which what a training has saved is worth going on from; after any other it may be what went wrong.
GOES_ON = frozenset({Exit.MACHINE, Exit.EVICTED, Exit.CHECKPOINTED, REMOVED, KILLED, SUBMIT_FAILED, *NOT_STARTED})


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How DAGMan says a node's job ended."""

    exit_code: int
    retry: int
    max_retries: int
    dag_removed: bool = False  # the user removed the whole DAG, not this job
    job: str = ""  # cluster.proc; empty where none was submitted


def settle_trial(folder: RegionFolder, node: NodeName, end: JobEnd) -> TrialOutcome:
    """Record how a trial ended; TryAgainError and GiveUpError as the worker contract says."""
    return _settle(folder, node, end, read_spec(folder.spec))


def settle_final(folder: RegionFolder, node: NodeName, end: JobEnd) -> TrialOutcome:
    """Record how the final training ended, and make its model the champion, or the floor that it fitted."""
    spec = read_spec(folder.spec)
    settled = _settle(folder, node, end, spec)
    if not settled.ok:
        raise GiveUpError(f"region {spec.name!r}: the final training failed: {settled.reason}")
    from regiondag.registry.promote import promote_region

    promote_region(folder, spec)  # a crash before it is repaired by the next PRE or POST of this node
    return settled


def _settle(folder: RegionFolder, node: NodeName, end: JobEnd, spec: RegionSpec) -> TrialOutcome:
    journal = Journal(folder.journal)
    with journal.locked():
        history = journal.read()
        known = history.outcome(node.number)
        if known is not None and known.job and end.job not in ("", known.job):
            say(
                f"{node}: job {end.job} ended after job {known.job} was settled, which stays: two DAGMans work on this "
                f"run; end one of them (`condor_q -dag` lists them), then type: regiondag verify {folder.run.path}"
            )
        if known is None:
            odd = refuse_odd(folder.trial(node), spec.outputs, _most_bytes(node, spec))
            if end.exit_code not in GOES_ON:
                (folder.trial(node) / spec.outputs.checkpoint).unlink(missing_ok=True)
                shutil.rmtree(folder.trial(node) / START_FOLDER, ignore_errors=True)
            known = read_end(folder, node, end, spec)
            if odd and known.status != Status.REMOVED:
                known = replace(known, status=Status.MACHINE, reason=odd)
            if node.number is None and known.ok:
                known = _look_into_models(folder, node, known, spec)
            _note_machine(folder, end, known)
            if node.number in history.cancelled and known.value is None:
                known = replace(known, status=Status.REMOVED, reason=CANCELLED)
            _check_worth_another_try(journal, history, node, end, known, spec)
            if node.number is None and known.ok:
                from regiondag.node.choice import judge_final  # scripts of trials start without

                known = judge_final(folder, spec, known, history)
                won = history.won[0] if history.won else None
                # Before the journal says so: a crash between the two is repeated.
                write_champion(folder, node, known, spec, won)
            if not _was_said(history, known):
                journal.append("settled", **asdict(known))
    if end.dag_removed:
        # DAGMan 23.9 crashes when a node's success readies another one while it is being removed. What is settled is
        # settled: PRE skips this node next time.
        raise TryAgainError(f"{node}: settled while the DAG was being removed")
    if known.status == Status.BAD_INPUT:
        raise GiveUpError(f"region {spec.name!r}, {node}: {known.reason}")
    if node.number is not None and not known.ok:
        check_not_hopeless(spec, state_of(spec, journal.read()))
    return known


def _look_into_models(folder: RegionFolder, node: NodeName, known: TrialOutcome, spec: RegionSpec) -> TrialOutcome:
    """Return a final training's outcome: its machine's fault where a model that it brought is not what the trial says.

    Of a program nobody but its author can say that.
    """
    if spec.outputs != MODEL_OUTPUTS:
        return known
    archive = next(folder.run.path.glob("nnlib-*.pyz"), folder.run.path)  # else the nnlib that is installed here
    misfit = find_misfit(folder.trial(node), folder.run.region(spec.served_by or spec.slug).path, archive)
    return replace(known, status=Status.MACHINE, reason=f"it brought back {misfit}") if misfit else known


def _most_bytes(node: NodeName, spec: RegionSpec) -> int:
    job = spec.job if node.number is not None else spec.final or spec.job
    return job.max_output or job.disk


def _was_said(history: History, known: TrialOutcome) -> bool:
    """Return whether the journal has this end of this job, as when DAGMan was killed before it noted that POST ran."""
    before = history.last_outcome(known.trial)
    return before is not None and bool(known.job) and (before.job, before.status) == (known.job, known.status)


def _check_worth_another_try(
    journal: Journal, history: History, node: NodeName, end: JobEnd, outcome: TrialOutcome, spec: RegionSpec
) -> None:
    """Raise TryAgainError for an end that is not to be settled yet."""
    if end.dag_removed and outcome.status == Status.REMOVED:
        raise TryAgainError(f"{node}: removed together with the DAG; it runs when the DAG is submitted again")
    if outcome.status != Status.MACHINE:
        return
    stops = node.number is not None and has_nothing_to_go_on_with(spec, history, node.number)
    nobody, last = outcome.reason.startswith(NOBODY), end.retry >= end.max_retries
    if (nobody or last) and not stops:
        return  # neither would the next try find a machine, or there is none
    if not nobody and (not end.job or end.job not in {fault.job for fault in history.faults_of(node.number)}):
        place = {"host": outcome.host, "job": outcome.job}
        journal.append("attempt", trial=node.number, reason=outcome.reason, seconds=outcome.seconds, **place)
    if not nobody and not last:
        raise TryAgainError(f"{node}: {outcome.reason}; try {end.retry + 2} of {end.max_retries + 1}")
    mend = "`regiondag doctor` says which machines would do, then" if nobody else "mend the machines and"
    advice = f"it stops here; {mend} submit the DAG again"
    reason = f"{node}: {outcome.reason}. No trial of the region has succeeded so far, so {advice}"
    journal.note_stop(node.number, reason)
    kind = GiveUpError if nobody else TryAgainError
    raise kind(f"region {spec.name!r}, {reason}")


def read_end(folder: RegionFolder, node: NodeName, end: JobEnd, spec: RegionSpec) -> TrialOutcome:
    """Say how and where a node's job ended, by what lies in its folder."""
    place = folder.trial(node)
    (result, wrong), seen = read_brought(place, node), read_job_log(place / JOB_LOG, end.job)
    settled = _classify(place, node, end, result, seen.removed, spec.outputs)
    if wrong and end.exit_code == Exit.OK:
        settled = replace(settled, reason=f"{settled.reason}: {wrong}")
    settled = replace(
        settled, reason=make_printable(" ".join(settled.reason.split()))
    )  # as workers and others wrote it
    host = seen.host or (result.host if result and is_host(result.host) else "")
    return replace(settled, host=host, job=end.job, result=digest_of_result(place))


def _note_machine(folder: RegionFolder, end: JobEnd, settled: TrialOutcome) -> None:
    """Note how the machine did, unless that says nothing of it."""
    if settled.status != Status.REMOVED and not settled.reason.startswith((OUT_OF_MEMORY, NOBODY)):
        failure = settled.reason if settled.status == Status.MACHINE else ""
        note_end(folder.run, settled.host, end.job, failure, time.time())


def _classify(
    place: Path, node: NodeName, end: JobEnd, result: Result | None, removed: str, brings: Outputs
) -> TrialOutcome:
    """Say how the job ended, from DAGMan's exit code, the job's result.json, and why HTCondor `removed` it."""
    if end.exit_code == Exit.OK and result and result.status in ENDED_WELL:
        lost = _find_lost(place, result, node, brings)
        wrong = f"{lost} did not come back as the job wrote it" if lost else find_contradiction(place, result)
        if not wrong:
            return _success(result, node)
        status, reason = Status.MACHINE, wrong
    else:
        status, reason = _failure(end, result.reason if result else "", _read_last_error(place), removed)
    return TrialOutcome(node.number, status, reason, seconds=result.seconds if result else 0.0)


def _failure(end: JobEnd, said: str, printed: str, removed: str) -> tuple[Status, str]:
    """Return the kind of a failure and its reason: what the job `said` where it did, else what it `printed` last."""
    if end.exit_code == REMOVED:
        reason = removed or "nothing says by whom, or by what rule"
        if reason.startswith(NOBODY):
            return Status.MACHINE, reason
        return Status.REMOVED, f"the job was removed from the queue: {reason}"
    if end.exit_code == Exit.DIVERGED:
        return Status.DIVERGED, said or "the training diverged"
    if end.exit_code == Exit.BAD_INPUT:
        return Status.BAD_INPUT, said or "the worker refused its input"
    return Status.MACHINE, said or _describe(end.exit_code, printed)


def _find_lost(place: Path, result: Result, node: NodeName, brings: Outputs) -> str:
    """Return which of the files that the job wrote is not here, to the byte; nothing where all are."""
    wanted = {SCORES_FILE: result.scores, FLOOR_FILE: result.floor}
    wanted = {name: digest for name, digest in wanted.items() if digest}
    if node.number is None:
        wanted = {brings.model: result.model, **wanted}  # trials bring none
    lost = (name for name, digest in wanted.items() if not _is_whole(place / name, digest))
    return next(lost, "")


def _is_whole(file: Path, digest: str) -> bool:
    try:
        return sha256_of(file) == digest
    except OSError:
        return False


def _success(result: Result, node: NodeName) -> TrialOutcome:
    return TrialOutcome(
        trial=node.number,
        status=result.status,
        reason=result.reason,
        value=result.value,
        stderr=result.stderr,
        customers=result.customers,
        metrics=result.metrics,
        baseline=result.baseline,
        curve=result.curve,
        best_epoch=result.best_epoch,
        seconds=result.seconds,
        recipe=result.recipe,
        compared=result.compared,
        fitted_until=result.fitted_until,
    )


def _read_last_error(place: Path) -> str:
    """Return the last line that this try's job printed to its standard error, as it lies in its folder."""
    errors = place / JOB_ERRORS
    with suppress(OSError):
        if errors.stat().st_mtime >= (place / TRIAL_FILE).stat().st_mtime:  # else of a try before this one
            return "".join(read_last_lines(errors, 1))[:300]
    return ""


def _describe(exit_code: int, printed: str) -> str:
    if exit_code == SUBMIT_FAILED:
        return "HTCondor did not accept the job; manager.log and the DAG's .dagman.out say why"
    if exit_code == Exit.OK:
        return "the job ended with 0 but brought no complete result.json"
    if exit_code == OUTPUT_LOST:
        return "the job could not write what it printed, as on a machine whose disk is full"
    killed = -1000 < exit_code < 0
    end = f"the job was killed by signal {-exit_code}" if killed else f"the job ended with exit code {exit_code}"
    return (
        f"{end}; its {JOB_ERRORS} ends: {printed}"
        if printed
        else f"{end}, without a reason or a word in its {JOB_ERRORS}"
    )


def write_champion(
    folder: RegionFolder, node: NodeName, settled: TrialOutcome, spec: RegionSpec, won: int | None
) -> None:
    """Put what serves into `champion/`: the model first, then what is known of it."""
    place = folder.trial(node)
    trial = json.loads((place / TRIAL_FILE).read_text(encoding="utf-8"))
    floor_serves = settled.recipe is not None and trial["recipe"] is None  # instead of the network
    folder.champion_model.parent.mkdir(exist_ok=True)
    copy_atomically(place / (FLOOR_FILE if floor_serves else spec.outputs.model), folder.champion_model)
    made, _ = read_brought(place, node)
    if made and made.confusion and not floor_serves:
        write_atomically(folder.champion_confusion, json.dumps(asdict(made.confusion), ensure_ascii=False) + "\n")
    else:
        folder.champion_confusion.unlink(missing_ok=True)
    facts = _champion_facts(folder, made, settled, spec, won, trial)
    facts["sha256"] = sha256_of(folder.champion_model)
    if spec.regions:
        copy_atomically(place / FLOOR_FILE, folder.champion_floor)
        facts["floor"] = sha256_of(folder.champion_floor)
    write_atomically(folder.champion_metrics, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def _champion_facts(
    folder: RegionFolder,
    made: Result | None,
    settled: TrialOutcome,
    spec: RegionSpec,
    won: int | None,
    trial: Mapping[str, Any],
) -> dict[str, Any]:
    searched, train = jobs_of(spec).settings(trial["train"])
    settings = {p.name: searched[p.name] for p in spec.search.space if p.name in searched}
    if spec.search.of_families:
        settings[FAMILY] = NETWORK
    if trial["recipe"]:
        settings = {FAMILY: trial["recipe"]["family"], **trial["recipe"]["hyperparameters"]}
    return {
        "study": spec.study,
        "region": spec.name,
        "run": folder.run.path.name,
        "hyperparameters": {**trial["hyperparameters"], **settings},
        "train": train,
        "metric": asdict(spec.metric),
        "test": dict(settled.metrics),
        "popularity": dict(settled.baseline),
        "inputs": trial["sha256"],
        "recipe": asdict(settled.recipe) if settled.recipe else None,
        "floor_recipe": spec.floor and asdict(spec.floor),  # none: popularity
        "fitted_until": settled.fitted_until,
        "intervals": dict(settled.intervals),
        "customers": settled.customers,
        "compared": dict(settled.compared),
        "trial": won,  # whose hyperparameters these are
        "seed": trial["train"]["seed"],
        "code": made.code if made else "",
        "host": made.host if made else "",
        "machine": dict(made.machine) if made else {},
        "gpu": dict(made.gpu) if made else {},
        "backend": made.backend if made else "",
        "precision": made.precision if made else "",
        "versions": dict(made.versions) if made else {},
    }
