"""Which recipe serves each region: decided once for all of them, before the final job; then each region takes its own.

`decisions.json` beside the journal of the region that stands for all keeps what was decided, by which scores.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnlib.contract import (
    SCORES_FILE,
    TRIAL_FILE,
    Recipe,
    Status,
    Trial,
    scored_metrics,
    trial_from_json,
)
from nnlib.util.files import link_or_copy, write_atomically
from regiondag.audit.lost_records import check_own
from regiondag.errors import GiveUpError, RegiondagError
from regiondag.node.brought import read_shape
from regiondag.node.program_cases import interval_of
from regiondag.run.history import History, TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RegionFolder
from regiondag.run.manifest import read_manifest
from regiondag.run.region_spec import RegionSpec, read_spec
from regiondag.run.trial_recipes import (
    EVER,
    FLOOR,
    USUAL_FLOOR,
    best_by_family,
    find_trial,
    incumbent_trial,
    name_trial,
    recipe_of_trial,
)
from regiondag.study.families import FAMILY, POPULARITY, name_floor

if TYPE_CHECKING:
    from regiondag.champions.chance import Estimate
    from regiondag.champions.choose import Choice, Decision
    from regiondag.champions.scores import Array, Scores

OWN = "own"
BESTSELLERS, SIMPLE = "bestsellers", "simple"  # what the final job tests beside the winner and the floor
IN_OFFICE = "incumbent"  # and the recipe in office, fitted anew
CHOSEN = "chosen"  # what is better than the floor elsewhere, or was the best of the trials, where the floor serves


def choose_for_all(folder: RegionFolder, spec: RegionSpec, history: History) -> int:
    """Decide for every region, write decisions.json, and return the trial whose recipe the final job fits.

    Raises GiveUpError where no popularity was measured: nothing could be compared with it.
    """
    from regiondag.champions.cautions import doubt_customers, doubt_differences, doubt_incumbent, doubt_ranges
    from regiondag.champions.choose import Incumbent, Rule, choose, choose_floor
    from regiondag.champions.fitted_until import check_fitted_until

    scores = read_trial_scores(folder, spec, history)
    names = _names(spec, history)
    trials = {name: trial for trial, name in names.items()}
    popular = [name for name, trial in trials.items() if _family(history, trial) == POPULARITY]
    if not popular:
        raise GiveUpError(
            f"region {spec.name!r}: no trial of popularity has succeeded, so nothing says whether others are any good; "
            f"see `regiondag explain {folder.run.path} {spec.slug}`"
        )
    check_fitted_until(spec.window, {f"t{trial:04d}": history.settled[trial].fitted_until for trial in names})
    again = incumbent_trial(spec, history)
    slugs = dict(zip(scores.regions, _rows(spec), strict=True))
    own = {name: find_trial(spec, history, spec.own[slug]) for name, slug in slugs.items() if slug in spec.own}
    standing = Incumbent(
        None if again is None else names[again],
        {name: "of last night" if trial is None else names[trial] for name, trial in own.items()},
    )
    rule = Rule(min_customers=spec.min_customers)
    floor = choose_floor(scores, popular, standing.common, rule)
    choice = choose(scores, floor, standing, rule=rule, blends=_find_blends(spec, history, trials))
    winner = trials[choice.common.candidate]
    cautions = [
        *doubt_customers(choice, rule),
        *doubt_differences(scores, scores.candidates),
        *doubt_ranges(choice.common.candidate, history.proposals[winner].point, spec.search.space),
        *doubt_incumbent(standing, scores, choice.floor),
    ]
    decisions = _to_raw(choice, trials, slugs)
    write_decisions(folder, {**decisions, "cautions": [caution.text for caution in cautions]})
    return winner


def _find_blends(spec: RegionSpec, history: History, trials: Mapping[str, int]) -> list[str]:
    """Return the names of the trials that fitted a blend."""
    recipes = {name: recipe_of_trial(spec, history, trial) for name, trial in trials.items()}
    return [name for name, recipe in recipes.items() if recipe is not None and recipe.members]


def recipes_to_compare(
    folder: RegionFolder, spec: RegionSpec, history: History, winner: int, before: Recipe | None
) -> dict[str, Recipe]:
    """Return what is tested beside the winner: bestsellers, the floor, and the best that is no blend or network.

    So is the recipe in office, `before`, where it has to go; one that failed as a trial would fail the final job, too.
    """
    if spec.by_value:
        return {}
    floor = read_decisions(folder)["floor"]
    if floor is None:
        return {BESTSELLERS: EVER, FLOOR: spec.floor or USUAL_FLOOR}
    best = best_by_family(spec, history)
    simple = next((trial for family, trial in best.items() if family != POPULARITY), floor)
    found = {name: recipe_of_trial(spec, history, trial) for name, trial in ((FLOOR, floor), (SIMPLE, simple))}
    known = {BESTSELLERS: EVER, **{name: recipe for name, recipe in found.items() if recipe is not None}}
    tested = (recipe_of_trial(spec, history, winner), *known.values())
    if before is None or before in tested or find_trial(spec, history, before) is None:
        return known
    return {**known, IN_OFFICE: before}


def serve_region(folder: RegionFolder, spec: RegionSpec, journal: Journal) -> int | None:
    """Give a region the model that was decided for it; return the trial that it needs a job for, if it is its own.

    Raises GiveUpError while nothing is decided yet.
    """
    source = folder.run.region(spec.served_by)
    theirs, history = read_spec(source.spec), Journal(source.journal).read()
    facts = _read_facts(source)
    if facts is None or history.final is None or not history.final.ok:
        raise GiveUpError(
            f"region {spec.name!r} is served by what is chosen for all regions together, and nothing is yet: submit "
            f"{source.dag} first, and this DAG again when it is done; {folder.run.study_dag} does both in order"
        )
    decision = read_decisions(source)["regions"][spec.slug]
    if decision["kind"] == OWN:
        return int(decision["trial"])
    floor = decision["kind"] == FLOOR
    model, digest = (source.champion_floor, facts["floor"]) if floor else (source.champion_model, facts["sha256"])
    with journal.locked():
        known = journal.read()
        check_own(folder, known)
        if _is_served(folder, known, digest):
            return None
        if known.outcome(None):  # by what was chosen before
            journal.append("reopened", trial=None)
        figures = _figures_of(source, theirs, history.final, spec, decision["kind"])
        outcome = TrialOutcome(None, Status.OK, decision["reason"], **figures)
        outcome = replace(outcome, promoted=_is_new(spec, outcome.recipe, history.final.promoted))
        link_or_copy(model, folder.champion_model)
        facts |= {
            "region": spec.name,
            "recipe": asdict(outcome.recipe) if outcome.recipe else None,
            "decision": decision,
            "test": outcome.metrics,
            "intervals": outcome.intervals,
            "customers": outcome.customers,
            "popularity": outcome.baseline,
            "compared": outcome.compared,
            "sha256": digest,
        }
        write_atomically(folder.champion_metrics, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
        journal.append("settled", **asdict(outcome))
    return None


def judge_final(folder: RegionFolder, spec: RegionSpec, final: TrialOutcome, history: History) -> TrialOutcome:
    """Return a final job's outcome with the reason for which its recipe serves, or the floor, and if that is new."""
    source = folder.run.region(spec.served_by) if spec.served_by else folder
    decisions = read_decisions(source)
    decision = decisions["regions"][spec.slug] if spec.served_by else decisions["common"]
    again = None if spec.served_by else incumbent_trial(spec, history)
    final = replace(final, reason="; ".join(filter(None, (decision["reason"], final.reason))))
    if spec.by_value:
        final = replace(final, intervals=interval_of(folder, spec))
    else:
        # Where the floor was no trial, the job has trained the best network all the same.
        kind = FLOOR if decision["kind"] == FLOOR and decisions["floor"] is None else ""
        theirs = read_spec(source.spec) if spec.served_by else spec
        final = replace(final, **_figures_of(folder, theirs, final, spec, kind))
        if not spec.served_by:
            doubts = doubt_test_of(folder, spec, history, decisions)
            doubts = list(dict.fromkeys([*doubts, *decisions["cautions"]]))  # this may run twice
            write_decisions(folder, {**decisions, "cautions": doubts})
    return replace(final, promoted=_is_new(spec, final.recipe, again != decision["trial"]))


