"""PRE: propose hyperparameters and write the node's trial.json.

May run twice for one node (retries, rescue DAGs) and then changes nothing more: the journal holds one proposal per
trial, and trial.json comes out the same but for the table of rungs, which is of what is known by then.
"""

from __future__ import annotations

import time
from dataclasses import replace

from nnlib.contract import Status
from regiondag.audit.lost_records import ADVICE, list_unproposed, name_trials
from regiondag.errors import GiveUpError
from regiondag.node.init_model import start_from_model
from regiondag.node.journal_index import renew_index
from regiondag.node.shared_trials import read_shared
from regiondag.node.trial_budget import count_affordable, hold_budget
from regiondag.node.trial_files import write_attempt, write_trial
from regiondag.run.history import History
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RegionFolder
from regiondag.run.manager_log import say
from regiondag.run.proposal import batch_of, make_request
from regiondag.run.region_spec import RegionSpec, read_spec
from regiondag.run.region_state import check_not_hopeless, state_of
from regiondag.run.start_time import note_start
from regiondag.run.trial_recipes import best_by_family
from regiondag.study.families import BLEND, FAMILY
from regiondag.study.space import seed_of
from regiondag.trainers.jobs import jobs_of
from regiondag.tuning.propose import expect_gain, propose
from regiondag.tuning.pruning import make_rungs
from regiondag.util.text import show_duration


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
        history = journal.read(whole=spec.search.prune != "none")  # else nothing is compared with curves
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
            say(f"{node}: not tried: the study has had its {show_duration(spec.deadline)} (limits.deadline)")
            return False
        if node.number not in history.settled:
            check_not_hopeless(spec, state)
        if node.number not in history.proposals:
            if state.complete and node.number != spec.search.blend:
                return False
            _check_complete(folder, history, node.number)
            with hold_budget(folder, spec):
                _propose(folder, spec, journal, history, node.number)
            journal.read_on(history)
        if node.number not in history.proposals:
            return False
        trial = jobs_of(spec).trial(spec, node, history, node.number)
        curves = [settled.curve for _, settled in sorted(history.settled.items()) if settled.curve]
        table = make_rungs(spec.search.prune, curves, trial.train.epochs, spec.metric.minimize)
        # Under the lock, too: who cancels the trial later finds the file there.
        write_trial(folder, node, replace(trial, rungs=tuple(table)))
        write_attempt(folder, node, spec, history, ends)
    return True


def _check_complete(folder: RegionFolder, history: History, number: int) -> None:
    """Raise GiveUpError where the journal has lost trials: what is proposed without them would be tried twice."""
    lost = [trial for trial in list_unproposed(folder, history) if trial != number]
    if lost:
        seen = f"{folder.journal}: knows nothing of {name_trials(lost)}, given to jobs before"
        raise GiveUpError(f"{seen}: {ADVICE}; then submit the DAG again")


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
    numbers, before = batch_of(spec, history, number)
    new = [trial for trial in numbers if trial not in history.proposals]
    refused = new[count_affordable(folder, spec, history, len(new)) :]
    if number in refused:
        if number not in history.declined:
            reason = f"of {spec.most_trials} trials (limits.trials) none is left, or others gain more by them"
            journal.append("declined", trial=number, reason=reason)
            say(f"{NodeName(spec.slug, number)}: {reason}")
        return
    numbers = range(numbers.start, numbers.stop - len(refused))
    request = make_request(spec, history, numbers, before, read_shared(folder, spec))
    if request.shared is not None:
        renew_index(folder, spec.metric)
    told = list(request.told.values())
    asked = propose(
        spec.search,
        history=told,
        pending=request.pending,
        n=request.asked,
        seed=request.seed,
        shared=request.shared,
    )
    seed = seed_of(spec.train.seed, spec.slug, number, "gain")
    best = history.best(spec.metric.minimize)
    wanted = (spec.search.stop == "noise" or spec.most_trials) and best is not None and best.stderr
    gain = expect_gain(spec.search, told, asked, seed) if wanted else None
    if gain is not None and best is not None:
        figures = {"gain": gain.mean, "low": gain.low, "high": gain.high}
        journal.append("expected", trial=number, **figures, stderr=best.stderr)
        journal.read_on(history)
        if state_of(spec, history).complete:
            return
    journal.append_all(
        ("proposed", {"trial": trial, "point": point})
        for trial, point in zip(numbers, [*request.given, *asked], strict=False)  # a small space may be exhausted
        if trial not in history.proposals
    )
