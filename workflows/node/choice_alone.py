"""What serves a region whose trials are its own: the best of them, the recipe in office, or the floor.

All are compared on the same customers of the validation window. By a loss, which no floor has, the values alone decide.
`decisions.json` keeps what was decided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from nnlib.contract import SCORES_FILE
from regiondag.errors import RegiondagError
from regiondag.node.choice import decision_to_raw, read_scores, write_decisions
from regiondag.node.program_cases import probability_of_pair
from regiondag.run.history import History
from regiondag.run.layout import NodeName, RegionFolder
from regiondag.run.region_spec import RegionSpec
from regiondag.run.trial_recipes import FLOOR, USUAL_FLOOR, best_by_family, incumbent_trial, name_trial
from regiondag.study.families import POPULARITY, name_floor
from regiondag.study.model import ALL

if TYPE_CHECKING:
    from regiondag.champions.choose import Decision, Rule
    from regiondag.champions.scores import Scores


def choose_alone(folder: RegionFolder, spec: RegionSpec, history: History, best: int) -> int:
    """Decide, write decisions.json, and return the trial that the final job trains; `best` is that of the search.

    That is the best network where a floor serves which was no trial: the final job fits both.
    """
    from regiondag.champions.cautions import doubt_ranges
    from regiondag.champions.choose import choose_floor
    from regiondag.champions.fitted_until import check_fitted_until

    again = incumbent_trial(spec, history)
    popular = None if spec.by_value else best_by_family(spec, history).get(POPULARITY)
    trials = {name_trial(spec, history, trial): trial for trial in (best, again, popular) if trial is not None}
    names = {trial: name for name, trial in trials.items()}
    check_fitted_until(spec.window, {f"t{trial:04d}": history.settled[trial].fitted_until for trial in names})
    standing = None if again is None else names[again]
    if spec.by_value:
        decision = _choose_by_value(folder, spec, history, best, again, names)
    else:
        scores = _read_scores(folder, spec, trials, None if popular is None else names[popular])
        floor = FLOOR if popular is None else names[popular]
        if popular is not None and standing is not None and _had_floor(spec):
            floor = choose_floor(scores, (floor, standing), standing)
            popular = trials[floor]
        decision = _choose_by_customers(spec, scores, names[best], standing, floor)
    known = {FLOOR: best, **trials}
    winner = known[decision.candidate]
    doubts = doubt_ranges(names[winner], history.proposals[winner].point, spec.search.space)
    decisions = {"floor": popular, "common": decision_to_raw(decision, known), "regions": {}}
    write_decisions(folder, {**decisions, "cautions": [f"{spec.name}: {doubt.text}" for doubt in doubts]})
    return winner


def _choose_by_customers(spec: RegionSpec, scores: Scores, best: str, standing: str | None, floor: str) -> Decision:
    from regiondag.champions.choose import Incumbent, Rule, choose

    rule = Rule(min_customers=spec.min_customers)
    # A region leaves what served it only for something surely better: the floor, too, if that did.
    rule = replace(rule, better_than_floor=rule.change if _had_floor(spec) else 0.0)
    customers = int(sum(map(math.isfinite, scores.of(best).tolist())))
    if customers < spec.min_customers:
        return _without_floor(best, f"the best trial: too few customers to judge it ({customers})", customers)
    if floor not in scores.candidates:
        return _choose_of_two(spec, scores, best, standing, rule, customers)
    decision = choose(scores, floor, Incumbent(standing), rule=rule, called=name_floor(spec.floor)).common
    return replace(decision, reason=decision.reason.removeprefix("common choice: "))


def _had_floor(spec: RegionSpec) -> bool:
    return spec.incumbent is not None and spec.incumbent.family == (spec.floor or USUAL_FLOOR).family


def _choose_of_two(
    spec: RegionSpec, scores: Scores, best: str, standing: str | None, rule: Rule, customers: int
) -> Decision:
    """Return the best trial, unless the recipe in office is about as good; no floor was fitted to these data."""
    from regiondag.champions.chance import probability_better
    from regiondag.champions.choose import show

    text = f"the best trial ({customers:,} customers; there is no {name_floor(spec.floor)} of these data)"
    if standing is None or standing == best:
        return _without_floor(best, text, customers)
    gains = scores.gains()[scores.row(best)] - scores.gains()[scores.row(standing)]
    probability = probability_better(gains[[math.isfinite(gain) for gain in gains]], rule.draws, rule.seed)
    if probability > rule.change:
        return _without_floor(best, text, customers)
    return _without_floor(standing, f"kept: {best} is better with P {show(probability)} only", customers)


def _choose_by_value(
    folder: RegionFolder, spec: RegionSpec, history: History, best: int, again: int | None, names: Mapping[int, str]
) -> Decision:
    """Return the best trial; the recipe in office where it is as good, or by the values of both surely not worse."""
    sign, less, least = (1.0, "less", "least") if spec.metric.minimize else (-1.0, "more", "most")
    cost = {trial: sign * value for trial, one in history.settled.items() if (value := one.value) is not None}
    if again is not None and again != best and not cost[best] < cost.get(again, math.inf):
        return _without_floor(names[again], f"kept: no trial has {less} {spec.metric.name}")
    if again is not None and again != best:
        pair = probability_of_pair(folder, spec, best, again)
        if pair is not None:
            from regiondag.champions.choose import Rule, show

            told = f"with P {show(pair[0])}"
            if pair[0] <= Rule().change:
                return _without_floor(names[again], f"kept: {names[best]} is better {told} only ({pair[1]})")
            return _without_floor(names[best], f"better than {names[again]}, in office, {told} ({pair[1]})")
    return _without_floor(names[best], f"the trial with the {least} {spec.metric.name}")


def _without_floor(candidate: str, reason: str, customers: int = 0) -> Decision:
    from regiondag.champions.choose import Decision

    return Decision(candidate, "common", reason, math.nan, -math.inf, math.inf, customers)


def _read_scores(folder: RegionFolder, spec: RegionSpec, trials: Mapping[str, int], popular: str | None) -> Scores:
    """Return what each customer gets by some trials, and by the floor that networks bring along if none is popular."""
    import numpy as np

    from regiondag.champions.scores import Scores

    found = {
        name: read_scores(folder.trial(NodeName(spec.slug, trial)) / SCORES_FILE, 1) for name, trial in trials.items()
    }
    rows = {name: values[0, 0] for name, values in found.items()}
    first = next(iter(found.values()))
    # Where the end is learned from two files, no floor could be fitted to serve.
    if popular is None and len(first) > 1 and len(set(spec.final_parts) - {ALL}) == 1:
        rows[FLOOR] = first[1, 0]
    counts = {len(row) for row in rows.values()}
    if len(counts) > 1:
        nodes = ", ".join(f"t{trial:04d}" for trial in trials.values())
        raise RegiondagError(
            f"{folder.path}: {SCORES_FILE} of {nodes} are of different numbers of customers "
            f"({', '.join(map(str, sorted(counts)))}); run these trials again: regiondag trial rerun"
        )
    values = np.array(list(rows.values()), np.float64)
    return Scores(values, tuple(rows), (spec.slug,), tuple(counts), spec.metric.minimize)
