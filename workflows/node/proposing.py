"""What PRE proposes: the trials of a round, or in lanes one, once, into the region's journal."""

from __future__ import annotations

from regiondag.audit.lost_records import ADVICE, list_unproposed, name_trials
from regiondag.errors import GiveUpError
from regiondag.node.journal_index import renew_index
from regiondag.node.shared_trials import read_shared
from regiondag.node.trial_budget import count_affordable, hold_budget, why_no_room
from regiondag.run.history import History
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RegionFolder
from regiondag.run.manager_log import say
from regiondag.run.proposal import batch_of, make_request
from regiondag.run.region_spec import RegionSpec
from regiondag.run.region_state import state_of
from regiondag.run.trial_recipes import best_by_family
from regiondag.study.families import BLEND, FAMILY
from regiondag.study.space import seed_of
from regiondag.tuning.propose import expect_gain, propose


def propose_trials(folder: RegionFolder, spec: RegionSpec, journal: Journal, history: History, number: int) -> None:
    """Add to the journal, and to `history`, what is tried next, if anything is. Call it under the journal's lock."""
    _check_complete(folder, history, number)
    with hold_budget(folder, spec):
        _propose(folder, spec, journal, history, number)
    journal.read_on(history)


def _check_complete(folder: RegionFolder, history: History, number: int) -> None:
    """Raise GiveUpError where the journal has lost trials: what is proposed without them would be tried twice."""
    lost = [trial for trial in list_unproposed(folder, history) if trial != number]
    if lost:
        seen = f"{folder.journal}: knows nothing of {name_trials(lost)}, given to jobs before"
        raise GiveUpError(f"{seen}: {ADVICE}; then submit the DAG again")


def _propose(folder: RegionFolder, spec: RegionSpec, journal: Journal, history: History, number: int) -> None:
    """Propose for the whole round of a trial, or in lanes for the trial alone."""
    if number == spec.search.blend:
        if len(best_by_family(spec, history)) > 1:
            journal.append("proposed", trial=number, point={FAMILY: BLEND})
        return
    numbers, before = batch_of(spec, history, number)
    new = [trial for trial in numbers if trial not in history.proposals]
    no_room = why_no_room(folder, spec)
    if no_room and not history.proposals:
        raise GiveUpError(f"region {spec.name!r}: {no_room}; raise it in study.yaml and make a new run")
    refused = new if no_room else new[count_affordable(folder, spec, history, len(new)) :]
    if number in refused:
        if number not in history.declined:
            none_left = f"of {spec.most_trials} trials (limits.trials) none is left, or others gain more by them"
            reason = no_room or none_left
            journal.append("declined", trial=number, reason=reason)
            say(f"{NodeName(spec.slug, number)}: not proposed: {reason}")
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
