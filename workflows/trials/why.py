"""Why a trial has its hyperparameters: where they came from, what the model expected of them, and what came. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnlib.contract import ENDED_WELL, Metric, Status
from nnlib.spec.metric_names import keep_in_range
from regiondag.run.history import History
from regiondag.run.observations import observe_trial
from regiondag.run.proposal import ProposalRequest
from regiondag.run.region_spec import RegionSpec
from regiondag.study.families import FAMILY, INCUMBENT, REGION
from regiondag.study.space import Point, Value
from regiondag.trials.table import format_value
from regiondag.tuning.domain import identity_of
from regiondag.tuning.propose import foresee, propose_with_reasons
from regiondag.tuning.proposed import Proposed, Source
from regiondag.util.text import spell_out

if TYPE_CHECKING:  # NumPy is imported when a model is really asked
    from regiondag.tuning.gp.ask import Foreseen

LEVEL = 0.01  # of the width of what is expected: a smaller difference is none
UNTOLD = "the model's choice, by a criterion that cannot be told any more"


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the model expected of a trial when it was proposed, in the metric's own unit and direction."""

    value: float
    low: float  # 95 % of what such a trial comes to lie between, chance included
    high: float
    best: float  # what the model took the best point until then to be worth, chance left out
    improvement: float  # on that, which it expected on the average: nothing where a trial is no better


@dataclass(frozen=True, slots=True)
class Why:
    """Why a trial has its hyperparameters, what was expected of it, and what came."""

    region: str
    slug: str
    trial: int
    method: str  # of the search
    source: Source  # given, sequence, grid, neighbour, model or chance
    how: str  # the same in words; of the model its criterion
    reproduced: bool  # whether what the journals hold gives this very point again
    known: int  # trials of which the outcome was known then
    pending: int  # and those that were waiting or running
    hyperparameters: Mapping[str, Value]
    best: int | None  # the trial with the best value until then
    best_value: float | None
    best_hyperparameters: Mapping[str, Value]
    metric: str
    minimize: bool
    expected: Expectation | None  # only where a Gaussian process was asked
    status: Status
    value: float | None  # what came
    stderr: float | None
    deviations: float | None  # by so many of the model's it came out better than expected; below 0: worse


def explain_choice(spec: RegionSpec, before: History, request: ProposalRequest | None, now: History, trial: int) -> Why:
    """Say why a trial was proposed; `before` and `request` are what was known and asked then, None of a blend."""
    point = now.proposals[trial].point
    chosen, reproduced = _find_source(spec, request, point, trial)
    observed = observe_trial(now, trial, spec.metric)
    came = observed.loss if observed else None
    expected, surprise = None, None
    if request is not None and chosen.source is Source.MODEL:
        told = list(request.told.values())
        foreseen = foresee(request.search, told, request.pending, point, came, request.seed, request.shared)
        if foreseen is not None:
            expected = _expectation(foreseen, spec.metric)
            surprise = None if foreseen.surprise is None else -foreseen.surprise
    best_then = before.best(spec.metric.minimize)
    outcome = now.settled.get(trial)
    return Why(
        region=spec.name,
        slug=spec.slug,
        trial=trial,
        method=spec.search.method,
        source=chosen.source,
        how=chosen.how,
        reproduced=reproduced,
        known=len(before.settled) if request is None else len(request.told),
        pending=0 if request is None else len(request.pending) - _count_own(request),
        hyperparameters=point,
        best=best_then.trial if best_then else None,
        best_value=best_then.value if best_then else None,
        best_hyperparameters=before.proposals[best_then.trial].point
        if best_then and best_then.trial is not None
        else {},
        metric=spec.metric.name,
        minimize=spec.metric.minimize,
        expected=expected,
        status=outcome.status if outcome else Status.RUNNING,
        value=outcome.value if outcome else None,
        stderr=outcome.stderr if outcome else None,
        deviations=surprise,
    )


def _expectation(foreseen: Foreseen, metric: Metric) -> Expectation:
    sign = 1.0 if metric.minimize else -1.0
    losses = (foreseen.mean, foreseen.low, foreseen.high, foreseen.best)
    value, *ends, best = (keep_in_range(metric.name, sign * loss) for loss in losses)
    return Expectation(value, min(ends), max(ends), best, foreseen.improvement)


