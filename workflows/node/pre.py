"""PRE: propose hyperparameters and write the node's trial.json.

May run twice for one node (retries, rescue DAGs) and then changes nothing more: the journal holds one proposal per
trial, and trial.json comes out the same but for the table of rungs, which is of what is known by then.
"""

from __future__ import annotations

import time
from dataclasses import replace

from nnlib.contract import Status
from regiondag.audit.lost_records import check_own
from regiondag.node.init_model import start_from_model
from regiondag.node.trial_files import write_attempt, write_trial
from regiondag.run.history import History
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RegionFolder
from regiondag.run.manager_log import say
from regiondag.run.region_spec import read_spec
from regiondag.run.region_state import check_not_hopeless, state_of
from regiondag.run.start_time import note_start
from regiondag.trainers.jobs import jobs_of
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
        check_own(folder, history)
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
            from regiondag.node.proposing import propose_trials  # most scripts of a round start without

            propose_trials(folder, spec, journal, history, node.number)
        if node.number not in history.proposals:
            return False
        trial = jobs_of(spec).trial(spec, node, history, node.number)
        curves = [settled.curve for _, settled in sorted(history.settled.items()) if settled.curve]
        table = make_rungs(spec.search.prune, curves, trial.train.epochs, spec.metric.minimize)
        # Under the lock, too: who cancels the trial later finds the file there.
        write_trial(folder, node, replace(trial, rungs=tuple(table)))
        write_attempt(folder, node, spec, history, ends)
    return True


def _is_removed_for_good(history: History, number: int) -> bool:
    """Return whether a trial was removed and the region does without it; who wants it to run again reopens it."""
    known = history.last_outcome(number)
    return known is not None and known.status == Status.REMOVED and history.any_ok
