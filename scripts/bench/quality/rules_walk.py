"""Eight weeks of nights: who serves when each night's proposals are compared with what served before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from regiondag.champions.choose import Choice, Incumbent, Rule, choose
from regiondag.champions.scores import Scores, best_of
from scripts.bench.quality.rules_played import by_region, floor_of
from scripts.bench.quality.rules_scores import AHEAD, BLEND, DAYS, NIGHTS, RECIPES, Past, Scored

ALL = ("popularity", *RECIPES, BLEND)
SIMPLE = tuple(name for name in ALL if name.split()[0] in ("popularity", "recent"))
PROPOSED = 3  # recipes a night
Proposals = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Night:
    """What was known on a night, and what came: candidates are `recipe@-days`, the days since the fit."""

    valid: Scores
    serve: Scores

    def honest(self, recipes: Sequence[str]) -> Scores:
        """Return what recipes reach that were fitted before the window that judges them."""
        rows = [self.valid.row(f"{name}@{-DAYS}") for name in recipes]
        return Scores(self.valid.values[rows], tuple(recipes), self.valid.regions, self.valid.counts)

    def served(self, choice: Mapping[str, str], ago: int = 0) -> float:
        """Return what customers of the next days get, by the recipe of their region, fitted so many days ago."""
        parts = [self.serve.of(f"{name}@{-ago}", region) for region, name in choice.items()]
        return float(np.concatenate(parts).mean())


@dataclass
class Walked:
    """NDCG@20 of every night after the first, and how often the recipe of most regions changed."""

    ndcg: list[float] = field(default_factory=list)
    changes: int = 0
    switches: int = 0  # of regions, between the group's recipe and the floor or one of their own


Walker = Callable[[Sequence[Night], Proposals], Walked]


def read_nights(past: Past, customers: int | None = None, seed: int = 0) -> list[Night]:
    """Return the kept nights; of so many random customers alone, if that is said."""
    windows = [(past.night(number, "valid"), past.night(number, "serve")) for number in range(NIGHTS)]
    regions = 1 + max(int(one.region.max()) for pair in windows for one in pair)
    random = np.random.Generator(np.random.PCG64(seed))
    last = 1 + max(int(one.customer.max()) for pair in windows for one in pair)
    part = 1.0 if customers is None else customers / len(windows[0][0].customer)
    kept = random.random(last) < part
    return [Night(*(_scores(one.take(kept[one.customer]), regions) for one in pair)) for pair in windows]


def _scores(scored: Scored, regions: int) -> Scores:
    found = by_region(scored, scored.region)
    counts = found.counts + (0,) * (regions - len(found.counts))
    return Scores(found.values, found.candidates, tuple(f"r{number}" for number in range(regions)), counts)


def proposals(seed: int) -> Proposals:
    """Return the recipes that are proposed on each night."""
    random = np.random.Generator(np.random.PCG64(seed))
    names = np.array(ALL[1:])
    return tuple(tuple(map(str, random.choice(names, PROPOSED, replace=False))) for _ in range(NIGHTS))


def alone(recipe: str) -> Walker:
    """One recipe, fitted anew every night."""
    return lambda nights, _: Walked([night.served(dict.fromkeys(night.serve.regions, recipe)) for night in nights[1:]])


def newcomer(nights: Sequence[Night], proposed: Proposals) -> Walked:
    """The best of the night's proposals, whatever served before."""
    found, last = Walked(), ""
    for night, names in zip(nights, proposed, strict=True):
        best = best_of(night.honest(names), names)
        found.changes += bool(last) and best != last
        last = best
        found.ndcg.append(night.served(dict.fromkeys(night.serve.regions, best)))
    return Walked(found.ndcg[1:], found.changes)


def first(refitted: bool) -> Walker:
    """The first night's champion, for ever; its weights, or its recipe."""

    def walk(nights: Sequence[Night], proposed: Proposals) -> Walked:
        best = best_of(nights[0].honest(proposed[0]), proposed[0])
        served = [
            night.served(dict.fromkeys(night.serve.regions, best), 0 if refitted else AHEAD * number)
            for number, night in enumerate(nights)
        ]
        return Walked(served[1:])

    return walk


def leaky(nights: Sequence[Night], proposed: Proposals) -> Walked:
    """Weights that have seen the window, against newcomers that have not: what the product once did."""
    found, standing, fitted = Walked(), "", 0
    for number, (night, names) in enumerate(zip(nights, proposed, strict=True)):
        best = best_of(night.honest(names), names)
        ago = AHEAD * (number - fitted)
        if not standing or _mean(night.valid, f"{best}@{-DAYS}") > _mean(night.valid, f"{standing}@{-ago}"):
            found.changes += bool(standing) and best != standing
            standing, fitted, ago = best, number, 0
        found.ndcg.append(night.served(dict.fromkeys(night.serve.regions, standing), ago))
    return Walked(found.ndcg[1:], found.changes)


def _mean(scores: Scores, name: str) -> float:
    return float(scores.of(name).mean())


def oracle(nights: Sequence[Night], proposed: Proposals) -> Walked:
    """The best in hindsight of all recipes proposed so far."""
    worth = {name: float(np.mean(alone(name)(nights, proposed).ndcg)) for name in ALL}
    known: set[str] = set(SIMPLE)
    served = []
    for night, names in zip(nights, proposed, strict=True):
        known |= set(names)
        served.append(night.served(dict.fromkeys(night.serve.regions, max(known, key=worth.__getitem__))))
    return Walked(served[1:])


def chosen(rule: Rule, everything: bool = False, memory: bool = True) -> Walker:
    """`choose` among the night's proposals, or all recipes; popularities are judged, too, and the incumbent's recipe.

    Without `memory` there is no incumbent: every night decides as the first one does.
    """

    def walk(nights: Sequence[Night], proposed: Proposals) -> Walked:
        found, incumbent = Walked(), Incumbent()
        last: Choice | None = None
        for night, names in zip(nights, proposed, strict=True):
            asked = [*names, *SIMPLE, *incumbent.own.values(), *([incumbent.common] if incumbent.common else [])]
            scores = night.honest(ALL if everything else list(dict.fromkeys(asked)))
            choice = choose(scores, floor_of(scores), incumbent, rule=rule)
            common, regions = choice.common, choice.regions
            served = "" if common.kind == "floor" else common.candidate
            if last is not None:
                found.changes += served != ("" if last.common.kind == "floor" else last.common.candidate)
                found.switches += sum(one.kind != last.regions[region].kind for region, one in regions.items())
            own = {region: one.candidate for region, one in regions.items() if one.kind == "own"}
            incumbent, last = Incumbent(served or None, own) if memory else Incumbent(), choice
            found.ndcg.append(night.served({region: one.candidate for region, one in regions.items()}))
        return Walked(found.ndcg[1:], found.changes, found.switches)

    return walk