def _count_own(request: ProposalRequest) -> int:
    """Return how many of the pending points are those that were given to this very batch."""
    return sum(point.get(FAMILY) != INCUMBENT for point in request.given)


def _find_source(spec: RegionSpec, request: ProposalRequest | None, point: Point, trial: int) -> tuple[Proposed, bool]:
    """Return where a point came from, and whether it comes out again."""
    mine = dict(point)
    if request is None:
        return Proposed(mine, Source.GIVEN, "a blend of the best trial of each family, after all others"), True
    place = trial - request.numbers.start
    if place < len(request.given):
        return Proposed(mine, Source.GIVEN, _describe_given(spec, request.numbers.start + place, point)), True
    told = list(request.told.values())
    points = propose_with_reasons(request.search, told, request.pending, request.asked, request.seed, request.shared)
    place -= len(request.given)
    if place < len(points) and identity_of(points[place].point) == identity_of(point):
        return points[place], True
    source = points[place].source if place < len(points) else Source.MODEL
    return Proposed(mine, source, UNTOLD if source is Source.MODEL else points[place].how), False


def _describe_given(spec: RegionSpec, number: int, point: Point) -> str:
    family = point.get(FAMILY, spec.kind.name)
    if REGION in point:
        return "the recipe in office in one region, fitted anew"
    if family == INCUMBENT or (number == 0 and spec.incumbent is not None and family == spec.incumbent.family):
        return "the recipe in office, fitted anew"
    return "given: what an expert would try, before the tuner is asked"


# --- in words ----------------------------------------------------------------------------------------------


def say_why(why: Why) -> Iterator[str]:
    """Yield sentences: where the point came from, what was expected, and what came."""
    known = f"{why.known} trials were known then" + f", {why.pending} more waiting or running" * (why.pending > 0)
    yield f"{spell_out(why.region)}, trial {why.trial}: {why.how}; {known}"
    if not why.reproduced:
        yield (
            "asked again, the tuner proposes another point: another version of it proposed this one, or other regions "
            "had told it something else then"
        )
    yield _say_expected(why)
    yield _say_what_came(why)


def _say_expected(why: Why) -> str:
    if why.expected is None:
        return f"nothing was expected of it: {_why_not_expected(why)}"
    one = why.expected
    gain = one.best - one.value if why.minimize else one.value - one.best
    beside = f"{abs(gain):.2g} {'better' if gain >= 0 else 'worse'} than"
    if abs(gain) < LEVEL * (one.high - one.low):
        beside = "as good as"
    return (
        f"expected: {spell_out(why.metric)} {format_value(one.value)} (95 %: {format_value(one.low)} to "
        f"{format_value(one.high)}), {beside} the best until then, which the model took for {format_value(one.best)}; "
        f"improvement expected on the average: {one.improvement:.2g}"
    )


def _why_not_expected(why: Why) -> str:
    if why.method in ("grid", "random", "sobol"):
        return f"the method {why.method} has no model"
    if why.source is not Source.MODEL:
        return "no model was asked for it"
    if why.method != "bayes":
        return "scikit-optimize does not tell what it expects"
    return "the model had seen no two different values of this region's own"


def _say_what_came(why: Why) -> str:
    if why.value is None:
        return f"came: nothing yet, it is {why.status}" if why.status == Status.RUNNING else f"came: {why.status}"
    error = f" ± {format_value(why.stderr)} (standard error)" if why.stderr is not None else ""
    came = f"came: {format_value(why.value)}{error}" + f", {why.status}" * (why.status not in ENDED_WELL)
    if why.expected is None or why.deviations is None:
        return came
    off = f"{abs(why.value - why.expected.value):.2g} {'better' if why.deviations >= 0 else 'worse'} than expected"
    usual = "within" if why.expected.low <= why.value <= why.expected.high else "outside"
    return f"{came}: {off}, {abs(why.deviations):.1f} deviations, {usual} the 95 %"


def tabulate_why(why: Why) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows: the hyperparameters beside those of the best trial until then."""
    headings = ["hyperparameter", f"trial {why.trial}"]
    headings += [f"best until then: trial {why.best}"] if why.best is not None else []
    names = list(dict.fromkeys([*why.hyperparameters, *why.best_hyperparameters]))
    sides = (why.hyperparameters, why.best_hyperparameters)[: len(headings) - 1]
    return headings, [[spell_out(name), *(format_value(side.get(name)) for side in sides)] for name in names]
