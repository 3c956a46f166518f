"""PRE: propose hyperparameters and write the node's trial.json.

May run twice for one node (retries, rescue DAGs) and then changes nothing more: the journal holds one proposal per
trial, and trial.json comes out the same but for the table of rungs, which is of what is known by then.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from nnlib.contract import (
    CHECKPOINT_FILE,
    FLOOR_FILE,
    INIT_FILE,
    LOG_FILE,
    MODEL_FILE,
    RESULT_FILE,
    SCORES_FILE,
    TRIAL_FILE,
    Recipe,
    Role,
    Status,
    Trial,
    sha256_of,
    trial_to_json,
)
from nnlib.util.files import write_atomically
from regiondag.condor.quoting import classad_string
from regiondag.errors import GiveUpError
from regiondag.node.choice import choose_for_all, recipes_to_compare, serve_region
from regiondag.node.choice_alone import choose_alone
from regiondag.node.init_model import start_from_model
from regiondag.node.shared_trials import read_shared
from regiondag.node.trial_budget import count_affordable, hold_budget
from regiondag.registry.promote import promote_region
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
from regiondag.run.trial_recipes import best_by_family, is_of_space, recipe_of_trial
from regiondag.study.families import BLEND, FAMILY, INCUMBENT, network_space
from regiondag.study.job_rules import OUT_OF_MEMORY, memory_after, memory_steps
from regiondag.study.model import ALL, TRAIN_SETTINGS
from regiondag.study.space import Value, seed_of, with_defaults
from regiondag.tuning.propose import expect_gain, propose, rank_trials
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
            if state.complete and node.number != spec.search.blend:
                return False
            with hold_budget(folder, spec):
                _propose(folder, spec, journal, history, node.number)
            history = journal.read()
        if node.number not in history.proposals:
            return False
        trial = _make_trial(spec, node, Role.TUNE, history, node.number, ("train",))
        curves = [settled.curve for _, settled in sorted(history.settled.items()) if settled.curve]
        table = make_rungs(spec.search.prune, curves, trial.train.epochs, spec.metric.minimize)
        # Under the lock, too: who cancels the trial later finds the file there.
        _write_trial(folder, node, replace(trial, valid_file=data_file("valid"), rungs=tuple(table)))
        _write_attempt(folder, node, spec, history, ends)
    return True


def _is_removed_for_good(history: History, number: int) -> bool:
    """Return whether a trial was removed and the region does without it; who wants it to run again reopens it."""
    known = history.last_outcome(number)
    return known is not None and known.status == Status.REMOVED and history.any_ok


def _propose(folder: RegionFolder, spec: RegionSpec, journal: Journal, history: History, number: int) -> None:
    """Propose for the whole round of a trial, or in lanes for the trial alone."""
    if number == spec.search.blend:
        if len(best_by_family(spec, history)) > 1:
            journal.append("proposed", trial=number, point={FAMILY: BLEND})
        return
    numbers, before = _batch(spec, history, number)
    new = [trial for trial in numbers if trial not in history.proposals]
    refused = new[count_affordable(folder, spec, history, len(new)) :]
    if number in refused:
        if number not in history.declined:
            reason = f"of {spec.most_trials} trials (limits.trials) none is left, or others gain more by them"
            journal.append("declined", trial=number, reason=reason)
            say(f"{NodeName(spec.slug, number)}: {reason}")
        return
    numbers = range(numbers.start, numbers.stop - len(refused))
    before = [trial for trial in before if is_of_space(history, trial)]
    told = observe_trials(history, spec.metric, before)
    shared = read_shared(folder, spec)
    given = spec.first[numbers.start : numbers.stop]
    pending = [history.proposals[trial].point for trial in before if trial not in told]
    asked = propose(
        spec.search,
        history=list(told.values()),
        pending=[*pending, *(point for point in given if point.get(FAMILY) != INCUMBENT)],
        n=len(numbers) - len(given),
        seed=seed_of(spec.train.seed, spec.slug if shared is None else spec.study),
        shared=shared,
    )
    seed = seed_of(spec.train.seed, spec.slug, number, "gain")
    wanted = spec.search.stop == "noise" or spec.most_trials
    gain = expect_gain(spec.search, list(told.values()), asked, seed) if wanted else None
    best = history.best(spec.metric.minimize)
    if gain is not None and best is not None and best.stderr:
        journal.append("expected", trial=number, gain=gain, stderr=best.stderr)
        if state_of(spec, journal.read()).complete:
            return
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
    """Write trial.json of the final job: it tests the winner's recipe, and fits it on all days.

    Returns False when the region has its champion already, unless a trial that was run again since is better. Then
    that is in the registry, too.
    """
    spec = read_spec(folder.spec)
    ready = _prepare_final(folder, node, spec)
    if not ready:
        promote_region(folder, spec)
    return ready


def _prepare_final(folder: RegionFolder, node: NodeName, spec: RegionSpec) -> bool:
    journal = Journal(folder.journal)
    if spec.served_by:
        number = serve_region(folder, spec, journal)
        return number is not None and _prepare_own(folder, spec, node, number)
    with journal.locked():
        history = journal.read()
        spec = start_from_model(folder, spec)
        if history.outcome(None):
            if _is_up_to_date(folder, spec, history):
                return False
            journal.append("reopened", trial=None)
            history = journal.read()
        winner = _find_winner(folder, spec, journal, history)
    _write_trial(folder, node, _make_final(folder, spec, node, history, winner, spec.incumbent))
    _write_attempt(folder, node, spec, history)
    return True


def _make_final(
    folder: RegionFolder, spec: RegionSpec, node: NodeName, history: History, winner: int, before: Recipe | None
) -> Trial:
    """Return the job that tests a trial's recipe for its best number of epochs, and fits it and the floor to serve.

    `before` is the recipe in office.
    """
    learned = tuple(part for part in spec.final_parts if part != ALL)
    trial = _make_trial(spec, node, Role.FINAL, history, winner, learned)
    whole = [part for part in spec.final_parts if part == ALL] or (learned if trial.recipe else [])
    return replace(
        trial,
        train=replace(trial.train, epochs=max(history.settled[winner].best_epoch, 1), stop_after=0),
        test_file=data_file("test"),
        all_files=tuple(map(data_file, whole)),
        compare=recipes_to_compare(folder, spec, history, winner, before),
        sha256={**trial.sha256, **_digests(spec, ["test", *whole])},
    )


def _prepare_own(folder: RegionFolder, spec: RegionSpec, node: NodeName, number: int) -> bool:
    """Write trial.json of the job that fits a region's own choice of the trials, on the data of all regions."""
    journal, source = Journal(folder.journal), folder.run.region(spec.served_by)
    theirs, tried = read_spec(source.spec), Journal(source.journal).read()
    trial = replace(_make_final(source, theirs, node, tried, number, spec.incumbent), region=spec.name)
    with journal.locked():
        history = journal.read()
        known = history.outcome(None)
        if known and _serves_already(folder, node, trial):
            return False
        if known:  # of what was chosen before
            journal.append("reopened", trial=None)
            history = journal.read()
    _write_trial(folder, node, trial)
    _write_attempt(folder, node, spec, history)
    return True


