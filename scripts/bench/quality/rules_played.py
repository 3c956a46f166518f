"""Rules of choosing, played on kept scores: choose on one window, serve the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regiondag.champions.chance import estimate, probability_better
from regiondag.champions.choose import Rule, choose
from regiondag.champions.scores import Scores, best_of
from scripts.bench.quality.rules_scores import Past, Scored
from scripts.bench.quality.rules_shop import Longs

PAIRS = (1, 2, 3, 4, 5)  # windows that are served; each is chosen for on the one before, which has the next number
PAST = 3  # further windows that may be pooled
SPOILED = 0.6  # what every personal model's metric is multiplied by in a spoiled region
SIMPLE = ("popularity", "recent")

Measures = tuple[float, float, float, float]
Played = Callable[[Scores, str, Sequence[Scores]], Mapping[str, str]]  # scores, floor, past -> region -> candidate


def by_region(scored: Scored, group: Longs) -> Scores:
    """Return a window's scores with the customers of each group together; -1 is no group."""
    order = np.argsort(group, kind="stable")[np.count_nonzero(group < 0) :]
    counts = np.bincount(group[order], minlength=int(group.max()) + 1)
    names = tuple(f"r{number}" for number in range(len(counts)))
    return Scores(scored.ndcg[:, order], scored.names, names, tuple(map(int, counts)))


def is_simple(names: Sequence[str]) -> NDArray[np.bool_]:
    """Return which candidates are popularities."""
    return np.array([name.split()[0] in SIMPLE for name in names])


def floor_of(scores: Scores) -> str:
    """Return the best popularity over all regions."""
    return best_of(scores, [name for name in scores.candidates if name.split()[0] in SIMPLE])


def own_argmax(scores: Scores, floor: str, past: Sequence[Scores]) -> Mapping[str, str]:  # noqa: ARG001
    """Each region's own best."""
    found = {}
    for region, n in zip(scores.regions, scores.counts, strict=True):
        means = scores.values[:, scores.columns(region)].mean(axis=1) if n else np.zeros(1)
        found[region] = scores.candidates[int(means.argmax())] if n else floor
    return found


def one_standard_error(scores: Scores, floor: str, past: Sequence[Scores]) -> Mapping[str, str]:  # noqa: ARG001
    """The simplest candidate within one standard error of a region's best; candidates are in order of simplicity."""
    found = {}
    for region, n in zip(scores.regions, scores.counts, strict=True):
        here = scores.values[:, scores.columns(region)]
        if n < 2:
            found[region] = floor
            continue
        means, best = here.mean(axis=1), int(here.mean(axis=1).argmax())
        near = means >= means[best] - here[best].std(ddof=1) / np.sqrt(n)
        found[region] = scores.candidates[int(near.argmax())]
    return found


def own_if_proven(scores: Scores, floor: str, past: Sequence[Scores]) -> Mapping[str, str]:
    """Each region's own best where it beats the floor with P > .9, else the floor."""
    found = {}
    for region, best in own_argmax(scores, floor, past).items():
        gains = scores.of(best, region) - scores.of(floor, region)
        found[region] = best if probability_better(gains, 400, 0) > 0.9 else floor
    return found


def ruled(rule: Rule | None = None, pooled: int = 0) -> Played:
    """Return `choose` with some constants and pooled windows."""

    def play(scores: Scores, floor: str, past: Sequence[Scores]) -> Mapping[str, str]:
        found = choose(scores, floor, past=past[:pooled], rule=rule).regions
        return {region: one.candidate for region, one in found.items()}

    return play


def argmax_of(words: tuple[str, ...]) -> Played:
    """Return the rule that serves the best of some families, over all regions, everywhere; no words: of all."""

    def play(scores: Scores, floor: str, past: Sequence[Scores]) -> Mapping[str, str]:  # noqa: ARG001
        names = [name for name in scores.candidates if not words or name.split()[0] in words]
        return dict.fromkeys(scores.regions, best_of(scores, names))

    return play


OURS = "choose"
RULES: dict[str, Played] = {
    "recent popularity for all": lambda scores, floor, past: dict.fromkeys(scores.regions, floor),  # noqa: ARG005
    "EASE for all": argmax_of(("ease",)),
    "argmax of the region": own_argmax,
    "simplest within one standard error": one_standard_error,
    "argmax of the region if P(> floor) > .9": own_if_proven,
    "argmax of all regions": argmax_of(()),
    OURS: ruled(),
    f"{OURS}, judging regions of any size": ruled(Rule(min_customers=1)),
    f"{OURS}, four windows pooled": ruled(pooled=PAST),
    f"{OURS}, four windows pooled, all the same weight": ruled(Rule(past=1.0), pooled=PAST),
}