def _is_new(spec: RegionSpec, recipe: Recipe | None, other_trial: bool) -> bool:
    """Whether something else serves than before; `recipe` is None of a network, and of a program."""
    if recipe is None:
        return other_trial or spec.incumbent is None or spec.incumbent.family != spec.kind.name
    return recipe != spec.incumbent


def _read_facts(folder: RegionFolder) -> dict[str, Any] | None:
    """Return what is known of a champion; None where there is none, or none that is whole."""
    try:
        facts = json.loads(folder.champion_metrics.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) and folder.champion_model.exists() else None


def doubt_test_of(folder: RegionFolder, spec: RegionSpec, history: History, decisions: Mapping[str, Any]) -> list[str]:
    """Return in words whether the test says of the common choice what the validation part said."""
    import numpy as np

    from regiondag.champions.cautions import ALL, doubt_test
    from regiondag.champions.choose import Choice, Decision
    from regiondag.champions.scores import Scores

    common = decisions["common"]
    low, high = common["interval"]
    if common["kind"] == FLOOR or low is None or high is None:
        return []
    _, tested = read_test(folder)
    if FLOOR not in tested:
        return []
    values = np.array([tested[model][0] for model in ("", FLOOR)])
    names = name_trial(spec, history, common["trial"]), name_floor(spec.floor)
    test = Scores(values, names, (spec.slug,), (values.shape[1],), spec.metric.minimize)
    one = Decision(names[0], "common", "", common["difference"], low, high, common["customers"])
    doubts = [caution.text for caution in doubt_test(Choice(names[1], one, {}), test)]
    return doubts if spec.regions else [text.replace(ALL, spec.name, 1) for text in doubts]


