"""What a run came to, in a few plain sentences: terminal, Markdown and page say the same. Pure functions.

A region is better or worse where the 95 % interval of its gain, by pairs of the same customers in the test window, lies
above or below 0. What it is held against is what served before; the floor where nothing did.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regiondag.run.region_state import RegionOutcome
from regiondag.run.trial_recipes import FLOOR
from regiondag.study.families import name_floors
from regiondag.util.text import list_some

if TYPE_CHECKING:
    from regiondag.report.bill import Bill
    from regiondag.report.summary import RegionSummary, Summary

INCUMBENT, SIMPLE = "incumbent", "simple"
AGAINST = (INCUMBENT, FLOOR, SIMPLE)


class Verdict(enum.StrEnum):
    """What has become of a region, as the headline counts it."""

    BETTER = "better"
    WORSE = "worse"
    STAYED = "stayed"  # the recipe in office, or no sure difference
    BEST_TRIAL = "best trial"  # a program's, which is held against nothing
    NO_FIGURES = "no figures"  # it is served, and no customer of its own says how well
    FAILED = "failed"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class Gain:
    """A mean of differences on the same customers, positive where it is better, and its 95 % interval, if it has one.

    Without `paired` differences the interval is that of what serves alone.
    """

    value: float
    low: float | None = None
    high: float | None = None
    paired: bool = True

    @property
    def verdict(self) -> Verdict:
        """Whether it is surely above or below 0."""
        if self.low is not None and self.low > 0:
            return Verdict.BETTER
        return Verdict.WORSE if self.high is not None and self.high < 0 else Verdict.STAYED


@dataclass(frozen=True, slots=True)
class Need:
    """What a person has to look at, with the regions that it is about; none: all of them."""

    text: str
    regions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Headline:
    """The figures of the sentences."""

    counts: Mapping[Verdict, int]
    against: Mapping[str, int]  # how many regions are held against what, of those that are better, worse or stayed
    kept: int  # regions with the recipe in office
    all_customers: str  # how good the whole is, in words; nothing where it is not known
    hours: float
    cost: float | None
    currency: str
    unpriced: int  # regions of which the cost is not known
    needs: tuple[Need, ...]
    floor: str  # what the floor is, in words that are true of all regions
    of_programs: bool = False  # in all regions, and none is held against anything


def gains_of(region: RegionSummary, metric: str) -> dict[str, Gain]:
    """Return by how much a region's metric is above what was tested beside it.

    Runs of earlier versions have no paired differences.
    """
    found = {}
    for name in AGAINST:
        known = region.gains.get(name)
        if known is not None and len(known) == 3 and known[0] is not None:
            found[name] = Gain(known[0], known[1], known[2])
            continue
        value, other = region.test.get(metric), region.compared.get(name, {}).get(metric)
        if value is None or other is None:
            continue
        ends = [end - other for end in region.intervals.get(metric, ())]
        low, high = ends if len(ends) == 2 else (None, None)
        found[name] = Gain(value - other, low, high, paired=False)
    return found


def judge(region: RegionSummary, metric: str) -> tuple[Verdict, str]:
    """Return what has become of a region, and against what: a name of AGAINST, or nothing."""
    if region.status == RegionOutcome.FAILED:
        return Verdict.FAILED, ""
    if not region.finished:
        return Verdict.UNFINISHED, ""
    if region.of_program:  # whose trials are not asked of the same customers
        return Verdict.BEST_TRIAL, ""
    gains = gains_of(region, metric)
    if region.incumbent:
        if region.status == RegionOutcome.KEPT:
            return Verdict.STAYED, INCUMBENT
        if INCUMBENT in gains:
            return gains[INCUMBENT].verdict, INCUMBENT
    if FLOOR in gains:
        return gains[FLOOR].verdict, FLOOR
    return Verdict.NO_FIGURES, ""


def name_rival(name: str, floor: str) -> str:
    """Return one of AGAINST in words, `floor` being what the floor is called."""
    return {INCUMBENT: "what served before", SIMPLE: "the best simple method"}.get(name, floor)


def make_headline(summary: Summary, bill: Bill) -> Headline:
    """Return what a run came to."""
    regions = own_regions(summary.regions)
    judged = [judge(region, region.metric or summary.metric) for region in regions]
    return Headline(
        counts=dict(Counter(verdict for verdict, _ in judged)),
        against=dict(Counter(against for _, against in judged if against)),
        kept=sum(region.status == RegionOutcome.KEPT for region in regions),
        all_customers=next((say_gain(one, summary) for one in summary.regions if one.stands_for_all), ""),
        hours=sum(region.hours for region in summary.regions),
        cost=bill.cost,
        currency=bill.currency,
        unpriced=sum(cost is None for cost in bill.regions.values()),
        needs=tuple(_list_needs(summary, regions, judged)),
        floor=name_floors(
            one.floor_name for one, (_, against) in zip(regions, judged, strict=True) if against == FLOOR
        ),
        of_programs=all(one.of_program for one in regions) and not any(against for _, against in judged),
    )


def own_regions(regions: Sequence[RegionSummary]) -> list[RegionSummary]:
    """Return the regions without the one that stands for all of them, unless it stands alone."""
    return [region for region in regions if not region.stands_for_all] or list(regions)


def _list_needs(
    summary: Summary, regions: Sequence[RegionSummary], judged: Sequence[tuple[Verdict, str]]
) -> Iterable[Need]:
    of: dict[Verdict, list[str]] = {}
    for region, (verdict, _) in zip(regions, judged, strict=True):
        of.setdefault(verdict, []).append(region.region)
    pooled = [r.region for r in summary.regions if r.stands_for_all and r.status == RegionOutcome.FAILED]
    failed = (*pooled, *of.get(Verdict.FAILED, ()))
    if failed:
        yield Need(f"{_count(len(failed), 'region')} failed", failed)
    worse = tuple(of.get(Verdict.WORSE, ()))
    if worse:
        yield Need(f"{_count(len(worse), 'region')} got worse", worse)
    pinned = tuple(region.region for region in regions if region.pinned)
    if pinned:
        yield Need(f"{_count(len(pinned), 'champion')} pinned, so that no run takes its place", pinned)
    yield from map(Need, (*summary.machines, *summary.cautions))
    none = tuple(of.get(Verdict.NO_FIGURES, ()))
    if none:
        have = "has" if len(none) == 1 else "have"
        yield Need(f"{_count(len(none), 'region')} {have} no {summary.asked} to judge by", none)


# --- in words ----------------------------------------------------------------------------------------------


def say_counts(headline: Headline) -> str:
    """Return how many regions got better, worse and stayed, in one sentence."""
    counts, total = headline.counts, sum(headline.counts.values())
    ended = total - counts.get(Verdict.UNFINISHED, 0)
    if not ended:
        return f"Nothing has been decided yet for {_count(total, 'region')}."
    known = [f"{counts.get(name, 0)} {word}" for name, word in main_words(headline).items()]
    rest = [f"{counts[name]} {_WORDS.get(name, name)}" for name in other_verdicts(headline) if counts.get(name)]
    return f"{_count(total, 'region')}: {', '.join([*known, *rest])}."


def main_words(headline: Headline) -> dict[Verdict, str]:
    """Return what is counted before all else, also where it is 0, and how that is called."""
    if headline.of_programs:
        return {Verdict.BEST_TRIAL: _WORDS[Verdict.BEST_TRIAL]}
    return {Verdict.BETTER: "better", Verdict.WORSE: "worse", Verdict.STAYED: _word_for_stayed(headline)}


def _word_for_stayed(headline: Headline) -> str:
    first = {name for name, count in headline.against.items() if count} <= {FLOOR}
    return "too close to tell" if first else "stayed"


def other_verdicts(headline: Headline) -> list[Verdict]:
    """Return what is counted where it is not 0."""
    main = main_words(headline)
    return [verdict for verdict in Verdict if verdict not in main and verdict not in _JUDGED]


def say_gain(region: RegionSummary, summary: Summary) -> str:
    """Return how good what serves is, and by how much better than what is simpler; nothing without a figure."""
    metric = summary.metric
    gains, value = gains_of(region, metric), region.test.get(metric)
    if value is None:
        return ""
    text = f"{metric} of all {region.customers:,} {summary.asked} is {value:.4f}"
    kept = {INCUMBENT} if region.status == RegionOutcome.KEPT else set()
    known = [(name, gains[name]) for name in AGAINST if name in gains and name not in kept]
    more = [f"{one.value:+.4f}{_show_ends(one)} over {name_rival(name, region.floor_name)}" for name, one in known]
    return f"{text}: {', '.join(more)}." if more else f"{text}."


def _show_ends(gain: Gain) -> str:
    return "" if gain.low is None or gain.high is None else f" ({gain.low:+.4f} to {gain.high:+.4f})"


def say_against(headline: Headline, asked: str = "customers") -> str:
    """Return what better and worse mean; nothing where no region was held against anything."""
    against = headline.against
    if not against:
        return ""
    names = [name for name in AGAINST if against.get(name)]
    words = [name_rival(name, headline.floor) for name in names]
    if len(words) > 1:
        words = [f"{word} ({against[name]})" for name, word in zip(names, words, strict=True)]
    text = f"Better or worse than {' or '.join(words)} with 95 % certainty, on the same {asked} of the test window."
    return f"{text} {_count(headline.kept, 'region')} kept the recipe in office." if headline.kept else text


def say_cost(headline: Headline) -> str:
    """Return what the run took."""
    text = f"It took {show_hours(headline.hours)} of training"
    if headline.currency:
        amount = "an unknown sum" if headline.cost is None else f"{headline.cost:,.2f} {headline.currency}"
        more = f" (unknown of {_count(headline.unpriced, 'region')})" if headline.unpriced and headline.cost else ""
        text += f" and {'at least ' if more else ''}{amount}{more}"
    return f"{text}."


def say_needs(headline: Headline) -> list[str]:
    """Return what a person has to look at, a line each."""
    return [f"{need.text}: {list_some(need.regions)}" if need.regions else need.text for need in headline.needs]


def show_hours(hours: float) -> str:
    """Return a time in the unit that reads best.

    >>> show_hours(0.024), show_hours(0.5), show_hours(2341.4)
    ('86 s', '30 min', '2,341 h')
    """
    if hours < 1 / 30:
        return f"{hours * 3600:.0f} s"
    if hours < 2:
        return f"{hours * 60:.0f} min"
    return f"{hours:,.1f} h" if hours < 100 else f"{hours:,.0f} h"


_JUDGED = frozenset({Verdict.BETTER, Verdict.WORSE, Verdict.STAYED})
_WORDS = {Verdict.BEST_TRIAL: "with the best of their trials"}


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