@dataclass(frozen=True)
class Outcome:
    """What a rule served: NDCG@20 of each pair of windows, and how many regions are worse off than by popularity."""

    ndcg: tuple[float, ...]
    worse: float  # share of regions with enough customers
    floors: float  # share of all that are served a popularity
    surely_worse: float  # share of regions with enough customers whose 95 % interval lies below recent popularity

    @property
    def mean(self) -> float:
        """Over pairs."""
        return float(np.mean(self.ndcg))


@dataclass(frozen=True)
class Regions:
    """How regions are made: real countries, or so many customers of the largest country at random."""

    size: int = 0  # customers in the window that is chosen on; 0: countries
    spoiled: float = 0.0  # share of regions
    lately: bool = False  # spoiled in the last two windows only, not in those that are pooled

    def groups(self, windows: Sequence[Scored], random: np.random.Generator) -> list[Longs]:
        """Return the region of every customer on each window, the same one on all of them; -1 is none."""
        if not self.size:
            return [one.region for one in windows]
        largest = int(np.bincount(windows[1].region).argmax())
        number = max(2, round(int(np.count_nonzero(windows[1].region == largest)) / self.size))
        drawn = random.integers(0, number, 1 + max(int(one.customer.max()) for one in windows))
        return [np.where(one.region == largest, drawn[one.customer], -1) for one in windows]


def play(
    past: Past, regions: Regions, rules: Mapping[str, Played], resamples: int, pairs: Sequence[int]
) -> dict[str, Outcome]:
    """Return how each rule fares, with the mean over resamples of each pair."""
    random = np.random.Generator(np.random.PCG64(7))
    found: dict[str, list[list[Measures]]] = {name: [] for name in rules}
    for number in pairs:
        windows = [past.window(number + step) for step in range(PAST + 2)]
        for name in rules:
            found[name].append([])
        for _ in range(resamples if regions.size else 1):
            served, *known = _draw(regions, windows, random)
            floor = floor_of(known[0])
            for name, rule in rules.items():
                found[name][-1].append(_measure(served, rule(known[0], floor, known[1:]), floor, regions.size))
    return {name: _outcome(pairs) for name, pairs in found.items()}


def _draw(regions: Regions, windows: Sequence[Scored], random: np.random.Generator) -> list[Scores]:
    groups = regions.groups(windows, random)
    width = 1 + max(int(group.max()) for group in groups)
    bad = random.random(width) < regions.spoiled
    found = []
    for age, (scored, group) in enumerate(zip(windows, groups, strict=True)):
        ndcg = scored.ndcg.copy()
        if age < 2 or not regions.lately:
            ndcg[np.ix_(~is_simple(scored.names), bad[group] & (group >= 0))] *= SPOILED
        padded = by_region(Scored(scored.names, ndcg, scored.customer, scored.region), group)
        found.append(_widen(padded, width))
    return found


def _widen(scores: Scores, width: int) -> Scores:
    counts = scores.counts + (0,) * (width - len(scores.counts))
    return Scores(scores.values, scores.candidates, tuple(f"r{number}" for number in range(width)), counts)


def _measure(served: Scores, choice: Mapping[str, str], floor: str, size: int) -> Measures:
    """Return the mean over customers, and the shares of regions below popularity, served one, and surely below."""
    least = 10 if size in (0, 30, 100, 300) else max(2, size // 2)
    total, worse, surely = 0.0, [], []
    for region, n in zip(served.regions, served.counts, strict=True):
        got = served.of(choice[region], region)
        total += float(got.sum())
        if n >= least:
            simple = max(served.of(floor, region).mean(), served.of("popularity", region).mean())
            worse.append(got.mean() < simple - 1e-9)
            surely.append(estimate(got - served.of(floor, region)).high < 0)
    floors = is_simple([choice[region] for region in served.regions]).mean()
    return total / sum(served.counts), float(np.mean(worse)), float(floors), float(np.mean(surely))


def _outcome(pairs: Sequence[Sequence[Measures]]) -> Outcome:
    means = np.array([np.mean(pair, axis=0) for pair in pairs])
    return Outcome(tuple(map(float, means[:, 0])), *map(float, means[:, 1:].mean(axis=0)))
