"""Which candidate serves each region: one pure function of the metric of every customer.

The rule, d being a candidate's metric minus the floor's on the same customer:

1. common choice g: the best mean D over all regions' customers, if P(D > 0) > .95; else the floor serves everywhere.
   Of blends, which are fitted several times a night, only one that is better than all else by a two-hundredth.
2. a region with n customers is served the floor where (n d + K D) / (n + K) < 0: its own mean, shrunk to all regions'.
3. its own best replaces that only with n >= 100, P > .99, and P* > .95, where P* knows that it is the best of many
   candidates in the luckiest of many regions.
4. with fewer than 10 customers there is no judging: the group's choice serves, whatever they say.
5. what served last night goes only where tonight's best, or the floor, is better with P > .8; it need not win again.

docs/concepts/champions.md has the measurements behind it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regiondag.champions.chance import estimate_gain, probability_better, probability_of_best
from regiondag.champions.scores import Array, Scores, best_of
from regiondag.study.families import name_floor

Kind = Literal["common", "floor", "own"]


@dataclass(frozen=True, slots=True)
class Rule:
    """The constants of the choice; all probabilities are of being better on the customers of the window."""

    better_than_floor: float = 0.95
    own_better: float = 0.99
    best_of_all: float = 0.95  # P*: not the luckiest candidate in the luckiest region
    change: float = 0.8  # of the recipe that served before
    blend_worth: float = 0.005  # of the metric: what a blend has to be better by than all that are none
    own_customers: int = 100
    min_customers: int = 10  # with fewer a region is not judged
    shrink: float = 20.0  # K: how many customers of a region count as much as all other regions
    past: float = 0.5  # what a window counts, as a part of the one after it
    draws: int = 1000
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Incumbent:
    """What served until tonight: candidates of tonight's scores that were fitted by those recipes."""

    common: str | None = None  # None: nothing yet, or the floor
    own: Mapping[str, str] = field(default_factory=dict)  # region -> candidate, where a region's own served


@dataclass(frozen=True, slots=True)
class Decision:
    """What serves, why, and by how much it is better than the floor: 0 of the floor itself."""

    candidate: str
    kind: Kind
    reason: str
    difference: float  # positive: better, also of a metric that is minimised; NaN without customers
    low: float  # its 95 % interval
    high: float
    n: int  # customers judged
    probability: float | None = None  # of being better than what it replaced; None where that was not asked


@dataclass(frozen=True, slots=True)
class Choice:
    """The decisions of one night."""

    floor: str
    common: Decision  # over all regions' customers
    regions: dict[str, Decision]


def choose(
    scores: Scores,
    floor: str,
    incumbent: Incumbent | None = None,
    past: Sequence[Scores] = (),
    rule: Rule | None = None,
    blends: Collection[str] = (),
    called: str = name_floor(),
) -> Choice:
    """Return what serves every region of `scores`, the validation window.

    `floor` is the candidate that everything has to beat (`choose_floor`). A candidate is compared where it has a metric
    of every customer that the floor has one of; so a region's own trials count there alone, and a broken one nowhere.
    `past` are earlier windows, latest first, on which the same recipes were judged; they are heard in rule 2 alone,
    each counting half of the one after it. `blends` are the candidates that are made of several; reasons have the floor
    as it is `called`. RegiondagError where the floor is no candidate.
    """
    judge = _Judge(scores, floor, incumbent or Incumbent(), past, rule or Rule(), frozenset(blends), called)
    common = judge.decide_common()
    weighed = judge.weigh(common.candidate)
    regions = {region: judge.decide(region, common, weighed[region], weighed[None]) for region in scores.regions}
    return Choice(floor, common, regions | judge.prefer_own(regions))


@dataclass(frozen=True, slots=True)
class _Weighed:
    """Customers of all windows, and the sum of their differences to the floor."""

    n: float
    total: float

    @property
    def mean(self) -> float:
        return self.total / self.n if self.n else 0.0


