"""Made-up stores in which nothing can be learned of a customer: all buy items at random, by how popular these are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from regiondag.champions.chance import probability_better
from regiondag.champions.choose import Choice, Rule, choose
from scripts.bench.quality.rules_played import by_region, floor_of
from scripts.bench.quality.rules_scores import DAYS, Scored, score
from scripts.bench.quality.rules_shop import Shop, window

SIZES = (500, 200, 100, 50, 30, 20)  # customers of each region
ITEMS, LENGTH, BOUGHT = 300, 140, 20  # catalogue, days, items a customer on average
DRIFT = 0.35  # of the logarithm of an item's popularity in a week


@dataclass(frozen=True)
class Served:
    """What `choose` made of a store, and by how much that is better than the floor on the next window."""

    choice: Choice
    gain: float


def make_store(seed: int, drifts: bool, length: int = LENGTH) -> Shop:
    """Return a store; the popularity of items is the same on all days, or it `drifts` from week to week."""
    random = np.random.Generator(np.random.PCG64(seed))
    weeks = length // 7
    steps = random.normal(0, DRIFT if drifts else 0, (weeks, ITEMS))
    popularity = np.exp(-np.log(np.arange(1, ITEMS + 1)) + np.cumsum(steps, axis=0))
    popularity /= popularity.sum(axis=1, keepdims=True)
    rows: list[tuple[int, int, int]] = []
    for number in range(sum(SIZES)):
        week = random.integers(0, weeks, random.poisson(BOUGHT * length / LENGTH))
        items = [int(random.choice(ITEMS, p=popularity[one])) for one in week]
        days = week * 7 + random.integers(0, 7, len(week))
        first: dict[int, int] = {}
        for item, day in zip(items, days, strict=True):
            first[item] = min(int(day), first.get(item, length))
        rows += [(number, item, day) for item, day in sorted(first.items())]
    table = np.array(rows)
    regions = tuple(f"r{region}" for region in range(len(SIZES)))
    return Shop(table[:, 0], table[:, 1], table[:, 2], np.repeat(np.arange(len(SIZES)), SIZES), regions, ITEMS)


def serve_store(seed: int, drifts: bool) -> Served:
    """Choose on one window of a store, and serve the next."""
    shop = make_store(seed, drifts)
    now, after = (score(window(shop, LENGTH - DAYS * ago, DAYS)) for ago in (2, 1))
    scores, later = by_region(now, now.region), by_region(after, after.region)
    floor = floor_of(scores)
    choice = choose(scores, floor)
    gains = [later.of(one.candidate, region) - later.of(floor, region) for region, one in choice.regions.items()]
    return Served(choice, float(np.concatenate(gains).mean()))


def find_lucky(scored: Scored, size: int, seed: int) -> tuple[list[bool], list[bool]]:
    """Deal each customer's metrics to the candidates at random, so that all are alike, and customers to regions.

    Return for each region whether `choose` gives it its own, and whether its best were better with P > .99 as if that
    were the only candidate.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    dealt = replace(scored, ndcg=random.permuted(scored.ndcg, axis=0))
    groups = random.integers(0, max(1, scored.ndcg.shape[1] // size), scored.ndcg.shape[1])
    scores = by_region(dealt, groups)
    floor = floor_of(scores)
    choice, plain = choose(scores, floor), []
    for region in scores.regions:
        gains = scores.values[:, scores.columns(region)] - scores.of(choice.common.candidate, region)
        plain.append(probability_better(gains[gains.mean(axis=1).argmax()], 1000, 0) > Rule().own_better)
    return [one.kind == "own" for one in choice.regions.values()], plain
