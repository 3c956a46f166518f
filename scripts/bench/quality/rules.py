"""How good the rule that chooses champions is, on the retail example and on stores in which nothing can be learned.

Scores per customer are made once (five minutes) and kept in .bench/rules.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from regiondag.champions.choose import Rule, choose
from regiondag.champions.scores import Scores
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.quality.rules_played import OURS, PAIRS, RULES, Outcome, Regions, play
from scripts.bench.quality.rules_scores import Past
from scripts.bench.quality.rules_shop import read_shop
from scripts.bench.quality.rules_stores import find_lucky, make_store, serve_store
from scripts.bench.quality.rules_walk import (
    ALL,
    Night,
    Walker,
    alone,
    chosen,
    first,
    leaky,
    newcomer,
    oracle,
    proposals,
    read_nights,
)

BENCH = "rules"
FLOOR, EASE, ARGMAX, OWN = "recent popularity for all", "EASE for all", "argmax of all regions", "argmax of the region"
POOLED = f"{OURS}, four windows pooled"
SCORE = "NDCG@20"


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    made_up: bool = False  # a store of which all takes seconds, in the place of the example
    pairs: tuple[int, ...] = PAIRS
    regions: tuple[int, ...] = (5, 10, 30, 100, 300)
    resamples: int = 6
    stores: int = 20
    sequences: int = 100
    small: tuple[int, ...] = (60, 120, 250)  # customers of shops that are drawn from the example's
    shops: int = 30


QUICK = Sizes(True, (1,), (30,), 1, 1, 2, (60,), 1)


class RulesBench(Bench[Sizes]):
    """The rows."""

    @cached_property
    def _tables(self) -> dict[str, Mapping[str, object]]:
        return {}

    @cached_property
    def _past(self) -> Past:
        shop = make_store(0, drifts=True, length=280) if self.sizes.made_up else read_shop()
        return Past(shop, self.area)

    def _play(self, name: str, regions: Regions) -> dict[str, Outcome]:
        found = play(self._past, regions, RULES, self.sizes.resamples, self.sizes.pairs)
        self._tables[name] = {rule: asdict(outcome) for rule, outcome in found.items()}
        return found

    def pairs(self) -> Iterator[Row]:
        """Choose on one window, serve the next: real countries."""
        found = self._play("countries", Regions())
        ours = found[OURS]
        for peer in (FLOOR, EASE, OWN, ARGMAX):
            name = f"{SCORE} of {len(ours.ndcg)} windows, each chosen for on the one before (peer: {peer})"
            yield Row(name, ours.mean, found[peer].mean, "", higher=True)
        for peer in (FLOOR, EASE):
            ahead = sum(one > other for one, other in zip(ours.ndcg, found[peer].ndcg, strict=True))
            yield Row(f"windows of {len(ours.ndcg)} ahead of {peer}", ahead, None, "", higher=True)

    def regions(self) -> Iterator[Row]:
        """Random regions that are the same by construction; then a fifth of them spoiled, for good or lately."""
        for spoiled, lately in ((0.0, False), (0.2, False), (0.2, True)):
            kind = "a fifth spoiled lately" if lately else "a fifth spoiled" if spoiled else "all alike"
            for size in self.sizes.regions:
                name = f"regions of {size} customers, {kind}"
                found = self._play(name, Regions(size, spoiled, lately))
                for peer in (OWN, ARGMAX, POOLED):
                    yield Row(f"{name} (peer: {peer})", found[OURS].mean, found[peer].mean, "", higher=True)

    def stores(self) -> Iterator[Row]:
        """Made-up stores in which nothing can be learned of a customer."""
        for drifts in (False, True):
            served = [serve_store(seed, drifts) for seed in range(self.sizes.stores)]
            kinds = [one.kind for store in served for one in store.choice.regions.values()]
            what = "drifts from week to week" if drifts else "stays"
            name = f"regions of {self.sizes.stores} stores, items at random by popularity, which {what}: not popularity"
            yield Row(name, sum(kind != "floor" for kind in kinds), None, f"of {len(kinds)}", 0)
            self._tables[name] = {"reasons": sorted({store.choice.common.reason for store in served})}

    def alike(self) -> Iterator[Row]:
        """Candidates that are alike in truth: how many regions take the luckiest for their own?"""
        for size in self.sizes.regions[-2:]:
            drawn = [find_lucky(self._past.window(1), size, seed) for seed in range(self.sizes.shops)]
            name = (
                f"shops of {self.sizes.shops}, regions of {size} customers, candidates alike: with a choice of its own"
            )
            ours, plain = (sum(any(found) for found in way) for way in zip(*drawn, strict=True))
            yield Row(f"{name} (peer: P > .99 as if each were the only one)", ours, plain, "")

    def seconds(self) -> Iterator[Row]:
        """How long a choice takes: one large country and 41 small ones, a hundred candidates."""
        counts = (1000, *[6] * 40, 8)
        names = tuple(f"c{number}" for number in range(100))
        values = np.random.default_rng(0).normal(0, 0.1, (len(names), sum(counts)))
        scores = Scores(values, names, tuple(f"r{number}" for number in range(len(counts))), counts)
        took = []
        for _ in range(5):
            begin = time.perf_counter()
            choose(scores, names[0])
            took.append(time.perf_counter() - begin)
        name = f"a choice for {len(counts)} regions, {len(names)} candidates, {sum(counts):,} customers, median"
        yield Row(name, statistics.median(took), None, "s")

    def walk(self) -> Iterator[Row]:
        """Eight weeks of nights: all recipes judged each night, or three that are proposed by chance."""
        nights = read_nights(self._past)
        walkers = {
            "all recipes, choose": chosen(Rule(), everything=True),
            **{f"always {name}": alone(name) for name in ALL},
            "three recipes, choose": chosen(Rule()),
            "three recipes, best in hindsight": oracle,
            "three recipes, any change that looks better": chosen(Rule(change=0.5)),
            "three recipes, the first champion's recipe": first(refitted=True),
            "three recipes, the first champion's weights": first(refitted=False),
            "three recipes, always the newcomer": newcomer,
            "three recipes, leaky": leaky,
        }
        found = {name: self._walked(name, walker, nights) for name, walker in walkers.items()}
        ours, best = found["all recipes, choose"], max(found[f"always {name}"] for name in ALL)
        yield Row("nights, all recipes (peer: best in hindsight)", ours, best, "", 0.99, "", True, True)
        for name in ALL:
            yield Row(f"nights, all recipes (peer: always {name})", ours, found[f"always {name}"], "", higher=True)
        three = [name for name in walkers if name.startswith("three")]
        for name in three[1:]:
            peer = name.removeprefix("three recipes, ")
            yield Row(f"nights, three recipes (peer: {peer})", found[three[0]], found[name], "", higher=True)

    def memory(self) -> Iterator[Row]:
        """Small shops: does it pay that what served once has not to win over the floor every night anew?"""
        for customers in self.sizes.small:
            name = f"shops of {customers} customers"
            means = {}
            for way, walker in {
                "choose": chosen(Rule(), everything=True),
                "choose without an incumbent": chosen(Rule(), everything=True, memory=False),
                "recent popularity": alone("recent 10 1"),
            }.items():
                shops = [read_nights(self._past, customers, seed) for seed in range(self.sizes.shops)]
                walks = [walker(nights, proposals(0)) for nights in shops]
                means[way] = float(np.mean([np.mean(walk.ndcg) for walk in walks]))
                changes = float(np.mean([walk.changes for walk in walks]))
                self._tables[f"{name}, {way}"] = {"ndcg": means[way], "changes": changes}
            for way in list(means)[1:]:
                yield Row(f"nights of {name} (peer: {way})", means["choose"], means[way], "", higher=True)

    def _walked(self, name: str, walker: Walker, nights: Sequence[Night]) -> float:
        walks = [walker(nights, proposals(seed)) for seed in range(self.sizes.sequences)]
        means = [float(np.mean(walk.ndcg)) for walk in walks]
        changes, switches = ([getattr(walk, kind) for walk in walks] for kind in ("changes", "switches"))
        self._tables[f"walk: {name}"] = {
            "ndcg": float(np.mean(means)),
            "sd": float(np.std(means)),
            "changes": float(np.mean(changes)),
            "most changes": max(changes),
            "switches of regions": float(np.mean(switches)),
        }
        return float(np.mean(means))

    def details(self, rows: Sequence[Row]) -> Mapping[str, object]:  # noqa: ARG002
        """Return what is kept besides the rows: every rule."""
        return {"tables": self._tables}


if __name__ == "__main__":
    sys.exit(main(BENCH, RulesBench, Sizes(), QUICK, kept=True))