def _serves_already(folder: RegionFolder, node: NodeName, trial: Trial) -> bool:
    """Return whether the region's champion is what this very job has made."""
    place = folder.trial(node)
    try:
        same = (place / TRIAL_FILE).read_text(encoding="utf-8") == trial_to_json(trial)
        made = same and sha256_of(place / MODEL_FILE) == sha256_of(folder.champion_model)
        return made and folder.champion_metrics.exists()
    except FileNotFoundError:
        return False


def _find_winner(folder: RegionFolder, spec: RegionSpec, journal: Journal, history: History) -> int:
    """Return the winning trial, and note it: what other regions know by then must not change it in a second try."""
    won, of = history.won or (None, 0)
    if won in history.settled and of == history.ended and folder.decisions.exists():
        return won
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
    if spec.regions:
        return choose_for_all(folder, spec, history)
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
    return choose_alone(folder, spec, history, winner)


def _make_trial(
    spec: RegionSpec, node: NodeName, role: Role, history: History, number: int, parts: tuple[str, ...]
) -> Trial:
    """Return the job of a trial, or the one that trains what the trial `number` has found."""
    recipe = recipe_of_trial(spec, history, number)
    point: Mapping[str, Value] = {} if recipe else history.proposals[number].point
    point = {name: value for name, value in point.items() if name != FAMILY}
    network = {} if recipe else {NETWORK_FILE: spec.sha256[NETWORK_FILE]}
    settings = {name: value for name, value in point.items() if name in TRAIN_SETTINGS}
    init = {} if spec.init.random else {INIT_FILE: spec.sha256[INIT_FILE]}
    placeholders = {} if recipe else with_defaults(network_space(spec.search.space), point)
    others = {name: value for name, value in placeholders.items() if name not in TRAIN_SETTINGS}
    return Trial(
        node=str(node),
        region=spec.name,
        number=-1 if node.number is None else node.number,
        role=role,
        network="" if recipe else NETWORK_FILE,
        recipe=recipe,
        hyperparameters=others,
        train=replace(spec.train, **settings),  # type: ignore[arg-type]  # checked when study.yaml was read
        metric=spec.metric,
        train_files=tuple(data_file(part) for part in parts),
        init=None if spec.init.random else INIT_FILE,
        sha256={**network, **_digests(spec, [*parts, *_valid(role)]), **init},
    )


def _valid(role: Role) -> list[str]:
    return ["valid"] if role is Role.TUNE else []


def _digests(spec: RegionSpec, parts: Iterable[str]) -> dict[str, str]:
    return {file: spec.sha256[file] for file in map(data_file, parts)}


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
    for name in (RESULT_FILE, LOG_FILE, SCORES_FILE, MODEL_FILE, FLOOR_FILE):  # of an attempt before this one
        (place / name).unlink(missing_ok=True)
    # What a job brings back it is given: stopped before its first line, it would hold for a file that is not there.
    # HTCondor removes what it fails to bring back whole, so these lie where it never writes.
    final = [] if node.number is not None else [MODEL_FILE, FLOOR_FILE]
    for name in (RESULT_FILE, LOG_FILE, CHECKPOINT_FILE, SCORES_FILE, *final):
        (start / name).touch()
    write_atomically(place / TRIAL_FILE, trial_to_json(trial))


def _move_log_and_checkpoint(place: Path, start: Path) -> None:
    """Let the next job go on from there; the checkpoint last, as a crash between the two is repeated."""
    log = place / LOG_FILE
    write_atomically(start / LOG_FILE, log.read_text(encoding="utf-8", errors="replace") if log.exists() else "")
    (place / CHECKPOINT_FILE).replace(start / CHECKPOINT_FILE)