@dataclass(frozen=True, slots=True)
class _Judge:
    scores: Scores
    floor: str
    incumbent: Incumbent
    past: Sequence[Scores]
    rule: Rule
    blends: frozenset[str]
    called: str  # the floor, in words

    def decide_common(self) -> Decision:
        """Rule 1, and rule 5 of the group's recipe."""
        n = self.customers()
        if n < self.rule.min_customers:
            return self.serve_floor(f"floor: too few customers to judge anything ({n})")
        best, standing = self.best(), self.incumbent.common or self.floor
        if standing != self.floor and self.is_rival(standing) and not self.has_to_go(standing, best):
            probability = self.probability(standing, self.floor)
            text = f"common choice: kept, better than {self.called} with P {show(probability)} ({n:,} customers)"
            if best != standing:
                text += f"; {best} is better with P {show(self.probability(best, standing))} only"
            return self.decision(standing, "common", text, probability=probability)
        if best == self.floor:
            return self.serve_floor(f"floor: no candidate is better than {self.called} ({n:,} customers)")
        probability = self.probability(best, self.floor)
        if probability <= self.rule.better_than_floor:
            text = f"floor: nothing beat {self.called} (best: {best}, P {show(probability)}, {n:,} customers)"
            return self.serve_floor(text, probability=probability)
        text = f"common choice: better than {self.called} with P {show(probability)} ({n:,} customers)"
        if standing not in (best, self.floor) and self.is_rival(standing):
            text += f"; than {standing}, which served until now, with P {show(self.probability(best, standing))}"
        return self.decision(best, "common", text, probability=probability)

    def has_to_go(self, standing: str, best: str) -> bool:
        """Return whether tonight's best or the floor is better than what stands, surely enough for a change."""
        others = {best, self.floor} - {standing}
        return any(self.probability(other, standing) > self.rule.change for other in others)

    def decide(self, region: str, common: Decision, here: _Weighed, everywhere: _Weighed) -> Decision:
        """Rules 2 and 4."""
        rule, n = self.rule, self.customers(region)
        if here.n < rule.min_customers:
            words = f"too few customers to judge ({n}): served by the group's choice"
            reason = words if n else "common choice: no customers to judge here"
            return self.decision(common.candidate, common.kind, reason, region)
        decision = self.decision(common.candidate, common.kind, "common choice", region)
        if common.kind == "floor":
            decision = self.serve_floor(f"floor: nothing beat {self.called} over all regions", region)
        elif (here.total + rule.shrink * everywhere.mean) / (here.n + rule.shrink) < 0:
            decision = self.leave(region, common.candidate, n)
        return decision

    def leave(self, region: str, common: str, n: int) -> Decision:
        """Return the floor for a region; what served last night stays while the floor is not surely better here."""
        if self.incumbent.common == common:
            change = self.probability(self.floor, common, region)
            if change <= self.rule.change:
                text = f"common choice: kept, {self.called} is better here with P {show(change)} only"
                return self.decision(common, "common", text, region, 1 - change)
        return self.serve_floor(f"floor: nothing beat {self.called} here ({n} customers)", region)

    def prefer_own(self, decisions: Mapping[str, Decision]) -> dict[str, Decision]:
        """Return the decisions of large regions by rule 3, and by rule 5 of a region's own recipe."""
        large = [region for region in decisions if self.customers(region) >= self.rule.own_customers]
        gains = (self.gains_to(decisions[region].candidate, region) for region in large)
        sure = probability_of_best(gains, self.rule.draws, self.rule.seed)
        lucky = {region for region, one in zip(large, sure, strict=True) if one <= self.rule.best_of_all}
        return {region: self.prefer_best(region, decisions[region], region in lucky) for region in large}

    def prefer_best(self, region: str, other: Decision, lucky: bool) -> Decision:
        """Return a region's own choice where it is surely better than what would serve otherwise."""
        best, standing = self.best(region), self.incumbent.own.get(region)
        probability = self.probability(best, other.candidate, region)
        if lucky or probability <= self.rule.own_better:
            best = other.candidate
        if standing is not None and standing not in (best, other.candidate) and self.is_rival(standing, region):
            change = self.probability(best, standing, region)
            if change <= self.rule.change:
                text = f"own, kept: {best} is better with P {show(change)} only"
                return self.decision(standing, "own", text, region, 1 - change)
        if best == other.candidate:
            return other
        return self.decision(best, "own", f"own: P {show(probability)}", region, probability)

    def weigh(self, candidate: str) -> dict[str | None, _Weighed]:
        """Return by region, and under None of all together, how customers of all windows like a candidate."""
        windows = [
            (self.rule.past**age, one)
            for age, one in enumerate((self.scores, *self.past))
            if {candidate, self.floor} <= set(one.candidates)
        ]
        found: dict[str | None, _Weighed] = {}
        for region in (None, *self.scores.regions):
            gains = [(weight, _gains(one, candidate, self.floor, region)) for weight, one in windows]
            n = sum(weight * len(gain) for weight, gain in gains)
            total = math.fsum(weight * math.fsum(gain) for weight, gain in gains)
            found[region] = _Weighed(n, total)
        return found

    def best(self, region: str | None = None) -> str:
        """Return the best of the candidates that can be compared; the floor where none is better than that."""
        rivals, gains = self.compared(region)
        means = gains.mean(axis=1)
        plain = np.array([self.scores.candidates[row] not in self.blends for row in rivals])
        if plain.any():
            most = means[plain].max()
            means[~plain & (means - most < self.rule.blend_worth * abs(most))] = -np.inf
        floor = means[np.flatnonzero(rivals == self.scores.row(self.floor))[0]]
        return self.scores.candidates[rivals[means.argmax()]] if means.max() > floor else self.floor

    def customers(self, region: str | None = None) -> int:
        """Return how many customers are judged."""
        return int(np.isfinite(self.scores.of(self.floor, region)).sum())

    def compared(self, region: str | None = None) -> tuple[NDArray[np.intp], Array]:
        """Return the candidates that can be compared, and their metric (candidates, customers): more is better."""
        columns = slice(None) if region is None else self.scores.columns(region)
        judged = np.isfinite(self.scores.of(self.floor, region))
        rivals = self.scores.rivals(self.floor, columns)
        return rivals, self.scores.gains()[rivals, columns][:, judged]

    def gains_to(self, candidate: str, region: str) -> Array:
        """Return by how much each candidate is better in a region than one of them, customer by customer."""
        rivals, gains = self.compared(region)
        return np.asarray(gains - gains[rivals == self.scores.row(candidate)])

    def is_rival(self, candidate: str, region: str | None = None) -> bool:
        columns = slice(None) if region is None else self.scores.columns(region)
        known = candidate in self.scores.candidates
        return known and self.scores.row(candidate) in self.scores.rivals(self.floor, columns)

    def probability(self, candidate: str, other: str, region: str | None = None) -> float:
        gains = _gains(self.scores, candidate, other, region)
        return probability_better(gains, self.rule.draws, self.rule.seed)

    def serve_floor(self, reason: str, region: str | None = None, probability: float | None = None) -> Decision:
        return self.decision(self.floor, "floor", reason, region, probability)

    def decision(
        self, candidate: str, kind: Kind, reason: str, region: str | None = None, probability: float | None = None
    ) -> Decision:
        gain = estimate_gain(self.scores, candidate, self.floor, region)
        return Decision(candidate, kind, reason, gain.mean, gain.low, gain.high, gain.n, probability)


def choose_floor(scores: Scores, popular: Sequence[str], standing: str | None = None, rule: Rule | None = None) -> str:
    """Return the best of the popularities over all regions' customers, which everything else has to beat.

    One in office stays until another is better with P > .8, as by rule 5. RegiondagError without any popularity.
    """
    rule, best = rule or Rule(), best_of(scores, popular)
    if standing is None or standing not in popular:
        return best
    change = probability_better(_gains(scores, best, standing, None), rule.draws, rule.seed)
    return best if change > rule.change else standing


def _gains(scores: Scores, candidate: str, other: str, region: str | None) -> Array:
    """Return by how much a candidate is better, for each customer of whom both have a metric."""
    sign = -1.0 if scores.minimize else 1.0
    gains = sign * (scores.of(candidate, region) - scores.of(other, region))
    return np.asarray(gains[np.isfinite(gains)])


def show(probability: float) -> str:
    """Return a probability in three digits, with its sign.

    >>> show(0.9931), show(1.0)
    ('= .993', '> .999')
    """
    if probability > 0.9995:
        return "> .999"
    return f"= {probability:.3f}".replace(" 0.", " .") if probability >= 0.0005 else "< .001"
