"""What to doubt about a choice, in words: for the top of the report. None of it changes what serves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from regiondag.champions.chance import MANY, estimate_gain
from regiondag.champions.choose import Choice, Decision, Incumbent, Rule
from regiondag.champions.scores import Scores
from regiondag.study.space import Choice as Options
from regiondag.study.space import Integer, Point, Real, Space, Value

DRAWS, ALIKE = 200, 0.95  # windows of equal candidates that are drawn, and the share of them that lies closer together
ALL = "all regions"
SHARE = "popularity_own"
EDGE = 0.02  # of a range, at either end
# When the test disagrees with the validation window. The best of many candidates was lucky on validation, so its gain
# falls a little on any test: of 17 alike within .01 in truth, 10 % fell by more than 95 % noise where 30 customers were
# asked, and 4 % of 100; by more than 99 % noise 3 and 1 %. With 17,000 customers nearly any two windows differ beyond
# chance, 41 % where their gains vary by .01, as in the retail example, about a mean of .03; a half or less of the gain
# was left in 1 %. Where nothing was left, 40 % of 30, 87 % of 100 and all from 300 customers on are told.
NOISE99 = 2.576 / 1.96  # of 95 % intervals
LEFT = 0.5  # of the gain on validation

Kind = Literal["disagree", "alike", "few", "edge", "incumbent"]


@dataclass(frozen=True, slots=True)
class Caution:
    """One doubt: what was seen, and what can be done."""

    kind: Kind
    text: str


def doubt_test(choice: Choice, test: Scores) -> list[Caution]:
    """Return where the test window says something else than the validation window did.

    That is of the choice of all regions, and of regions with a recipe of their own: of its gain over the floor on
    validation less than half is left on test, and the rest is more than chance takes (99 %, both windows together). The
    text names the floor as the candidate is called.
    """
    own = [(region, one) for region, one in choice.regions.items() if one.kind == "own"]
    asked: list[tuple[str | None, Decision]] = [(None, choice.common), *own]
    found = []
    for region, one in asked:
        if one.kind == "floor" or not {one.candidate, choice.floor} <= set(test.candidates):
            continue
        seen = estimate_gain(test, one.candidate, choice.floor, region)
        noise = NOISE99 * math.hypot(one.high - one.low, seen.high - seen.low) / 2
        if seen.mean < LEFT * one.difference and one.difference - seen.mean > noise:
            text = (
                f"{region or ALL}: validation and test disagree about {one.candidate}: against {choice.floor} "
                f"{one.difference:+.4f} on validation ({one.n:,} customers), {seen.mean:+.4f} on test ({seen.n:,}); "
                "one of the windows was unusual, so wait for the next before anything is built on it"
            )
            found.append(Caution("disagree", text))
    return found


def doubt_differences(scores: Scores, candidates: Sequence[str]) -> list[Caution]:
    """Return whether candidates are all alike within noise.

    Their means over all regions span a range; so do those of equal candidates, by chance. The range of such is drawn
    from the same customers, each candidate's mean taken off (the bootstrap under the null hypothesis); alike are those
    whose range is no wider than that of 95 % of the draws. Those without a metric of every customer do not count.
    """
    rows = scores.gains()[[scores.row(name) for name in candidates]]
    rows = rows[np.isfinite(rows).all(axis=1)]
    n = rows.shape[1]
    if len(rows) < 2 or n < 2:
        return []
    means = rows.mean(axis=1)
    seen = float(means.max() - means.min())
    centred = (rows - means[:, None])[:, :: math.ceil(n / MANY)]
    drawn = centred.shape[1]
    random = np.random.Generator(np.random.PCG64(0))
    counts = random.multinomial(drawn, np.full(drawn, 1 / drawn), DRAWS) / math.sqrt(drawn * n)
    null = np.einsum("dn,cn->dc", counts, centred)  # no BLAS: the same bits on any number of threads
    bar = float(np.quantile(null.max(axis=1) - null.min(axis=1), ALIKE))
    if seen > bar:
        return []
    text = (
        f"all {len(rows)} candidates are alike within noise: the best and the worst differ by {seen:.4f} on {n:,} "
        f"customers, equal ones would by up to {bar:.4f}; more trials will not help, other families or more days may"
    )
    return [Caution("alike", text)]


def doubt_customers(choice: Choice, rule: Rule) -> list[Caution]:
    """Return whether there are too few customers, in all or in regions."""
    n, found = choice.common.n, []
    if n < rule.own_customers:
        text = (
            f"{n} customers were asked in all regions together, so differences below the interval's width mean nothing "
            f"([{choice.common.low:+.4f}, {choice.common.high:+.4f}]): validate on more days, or ask customers with "
            "less history (min_history)"
        )
        found.append(Caution("few", text))
    few = [region for region, one in choice.regions.items() if one.n < rule.min_customers]
    if few and len(choice.regions) > 1:
        names = ", ".join(few[:5]) + (f" and {len(few) - 5} more" if len(few) > 5 else "")
        text = f"{len(few)} of {len(choice.regions)} regions have fewer than {rule.min_customers} customers to judge by"
        found.append(Caution("few", f"{text} and are served by the group's choice: {names}"))
    return found


def doubt_ranges(winner: str, values: Point, space: Space) -> list[Caution]:
    """Return the hyperparameters of a winner that lie at an end of their range, where the best may lie beyond."""
    found = []
    for parameter in space:
        value = values.get(parameter.name)
        if isinstance(parameter, Options):
            found += _doubt_options(winner, parameter, value)
            continue
        if isinstance(value, bool | str | None) or parameter.low == parameter.high:
            continue
        if parameter.name == SHARE:
            continue  # no wider range is legal
        end = _end(parameter, float(value))
        if end == "upper" and parameter.name.endswith("half_life"):
            continue  # nothing grows old any more
        if end is not None:
            text = (
                f"{winner}: {parameter.name} = {value:g} is at the {end} end of its range "
                f"({parameter.low:g} to {parameter.high:g}): widen it"
            )
            found.append(Caution("edge", text))
    return found


def _doubt_options(winner: str, parameter: Options, value: Value | None) -> list[Caution]:
    """Return whether a winner has the first or the last of ordered numbers."""
    options = parameter.options
    numbers = parameter.ordered and not any(isinstance(option, bool | str) for option in options)
    if not numbers or len(options) < 3 or value not in (options[0], options[-1]):
        return []
    end = "first" if value == options[0] else "last"
    listed = ", ".join(map(str, options))
    text = f"{winner}: {parameter.name} = {value} is the {end} of its options ({listed}): add some beyond"
    return [Caution("edge", text)]


def _end(parameter: Real | Integer, value: float) -> str | None:
    low, high = float(parameter.low), float(parameter.high)
    if parameter.log:
        low, high, value = math.log(low), math.log(high), math.log(value)
    place = (value - low) / (high - low)
    if place <= EDGE:
        return "lower"
    return "upper" if place >= 1 - EDGE else None


def doubt_incumbent(incumbent: Incumbent, scores: Scores, floor: str) -> list[Caution]:
    """Return the recipes that served until now and cannot be compared with tonight's candidates."""
    asked: list[tuple[str | None, str]] = list(incumbent.own.items())
    if incumbent.common is not None:
        asked.insert(0, (None, incumbent.common))
    found = []
    for region, name in asked:
        columns = slice(None) if region is None else scores.columns(region)
        if name not in scores.candidates:
            why = "it was not fitted and judged tonight"
        elif scores.row(name) not in scores.rivals(floor, columns):
            why = "it has no metric of some customers that the floor has one of"
        else:
            continue
        text = f"{region or ALL}: the incumbent {name} is not comparable, {why}; the newcomers were judged without it"
        found.append(Caution("incumbent", text))
    return found
