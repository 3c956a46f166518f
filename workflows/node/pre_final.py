"""PRE of a region's last node: choose what is trained for good and write its trial.json. May run twice."""

from __future__ import annotations

import time
from dataclasses import replace

from nnlib.contract import TRIAL_FILE, Recipe, Trial, sha256_of, trial_to_json
from regiondag.audit.lost_records import ADVICE, check_own, list_unproposed, list_unsettled, name_trials
from regiondag.errors import GiveUpError
from regiondag.node.choice import choose_for_all, recipes_to_compare, serve_region
from regiondag.node.choice_alone import choose_alone
from regiondag.node.init_model import start_from_model
from regiondag.node.shared_trials import read_shared
from regiondag.node.trial_files import write_attempt, write_trial
from regiondag.registry.promote import promote_region
from regiondag.run.history import History
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RegionFolder
from regiondag.run.observations import observe_trials
from regiondag.run.proposal import make_request
from regiondag.run.region_spec import RegionSpec, read_spec
from regiondag.run.start_time import has_expired
from regiondag.study.space import seed_of
from regiondag.trainers.jobs import jobs_of
from regiondag.tuning.propose import expect_gain, propose, rank_trials

LOOKED = 4  # points, one by each of the model's criteria, that say what is left to gain


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
        check_own(folder, history)
        _check_complete(folder, spec, history)
        spec = start_from_model(folder, spec)
        if history.outcome(None):
            if _is_up_to_date(folder, spec, history):
                return False
            journal.append("reopened", trial=None)
            history = journal.read()
        winner = _find_winner(folder, spec, journal, history)
        _note_what_is_left(folder, spec, journal, history)
    write_trial(folder, node, _make_final(folder, spec, node, history, winner, spec.incumbent))
    write_attempt(folder, node, spec, history)
    return True


def _check_complete(folder: RegionFolder, spec: RegionSpec, history: History) -> None:
    """Raise GiveUpError where the journal has lost trials that DAGMan takes for done: another one would win.

    After the study's deadline PRE passes over trials, whatever has come of them.
    """
    late = has_expired(folder.run, spec.deadline, time.time())
    lost = sorted({*list_unproposed(folder, history), *([] if late else list_unsettled(folder, history))})
    if lost:
        seen = f"{folder.journal}: lacks {name_trials(lost)}, which ended"
        raise GiveUpError(f"{seen}: {ADVICE}; then submit the DAG again")


def _note_what_is_left(folder: RegionFolder, spec: RegionSpec, journal: Journal, history: History) -> None:
    """Note what another trial would be expected to gain, where a model says so: `status` and the report tell."""
    if spec.search.method != "bayes" or (history.left and history.left.of == history.ended):
        return
    beyond = max(spec.search.nodes, len(spec.first))
    shared = read_shared(folder, spec)
    asked = make_request(spec, history, range(beyond, beyond + LOOKED), sorted(history.proposals), shared)
    told = list(asked.told.values())
    points = propose(asked.search, told, asked.pending, asked.asked, asked.seed, shared)
    gain = expect_gain(spec.search, told, points, seed_of(spec.train.seed, spec.slug, "left"))
    best = history.best(spec.metric.minimize)
    if gain is not None:
        figures = {"gain": gain.mean, "low": gain.low, "high": gain.high}
        journal.append("left", **figures, stderr=best.stderr if best else None, of=history.ended)


def _make_final(
    folder: RegionFolder, spec: RegionSpec, node: NodeName, history: History, winner: int, before: Recipe | None
) -> Trial:
    """Return the job that tests a trial's recipe for its best number of epochs, and fits it and the floor to serve.

    `before` is the recipe in office.
    """
    trial = jobs_of(spec).final(spec, node, history, winner)
    return replace(trial, compare=recipes_to_compare(folder, spec, history, winner, before))


def _prepare_own(folder: RegionFolder, spec: RegionSpec, node: NodeName, number: int) -> bool:
    """Write trial.json of the job that fits a region's own choice of the trials, on the data of all regions."""
    journal, source = Journal(folder.journal), folder.run.region(spec.served_by)
    theirs, tried = read_spec(source.spec), Journal(source.journal).read()
    trial = replace(_make_final(source, theirs, node, tried, number, spec.incumbent), region=spec.name)
    with journal.locked():
        history = journal.read()
        check_own(folder, history)
        known = history.outcome(None)
        if known and _serves_already(folder, node, trial):
            return False
        if known:  # of what was chosen before
            journal.append("reopened", trial=None)
            history = journal.read()
    write_trial(folder, node, trial)
    write_attempt(folder, node, spec, history)
    return True


def _serves_already(folder: RegionFolder, node: NodeName, trial: Trial) -> bool:
    """Return whether the region's champion is what this very job has made."""
    place = folder.trial(node)
    try:
        same = (place / TRIAL_FILE).read_text(encoding="utf-8") == trial_to_json(trial)
        made = same and sha256_of(place / trial.outputs.model) == sha256_of(folder.champion_model)
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
