"""From true values to figures: regrets, their ratios with intervals, wins and losses, ranks. Pure.

A regret is a reported point's true value less the optimum; where nobody knows that, less the best true value of all
runs of all tuners. Ratios are geometric means of (regret + floor) / (the peer's + floor) over pairs of the same problem
and seed; the floor is a part of the median regret that random search has on the problem after 28 trials. On losses that
move in steps the smallest floor exaggerates, so everything is said with two: what they disagree on is no claim.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

FLOORS = (1e-3, 1e-2)  # parts of random search's regret
FIRST_BUDGET = 28  # after which random search says what is much on a problem
RESAMPLES = 2000
INTERVAL = (0.05, 0.95)
SURELY = 0.01  # a tuner is worse than random on a problem if that is so in all but this part of the resamples
FEWEST = 4  # pairs on a problem that say anything of it
SAME = 1e-6  # logarithms of ratios that are closer to 0 are ties

Seeds = Mapping[int, float]  # by seed
Values = Mapping[str, Mapping[int, Seeds]]  # true values on one problem, by tuner and budget


@dataclass(frozen=True)
class Ground:
    """What all tuners did on some problems by one budget: regrets by problem, tuner and seed, and what is much."""

    regrets: Mapping[str, Mapping[str, Seeds]]
    scales: Mapping[str, float]

    @property
    def tuners(self) -> list[str]:
        """All tuners."""
        return list(dict.fromkeys(tuner for found in self.regrets.values() for tuner in found))

    def only(self, problems: Collection[str]) -> Ground:
        """Return the part of some problems."""
        return Ground({name: found for name, found in self.regrets.items() if name in problems}, self.scales)

    def of(self, tuners: Collection[str]) -> Ground:
        """Return the part of some tuners."""
        return Ground(
            {name: {t: seeds for t, seeds in found.items() if t in tuners} for name, found in self.regrets.items()},
            self.scales,
        )


@dataclass(frozen=True)
class Ratio:
    """A tuner's regret as a part of a peer's, with one floor."""

    value: float
    low: float
    high: float  # of an interval of 90 %: problems are drawn anew, and seeds within


@dataclass(frozen=True)
class Comparison:
    """One tuner beside a peer, over pairs of runs of the same problem and seed."""

    pairs: int
    ratios: tuple[Ratio, ...]  # one for each floor
    wins: int
    losses: int
    by_problem: Mapping[str, float]  # with the smallest floor

    @property
    def ties(self) -> int:
        """Pairs with the same regret."""
        return self.pairs - self.wins - self.losses

    @property
    def claim(self) -> str:
        """What may be said: less or more regret, surely where every interval leaves out 1; none where floors differ."""
        if all(ratio.value < 1 for ratio in self.ratios):
            return "surely less" if all(ratio.high < 1 for ratio in self.ratios) else "less"
        if all(ratio.value > 1 for ratio in self.ratios):
            return "surely more" if all(ratio.low > 1 for ratio in self.ratios) else "more"
        return "none"

    def describe(self) -> str:
        """Return in a line what stands beside the ratio."""
        fine, coarse = self.ratios
        return (
            f"{self.pairs} pairs, {self.wins} won, {self.losses} lost; 90 % of the ratio: {fine.low:.2f} to "
            f"{fine.high:.2f}; with floors ten times as high {coarse.value:.2f} ({coarse.low:.2f} to "
            f"{coarse.high:.2f}); claim: {self.claim}; worst: {self.worst[0]} {self.worst[1]:.2f}"
        )

    @property
    def worst(self) -> tuple[str, float]:
        """The problem with the largest ratio."""
        return max(self.by_problem.items(), key=lambda item: item[1])


def gather(found: Iterable[tuple[str, str, int, Mapping[int, float]]]) -> dict[str, Values]:
    """Return the true values of runs, each of which has a problem, a tuner, a seed, and a value after each budget."""
    values: dict[str, dict[str, dict[int, dict[int, float]]]] = {}
    for problem, tuner, seed, best in found:
        budgets = values.setdefault(problem, {}).setdefault(tuner, {})
        for budget, value in best.items():
            budgets.setdefault(budget, {})[seed] = value
    return dict(values)


def ground(values: Mapping[str, Values], optima: Mapping[str, float | None], budget: int, random: str) -> Ground:
    """Return the regrets after a budget.

    Problems tell nothing that random search solves in half of its runs, or on which it did not run.
    """
    regrets: dict[str, dict[str, Seeds]] = {}
    scales: dict[str, float] = {}
    for name, found in values.items():
        if FIRST_BUDGET not in found.get(random, {}):
            continue
        best = best_known(found, optima[name])
        scale = statistics.median(value - best for value in found[random][FIRST_BUDGET].values())
        if scale > 0:
            regrets[name] = {
                tuner: {seed: max(value - best, 0.0) for seed, value in by_budget[budget].items()}
                for tuner, by_budget in found.items()
                if budget in by_budget
            }
            scales[name] = scale
    return Ground(regrets, scales)


def best_known(values: Values, optimum: float | None) -> float:
    """Return the best known value: the optimum, or less where a run found less, whatever its budget."""
    found = min(value for budgets in values.values() for seeds in budgets.values() for value in seeds.values())
    return found if optimum is None else min(found, optimum)


def compare(found: Ground, tuner: str, peer: str) -> Comparison | None:
    """Compare two tuners; None where they have no pair of runs."""
    by_floor = [log_ratios(found, tuner, peer, floor) for floor in FLOORS]
    finest = by_floor[0]
    if not finest:
        return None
    logs = np.concatenate(list(finest.values()))
    return Comparison(
        pairs=len(logs),
        ratios=tuple(_ratio(list(logs_of.values())) for logs_of in by_floor),
        wins=int((logs < -SAME).sum()),
        losses=int((logs > SAME).sum()),
        by_problem={name: math.exp(values.mean()) for name, values in finest.items()},
    )


def log_ratios(found: Ground, tuner: str, peer: str, floor: float) -> dict[str, np.ndarray]:
    """Return the logarithms of the ratios of all pairs, by problem."""
    logs: dict[str, np.ndarray] = {}
    for name, regrets in found.regrets.items():
        ours, theirs = regrets.get(tuner, {}), regrets.get(peer, {})
        least = floor * found.scales[name]
        pairs = [math.log((ours[seed] + least) / (theirs[seed] + least)) for seed in ours if seed in theirs]
        if pairs:
            logs[name] = np.array(pairs)
    return logs


def _ratio(groups: Sequence[np.ndarray]) -> Ratio:
    means = resample(groups)
    low, high = np.exp(np.quantile(means, INTERVAL))
    return Ratio(math.exp(statistics.fmean(group.mean() for group in groups)), float(low), float(high))


def resample(groups: Sequence[np.ndarray], resamples: int = RESAMPLES) -> np.ndarray:
    """Return means of means: groups are drawn anew, and of each that is drawn its members."""
    chance = np.random.default_rng(0)
    sizes = np.array([len(group) for group in groups])
    padded = np.zeros((len(groups), sizes.max()))
    for row, group in zip(padded, groups, strict=True):
        row[: len(group)] = group
    drawn = chance.integers(len(groups), size=(resamples, len(groups)))
    members = (chance.random((*drawn.shape, sizes.max())) * sizes[drawn][..., None]).astype(int)
    there = np.arange(sizes.max()) < sizes[drawn][..., None]
    means = (padded[drawn[..., None], members] * there).sum(2) / sizes[drawn]
    return np.asarray(means.mean(1))


def worse_than(found: Ground, tuner: str, peer: str) -> list[str]:
    """Return the problems on which a tuner is surely worse than a peer, by seeds drawn anew, with the coarser floor."""
    logs = log_ratios(found, tuner, peer, FLOORS[-1])
    enough = {name: values for name, values in logs.items() if len(values) >= FEWEST}
    return [name for name, values in enough.items() if np.quantile(resample([values]), SURELY) > 0]


def leave_out_rare(found: Ground) -> Ground:
    """Return what is of the tuners that ran on half of the problems, at least: of the others nothing can be said."""
    ran = {tuner: sum(tuner in regrets for regrets in found.regrets.values()) for tuner in found.tuners}
    return found.of([tuner for tuner, problems in ran.items() if 2 * problems >= len(found.regrets)])


def leave_out_unfinished(found: Ground) -> Ground:
    """Return what is of the seeds that a tuner ran on all of its problems: the next seed may have begun."""
    whole = {t: set.intersection(*(set(of[t]) for of in found.regrets.values() if t in of)) for t in found.tuners}
    return Ground(
        {
            name: {t: {seed: seeds[seed] for seed in seeds if seed in whole[t]} for t, seeds in of.items() if whole[t]}
            for name, of in found.regrets.items()
        },
        found.scales,
    )


def whole(found: Ground, seeds: int) -> Ground:
    """Return what is of the tuners that ran with so many seeds, at least, on every problem."""
    often = [t for t in found.tuners if all(len(regrets.get(t, {})) >= seeds for regrets in found.regrets.values())]
    return found.of(often)


def count_common(found: Ground) -> int:
    """Return the number of problems and seeds on which every tuner ran."""
    return sum(len(_common_seeds(regrets, found.tuners)) for regrets in found.regrets.values())


def _common_seeds(regrets: Mapping[str, Seeds], tuners: Iterable[str]) -> set[int]:
    return set.intersection(*(set(regrets.get(tuner, {})) for tuner in tuners))


def mean_ranks(found: Ground, tuners: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return each tuner's mean rank among all: of its median regret on a problem, and of its regret in each run.

    Only problems and seeds on which every one of them ran count. Equal regrets share the mean of their ranks.
    """
    medians, pairs = [], []
    for regrets in found.regrets.values():
        seeds = _common_seeds(regrets, tuners)
        if seeds:
            runs = [ranks([regrets[tuner][seed] for tuner in tuners]) for seed in sorted(seeds)]
            medians.append(ranks([statistics.median(regrets[tuner][seed] for seed in seeds) for tuner in tuners]))
            pairs.append(np.mean(runs, axis=0))
    if not medians:
        return {}
    means = zip(np.mean(medians, axis=0), np.mean(pairs, axis=0), strict=True)
    return {tuner: (float(median), float(pair)) for tuner, (median, pair) in zip(tuners, means, strict=True)}


def ranks(values: Iterable[float]) -> np.ndarray:
    """Return ranks from 1, equal values sharing the mean of theirs.

    >>> ranks([3.0, 1.0, 3.0]).tolist()
    [2.5, 1.0, 2.5]
    """
    found = np.array(list(values))
    below = (found[:, None] > found).sum(1)
    same = (found[:, None] == found).sum(1)
    return np.asarray(below + (same + 1) / 2)
