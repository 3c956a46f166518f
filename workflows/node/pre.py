"""PRE: propose hyperparameters and write the node's trial.json.

May run twice for one node (retries, rescue DAGs) and then changes nothing more: the journal holds one proposal per
trial, and trial.json comes out the same but for the table of rungs, which is of what is known by then.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from nnlib.contract import (
    CHECKPOINT_FILE,
    INIT_FILE,
    LOG_FILE,
    MODEL_FILE,
    RESULT_FILE,
    TRIAL_FILE,
    Role,
    Status,
    Trial,
    trial_to_json,
)
from nnlib.util.files import write_atomically
from regiondag.condor.quoting import classad_string
from regiondag.errors import GiveUpError
from regiondag.node.init_model import start_from_model
from regiondag.node.shared_trials import read_shared
from regiondag.run.history import History
from regiondag.run.journal import Journal
from regiondag.run.layout import (
    ATTEMPT_SUBMIT,
    NETWORK_FILE,
    START_FOLDER,
    NodeName,
    RegionFolder,
    data_file,
)
from regiondag.run.manager_log import say
from regiondag.run.observations import observe_trials
from regiondag.run.region_spec import RegionSpec, read_spec
from regiondag.run.region_state import check_not_hopeless, state_of
from regiondag.run.sick_machines import choose_avoided, leave_some, query_machines, read_failures
from regiondag.run.start_time import note_start
from regiondag.study.job_rules import OUT_OF_MEMORY, memory_after, memory_steps
from regiondag.study.model import TRAIN_SETTINGS
from regiondag.study.space import Value, seed_of, with_defaults
from regiondag.tuning.propose import propose, rank_trials
from regiondag.tuning.pruning import make_rungs


def prepare_trial(folder: RegionFolder, node: NodeName) -> bool:
    """Write trial.json of a trial; the first node of a round proposes for the whole round.

    Returns False, having done nothing, when the trial's outcome is known: DAGMan lost track of it (a crash, a removal
    without a rescue file), the journal did not; or when every point of a small space was tried, the budget is spent,
    the study is past its deadline, other lanes have taken the last trials, or it was cancelled.
    """
    if node.number is None:
        raise ValueError(f"{node} is not a trial")
    spec = read_spec(folder.spec)
    journal = Journal(folder.journal)
    with journal.locked():
        history = journal.read()
        if history.outcome(node.number) or _is_removed_for_good(history, node.number):
            return False
        if node.number in history.cancelled:
            if node.number not in history.settled:
                journal.note_cancelled(node.number)
            return False
        spec = start_from_model(folder, spec)
        now = time.time()
        ends = note_start(folder.run, now) + spec.deadline if spec.deadline else None  # it begins with the first trial
        state = state_of(spec, history, expired=ends is not None and now >= ends)
        if state.expired:
            return False
        if node.number not in history.settled:
            check_not_hopeless(spec, state)
        if node.number not in history.proposals:
            if state.complete:
                return False
            _propose(folder, spec, journal, history, node.number)
            history = journal.read()
        if node.number not in history.proposals:
            return False
        point = history.proposals[node.number].point
        trial = _make_trial(spec, node, Role.TUNE, point, ("train",))
        curves = [settled.curve for _, settled in sorted(history.settled.items()) if settled.curve]
        table = make_rungs(spec.search.prune, curves, trial.train.epochs, spec.metric.minimize)
        trial = _with_champion(trial, folder, spec)
        # Under the lock, too: who cancels the trial later finds the file there.
        _write_trial(folder, node, replace(trial, valid_file=data_file("valid"), rungs=tuple(table)))
        _write_attempt(folder, node, spec, history, ends)
    return True


def _is_removed_for_good(history: History, number: int) -> bool:
    """Return whether a trial was removed and the region does without it; who wants it to run again reopens it."""
    known = history.last_outcome(number)
    return known is not None and known.status == Status.REMOVED and history.any_ok


def _with_champion(trial: Trial, folder: RegionFolder, spec: RegionSpec) -> Trial:
    """Give the standing champion to a region's first trial, which measures it on the validation part.

    Not where the champion was trained on that very part: it would be measured by what it knows.
    """
    if trial.number != 0 or not folder.incumbent_model.exists():
        return trial
    facts = json.loads(folder.incumbent_metrics.read_text(encoding="utf-8"))
    if facts.get("validation") == spec.sha256[data_file("valid")]:
        return trial
    incumbent = folder.incumbent_model.name
    return replace(trial, champion=incumbent, sha256={**trial.sha256, **_digests(spec, [], incumbent)})


def _propose(folder: RegionFolder, spec: RegionSpec, journal: Journal, history: History, number: int) -> None:
    """Propose for the whole round of a trial, or in lanes for the trial alone."""
    numbers, before = _batch(spec, history, number)
    told = observe_trials(history, spec.metric, before)
    shared = read_shared(folder, spec)
    given = spec.first[numbers.start : numbers.stop]
    pending = [history.proposals[trial].point for trial in before if trial not in told]
    asked = propose(
        spec.search,
        history=list(told.values()),
        pending=[*pending, *given],
        n=len(numbers) - len(given),
        seed=seed_of(spec.train.seed, spec.slug if shared is None else spec.study),
        shared=shared,
    )
    journal.append_all(
        ("proposed", {"trial": trial, "point": point})
        for trial, point in zip(numbers, [*given, *asked], strict=False)  # a small space may be exhausted
        if trial not in history.proposals
    )


def _batch(spec: RegionSpec, history: History, number: int) -> tuple[range, list[int]]:
    """Return the trials that are proposed together with one, and those that were proposed before them."""
    if spec.search.schedule == "lanes":
        return range(number, number + 1), sorted(history.proposals)
    together = spec.search.trials_of_round(number)
    return together, [n for n in sorted(history.proposals) if n < together.start]


def prepare_final(folder: RegionFolder, node: NodeName) -> bool:
    """Write trial.json of the final training: the winning trial's hyperparameters, for its best number of epochs.

    Returns False when the region has its champion already, unless a trial that was run again since is better.
    """
    spec = read_spec(folder.spec)
    journal = Journal(folder.journal)
    with journal.locked():
        history = journal.read()
        spec = start_from_model(folder, spec)
        if history.outcome(None):
            if _is_up_to_date(folder, spec, history):
                return False
            journal.append("reopened", trial=None)
            history = journal.read()
        winner = _find_winner(folder, spec, journal, history)
    trial = _make_trial(spec, node, Role.FINAL, history.proposals[winner].point, spec.final_parts)
    incumbent = folder.incumbent_model.name if folder.incumbent_model.exists() else None
    _write_trial(
        folder,
        node,
        replace(
            trial,
            train=replace(trial.train, epochs=max(history.settled[winner].best_epoch, 1), stop_after=0),
            test_file=data_file("test"),
            champion=incumbent,
            sha256={**trial.sha256, **_digests(spec, ["test"], incumbent)},
        ),
    )
    _write_attempt(folder, node, spec, history)
    return True


def _find_winner(folder: RegionFolder, spec: RegionSpec, journal: Journal, history: History) -> int:
    """Return the winning trial, and note it: what other regions know by then must not change it in a second try."""
    if history.won and history.won[1] == history.ended and history.won[0] in history.settled:
        return history.won[0]
    winner = _choose(folder, spec, history)
    journal.append("won", trial=winner, of=history.ended)
    return winner


def _is_up_to_date(folder: RegionFolder, spec: RegionSpec, history: History) -> bool:
    """Return whether the region's champion is there, and made of the trial that wins by all that is known now."""
    if not (folder.champion_model.exists() and folder.champion_metrics.exists()):
        return False
    won = history.won
    return won is not None and (won[1] == history.ended or won[0] == _choose(folder, spec, history))