def _is_served(folder: RegionFolder, history: History, sha256: str) -> bool:
    facts = _read_facts(folder)
    return history.outcome(None) is not None and facts is not None and facts.get("sha256") == sha256


def _figures_of(
    source: RegionFolder, theirs: RegionSpec, final: TrialOutcome, spec: RegionSpec, kind: str
) -> dict[str, Any]:
    """Return how good what serves a region is for its own customers, by the test of the final job in `source`."""
    from regiondag.champions.chance import estimate

    names, slug = scored_metrics(theirs.metric), spec.slug
    customers = None if slug == theirs.slug else max((end for _, end in theirs.rows["test"].values()), default=0)
    trial, tested = read_test(source, 2 if kind == FLOOR else 1, len(names), customers)
    tested = _with_incumbent(tested, {"": final.recipe, **trial.compare}, spec.incumbent)
    first, last = (0, None) if slug == theirs.slug else theirs.rows["test"].get(slug, (0, 0))
    found = {
        model: {name: estimate(values[n, first:last]) for n, name in enumerate(names)}
        for model, values in tested.items()
    }
    serves = FLOOR if kind == FLOOR else ""
    whole = {"": final.metrics, **final.compared, BESTSELLERS: final.baseline} if slug == theirs.slug else {}
    means = {model: {name: one.mean for name, one in of.items() if one.n} for model, of in found.items()} | whole
    others = {name: of for name, of in means.items() if name not in ("", BESTSELLERS)}
    gains = {name: estimate((tested[serves] - tested[name])[0, first:last]) for name in others}
    return {
        "customers": found[serves][names[0]].n,
        "metrics": means[serves],
        "intervals": {name: (one.low, one.high) for name, one in found[serves].items() if one.n > 1},
        "gains": {name: _to_gain(one) for name, one in gains.items() if one.n},
        "baseline": means[BESTSELLERS],
        "compared": {**others, CHOSEN: means[""]} if serves else others,
        "recipe": trial.compare[FLOOR] if serves else final.recipe,
    }


def _with_incumbent(
    tested: Mapping[str, Array], recipes: Mapping[str, Recipe | None], before: Recipe | None
) -> dict[str, Array]:
    """Return what was tested, and under IN_OFFICE what served a region `before`, which may be any of it."""
    others = {model: values for model, values in tested.items() if model != IN_OFFICE}
    known = [tested[model] for model in tested if before is not None and recipes.get(model) == before]
    return {**others, IN_OFFICE: known[0]} if known else others


def _to_gain(one: Estimate) -> list[float | None]:
    return [one.mean, *(end if math.isfinite(end) else None for end in (one.low, one.high))]


def _family(history: History, trial: int) -> str:
    outcome = history.settled.get(trial)
    recipe = outcome.recipe if outcome else None
    return recipe.family if recipe else str(history.proposals[trial].point.get(FAMILY))


def write_decisions(folder: RegionFolder, decisions: Mapping[str, Any]) -> None:
    """Keep what was decided."""
    write_atomically(folder.decisions, json.dumps(decisions, indent=1, ensure_ascii=False) + "\n")