def _choose(folder: RegionFolder, spec: RegionSpec, history: History) -> int:
    """Return the trial whose hyperparameters the final training gets; GiveUpError where none has succeeded."""
    told = observe_trials(history, spec.metric, sorted(history.proposals))
    shared = read_shared(folder, spec)
    seed = seed_of(spec.train.seed, spec.slug, "winner")
    trials = list(told)
    order = (trials[number] for number in rank_trials(spec.search, list(told.values()), seed, shared))
    winner = next((trial for trial in order if history.settled[trial].ok), None)  # pruned ones have not been to the end
    if winner is None:
        reasons = sorted({f"{s.status}: {s.reason}" for s in history.settled.values()})[:3] or ["none has ended"]
        raise GiveUpError(
            f"region {spec.name!r}: no trial succeeded, so there is nothing to train; {'; '.join(reasons)}"
        )
    return winner


def _make_trial(
    spec: RegionSpec, node: NodeName, role: Role, point: Mapping[str, Value], parts: tuple[str, ...]
) -> Trial:
    settings = {name: value for name, value in point.items() if name in TRAIN_SETTINGS}
    init = {} if spec.init.random else {INIT_FILE: spec.sha256[INIT_FILE]}
    placeholders = with_defaults(spec.search.space, point)
    others = {name: value for name, value in placeholders.items() if name not in TRAIN_SETTINGS}
    return Trial(
        node=str(node),
        region=spec.name,
        number=-1 if node.number is None else node.number,
        role=role,
        network=NETWORK_FILE,
        hyperparameters=others,
        train=replace(spec.train, **settings),  # type: ignore[arg-type]  # checked when study.yaml was read
        metric=spec.metric,
        train_files=tuple(data_file(part) for part in parts),
        init=None if spec.init.random else INIT_FILE,
        sha256={NETWORK_FILE: spec.sha256[NETWORK_FILE], **_digests(spec, [*parts, *_valid(role)], None), **init},
    )