def _to_raw(choice: Choice, trials: Mapping[str, int], slugs: Mapping[str, str]) -> dict[str, Any]:
    return {
        "floor": trials[choice.floor],
        "common": decision_to_raw(choice.common, trials),
        "regions": {slugs[name]: decision_to_raw(one, trials) for name, one in choice.regions.items()},
    }


def decision_to_raw(decision: Decision, trials: Mapping[str, int]) -> dict[str, Any]:
    """Return a decision as decisions.json has it."""
    ends = (decision.difference, decision.low, decision.high)
    known = [round(end, 6) if math.isfinite(end) else None for end in ends]
    return {
        "trial": trials[decision.candidate],
        "kind": decision.kind,
        "reason": decision.reason,
        "difference": known[0],
        "interval": known[1:],
        "customers": decision.n,
    }


def read_decisions(folder: RegionFolder) -> dict[str, Any]:
    """Return what was decided; RegiondagError when that is damaged."""
    try:
        raw = json.loads(folder.decisions.read_text(encoding="utf-8"))
        floor = None if raw["floor"] is None else int(raw["floor"])
        known = {"floor": floor, "cautions": list(raw.get("cautions", ()))}
        return {**known, "common": dict(raw["common"]), "regions": dict(raw["regions"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RegiondagError(
            f"{folder.decisions}: not what was decided ({error!r}); remove it, then: "
            f"regiondag trial rerun {folder.run.path} {folder.path.name} final --force, and submit the DAG"
        ) from error


def read_trial_scores(folder: RegionFolder, spec: RegionSpec, history: History) -> Scores:
    """Return the metric of every customer of the validation part by every trial that succeeded.

    Candidates and regions have the names that people know them by, as reasons and cautions hold them.
    """
    import numpy as np

    from regiondag.champions.scores import Scores

    rows = _rows(spec)
    customers = max((end for _, end in rows.values()), default=0)
    found = {
        name: read_scores(folder.trial(NodeName(spec.slug, trial)) / SCORES_FILE, 1, 1, customers)[0, 0]
        for trial, name in _names(spec, history).items()
    }
    counts = tuple(last - first for first, last in rows.values())
    values = np.array(list(found.values()), np.float64).reshape(len(found), -1)
    called = read_manifest(folder.run).regions
    regions = tuple(called.get(slug, slug) for slug in rows)
    return Scores(values, tuple(found), regions, counts, spec.metric.minimize)


def _names(spec: RegionSpec, history: History) -> dict[int, str]:
    """Return the trials that succeeded, by what each is called."""
    return {trial: name_trial(spec, history, trial) for trial, one in sorted(history.settled.items()) if one.ok}


def _rows(spec: RegionSpec) -> dict[str, tuple[int, int]]:
    """Return where the customers of each region's validation part stand; nowhere those of a region that has none."""
    asked = spec.rows["valid"]
    return {**asked, **{slug: (0, 0) for slug in spec.regions if slug not in asked}}


def read_test(
    folder: RegionFolder, least: int = 1, metrics: int = 1, customers: int | None = None
) -> tuple[Trial, dict[str, Array]]:
    """Return a final job, and of each model that it tested the metrics of every customer; "" is what it was for.

    That one stands alone where nothing could be compared with it. Raises RegiondagError as `read_scores`.
    """
    place = folder.trial(NodeName(folder.path.name, None))
    trial = trial_from_json((place / TRIAL_FILE).read_text(encoding="utf-8"))
    values = read_scores(place / SCORES_FILE, least, metrics, customers).astype(float)
    return trial, dict(zip(["", *sorted(trial.compare)], values, strict=False))


def read_scores(path: Path, models: int, metrics: int = 1, customers: int | None = None) -> Any:
    """Return scores.npy, (models, metrics, customers), float32; RegiondagError when it has less, or is none.

    Without `customers` it may be of any number of them.
    """
    import numpy as np

    advice = f"run its node again: regiondag trial rerun {path.parents[4]} {path.parents[2].name} {path.parent.name}"
    try:
        read_shape(path)  # it fits the file: NumPy would make room for what the header says
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise RegiondagError(f"{path}: cannot be read: {error}; {advice}") from error
    whole = values.ndim == 3 and values.shape[0] >= models and values.shape[1] >= metrics
    if values.dtype != np.float32 or not whole or customers not in (None, values.shape[2]):
        seen, legal = f"{values.dtype} of shape {values.shape}", f"{models} x {metrics} x {customers or 'customers'}"
        raise RegiondagError(f"{path}: {seen}, legal: float32 of {legal}; {advice}")
    return values