def _valid(role: Role) -> list[str]:
    return ["valid"] if role is Role.TUNE else []


def _digests(spec: RegionSpec, parts: list[str], incumbent: str | None) -> dict[str, str]:
    wanted = [data_file(part) for part in parts] + ([incumbent] if incumbent else [])
    return {file: spec.sha256[file] for file in wanted}


def _write_attempt(
    folder: RegionFolder, node: NodeName, spec: RegionSpec, history: History, ends: float | None = None
) -> None:
    """Write what the next try of a node asks for: more memory if that ran out, other machines than those that failed.

    DAGMan's next try is a new job, which knows nothing of the last one.
    """
    faults = history.faults_of(node.number)
    memory = memory_after(spec.job, sum(fault.reason.startswith(OUT_OF_MEMORY) for fault in faults))
    avoided = choose_avoided(read_failures(folder.run), faults, time.time())
    if avoided:
        avoided = dict(leave_some(avoided, query_machines(gpus=bool(spec.job.gpus))))
        if avoided:
            say(f"{node}: not on {', '.join(avoided)}, where jobs of this run failed")
    clauses = [f"(TARGET.Machine =!= {classad_string(host)} || time() > {int(when)})" for host, when in avoided.items()]
    lines = [
        f"memory = {memory >> 20}",
        f"avoid = {''.join(f'&& {clause} ' for clause in clauses)}",
    ]
    if spec.job.memory_max:
        lines.append(f"larger_memory = {', '.join(str(size >> 20) for size in memory_steps(spec.job, memory))}")
    if ends is not None:
        lines.append(f"idle_until = {int(ends)}")
    write_atomically(folder.trial(node) / ATTEMPT_SUBMIT, "".join(f"{line.rstrip()}\n" for line in lines))


def _write_trial(folder: RegionFolder, node: NodeName, trial: Trial) -> None:
    place = folder.trial(node)
    start = place / START_FOLDER
    start.mkdir(parents=True, exist_ok=True)
    checkpoint = place / CHECKPOINT_FILE
    if checkpoint.exists() and checkpoint.stat().st_size:
        _move_log_and_checkpoint(place, start)
    for name in (RESULT_FILE, LOG_FILE, MODEL_FILE):  # of an attempt before this one
        (place / name).unlink(missing_ok=True)
    # What a job brings back it is given: stopped before its first line, it would hold for a file that is not there.
    # HTCondor removes what it fails to bring back whole, so these lie where it never writes.
    for name in (RESULT_FILE, LOG_FILE, CHECKPOINT_FILE, *([] if node.number is not None else [MODEL_FILE])):
        (start / name).touch()
    write_atomically(place / TRIAL_FILE, trial_to_json(trial))


def _move_log_and_checkpoint(place: Path, start: Path) -> None:
    """Let the next job go on from there; the checkpoint last, as a crash between the two is repeated."""
    log = place / LOG_FILE
    write_atomically(start / LOG_FILE, log.read_text(encoding="utf-8", errors="replace") if log.exists() else "")
    (place / CHECKPOINT_FILE).replace(start / CHECKPOINT_FILE)
